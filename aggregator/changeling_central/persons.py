"""Persons who have several entries: which entries are beyond the number that the guarantee counts with.

Of a person's entries those count that came first, by their first mutations. As in the guard, the first entry beyond
the number stops a release before its period, and is named by its row; or such entries are left out.
"""

import numpy as np
from changeling_statistics import Changelog
from numpy.typing import NDArray

from .guard import Breach

Mask = NDArray[np.bool_]


def beyond(changelog: Changelog, most: int) -> Mask:
    """Which mutations are of entries beyond the `most` first of their person, shape (mutations,).

    ValueError for a changelog that does not say whose the entries are.
    """
    if changelog.owner is None:
        raise ValueError("the changelog does not say whose the entries are")
    present, first = np.unique(changelog.entry, return_index=True)  # an entry's rows are in order of time
    owner, came = changelog.owner[present], changelog.time[first]
    order = np.lexsort((present, came, owner))
    ranked = owner[order]
    begins = np.ones(len(ranked), np.bool_)
    begins[1:] = ranked[1:] != ranked[:-1]
    start = np.maximum.accumulate(np.where(begins, np.arange(len(ranked)), 0))
    surplus = np.zeros(len(changelog.entries), np.bool_)
    surplus[present[order]] = np.arange(len(ranked)) - start >= most
    mask: Mask = surplus[changelog.entry]
    return mask


def first_beyond(changelog: Changelog, most: int, column: str) -> Breach | None:
    """The first mutation of an entry beyond the `most` first of its person, None where there is none.

    column: that says whose an entry is.
    """
    bad = np.flatnonzero(beyond(changelog, most))
    if not len(bad):
        return None
    at = int(bad[np.argmin(changelog.time[bad])])
    row = 0 if changelog.row is None else int(changelog.row[at])
    where = f"{changelog.unit} {row}" if row else f"entry {changelog.entries[changelog.entry[at]]!a}"
    entries = "entry" if most == 1 else "entries"
    return Breach(int(changelog.time[at]), where, f"its {column} has more than {most} {entries}")
