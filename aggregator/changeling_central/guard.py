"""The guard: which mutations keep to the constraint that the guarantee counts with, and the first that does not.

A guarantee speaks of entries that keep to the constraint. The guard stops a release before the first period that holds
a mutation beyond it, and names its row. That a release stopped is itself no private fact: where entries may break
the constraint and that must not show, freeze them (`frozen`), as the devices of the local model do.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from changeling_protocol import AtMost, AtMostWithin, Constraint, Hybrid, TimeBounded
from changeling_statistics import MICROSECONDS, Changelog, constraint_in_words
from numpy.typing import NDArray

from .errors import ConstraintBroken

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Breach:
    """A mutation beyond the constraint.

    time: Unix microseconds. where: its row, or its entry where no row is known. why: what it breaks, in words.
    """

    time: int
    where: str
    why: str

    def error(self) -> ConstraintBroken:
        """What is raised of it: the row, the time and the reason."""
        when = datetime.fromtimestamp(self.time / MICROSECONDS, UTC).isoformat()
        return ConstraintBroken(
            f"{self.where}, at {when}: {self.why}, which the guarantee does not count with; "
            "what was released before still holds, and nothing was drawn for this period"
        )


def admitted(changelog: Changelog, constraint: Constraint, fixed: bool = False) -> Mask:
    """Which mutations keep to the constraint, shape (mutations,).

    constraint: what entries promise. fixed: they also promise never to hold two different answers.
    """
    entry = changelog.entry
    first = np.ones(len(entry), np.bool_)
    first[1:] = entry[1:] != entry[:-1]
    began = np.maximum.accumulate(np.where(first, np.arange(len(entry)), 0))
    ok = _within(constraint, np.arange(len(entry)) - began, changelog.time - changelog.time[began])
    return ok & _same_answer(changelog, began) if fixed else ok


def first_breach(changelog: Changelog, constraint: Constraint, fixed: bool = False) -> Breach | None:
    """The earliest mutation that breaks the promise (arguments as of `admitted`), None where all keep to it."""
    bad = np.flatnonzero(~admitted(changelog, constraint, fixed))
    if not len(bad):
        return None
    at = int(bad[np.argmin(changelog.time[bad])])
    row = 0 if changelog.row is None else int(changelog.row[at])
    where = f"{changelog.unit} {row}" if row else f"entry {changelog.entries[changelog.entry[at]]!a}"
    broken = not admitted(changelog, constraint)[at]
    why = f"the entry breaks {constraint_in_words(constraint)}" if broken else "the entry holds a second answer"
    return Breach(int(changelog.time[at]), where, why)


def frozen(changelog: Changelog, constraint: Constraint, fixed: bool = False) -> Changelog:
    """The changelog with each entry left as it was before its first mutation that breaks the promise.

    Arguments as of `admitted`. What is left keeps to the promise.
    """
    ok = admitted(changelog, constraint, fixed)
    first = np.ones(len(ok), np.bool_)
    first[1:] = changelog.entry[1:] != changelog.entry[:-1]
    stopped = np.cumsum(~ok)
    began = np.maximum.accumulate(np.where(first, np.arange(len(ok)), 0))
    before = stopped[began]  # an entry's first mutation is always admitted
    return changelog.take(stopped == before)


def _within(constraint: Constraint, mutations: NDArray[np.int64], elapsed: NDArray[np.int64]) -> Mask:
    match constraint:
        case AtMost(k):
            return mutations < k
        case TimeBounded(seconds):
            return elapsed <= seconds * MICROSECONDS
        case AtMostWithin(k, seconds):
            return (mutations < k) & (elapsed <= seconds * MICROSECONDS)
        case Hybrid(classes):
            kept: Mask = np.any([_within(each, mutations, elapsed) for each in classes], axis=0)
            return kept
    raise TypeError(f"no guard for a {type(constraint).__name__}")


def _same_answer(changelog: Changelog, began: NDArray[np.int64]) -> Mask:
    """An entry's first row is its insertion, so that is its answer."""
    same: Mask = (changelog.state == 0) | (changelog.state == changelog.state[began])
    return same


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
