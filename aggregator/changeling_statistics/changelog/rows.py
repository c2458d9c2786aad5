"""The reader of rows, one at a time: slow, but it tells exactly what is wrong with a row."""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import BadChangelog
from .changelog import ABSENT, Changelog, Columns, Encoded, Time, in_order, microseconds, unknown_answer


class ChangelogRow(NamedTuple):
    """A row of a changelog.

    number: the number by which errors name it.
    entry: the entry's name.
    time: as people write it.
    answer: what the entry answers from then on; "" for NULL.
    old: what it answered before, "" for NULL; None if the row does not say.
    owner: whose the entry is; None if nobody asked.
    """

    number: int
    entry: str
    time: Time
    answer: str
    old: str | None
    owner: str | None = None


def changelog_of_rows(
    rows: Iterable[ChangelogRow],
    unit: str,
    answers: Sequence[str] | None,
    columns: Columns = Columns(),  # noqa: B008 frozen
) -> Changelog:
    """The changelog of rows in any order of entries, an entry's own rows in order of time.

    unit: what errors call a row. answers: the only ones allowed, in their order; None to sort those that occur.
    columns: where the rows' answers are from.
    Raises BadChangelog, which names the first bad row.
    """
    entries: dict[str, int] = {}
    owners: dict[str, int] = {}
    states = {name: state for state, name in enumerate(["", *(answers or [])])}
    entry, time, state, numbers, olds = array("q"), array("q"), array("q"), array("q"), array("q")
    owned = array("q")
    for row in rows:
        try:
            if not row.entry:
                raise ValueError("the entry has no name")
            if row.owner == "":
                raise ValueError(f"it has no {columns.owner}")
            if row.answer not in states and answers is not None:
                raise ValueError(unknown_answer(answers))
            time.append(microseconds(row.time, columns.zone))
        except ValueError as error:
            raise BadChangelog(f"{unit} {row.number}: {error}") from error
        entry.append(entries.setdefault(row.entry, len(entries)))
        if row.owner is not None:
            owned.append(owners.setdefault(row.owner, len(owners)))
        if row.old is not None:
            olds.append(states.get(row.old, ABSENT))
        state.append(states.setdefault(row.answer, len(states)))
        numbers.append(row.number)
    encoded = Encoded(
        names=list(states)[1:],
        entries=tuple(entries),
        entry=np.asarray(entry),
        time=np.asarray(time),
        state=np.asarray(state),
        old=np.asarray(olds) if len(olds) else None,
        number=np.asarray(numbers),
        owner=np.asarray(owned) if len(owned) else None,
    )
    return in_order(encoded, unit, answers, columns)


def swallows_rows(row: Sequence[str], is_row: Callable[[Sequence[str]], bool]) -> bool:
    """True if a quote that nobody closed took the rows behind it into a field, up to the next quote, without an error.

    Text of several lines is good CSV. So the lines of a field are looked at: one that has as many fields as the row
    itself, and could be a row, was swallowed.

    row: as it was read. is_row: says of the fields of such a line whether they could be a row.
    """
    lines = (line for field in row if "\n" in field for line in field.split("\n")[1:])
    return any(
        len(fields) == len(row) and is_row(fields) for fields in (line.rstrip("\r").split(",") for line in lines)
    )
