"""Changelogs of a population: the mutations of many entries, in columns that can be replayed to any time.

All readers make one of rows that they checked one by one; the last check is here, on columns, so that all refuse the
same rows in the same words: an entry's times rise, its answers change, and the old answer is the one it holds. Times
are as people write them, Unix seconds or ISO 8601, UTC where it names no offset. An error never repeats a field: where
columns are swapped it is somebody's answer. Knows no files, no calendar and no constraint.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import BadChangelog

MICROSECONDS = 10**6
"""Microseconds in a second."""

Time: TypeAlias = datetime | float | str

LATEST = 253_402_300_800
"""The start of the year 10000, in Unix seconds. What is beyond it is most often meant as milliseconds."""

UNREADABLE = "its time is neither in ISO 8601 nor in Unix seconds"

SKIPPED = "its time does not exist in the time zone, where clocks went forward over it"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def is_date(text: str) -> bool:
    """Says if the text is a date in digits, such as 20260131, and no number of seconds."""
    return len(text) == 8 and text.isascii() and text.isdigit()


def microseconds(time: Time, zone: tzinfo = UTC) -> int:
    """A time in Unix microseconds.

    time: a datetime, Unix seconds, or either as text. Eight digits are a date, 20260131, as a number too.
    zone: that of a time which names no offset. What happens twice as clocks go back is the first of both.
    Raises ValueError for what is no time, or is beyond the year 9999; the error does not repeat it.
    """
    if isinstance(time, int) and is_date(str(time)):
        time = str(time)
    if isinstance(time, str):
        time = _parsed(time)
    if isinstance(time, datetime):
        aware = time if time.tzinfo else time.replace(tzinfo=zone)
        since = (aware - _EPOCH) // _MICROSECOND
        if zone is not UTC and not time.tzinfo:
            back = (_EPOCH + since * _MICROSECOND).astimezone(zone)
            if back.replace(tzinfo=None, fold=0) != time.replace(fold=0):
                raise ValueError(SKIPPED)
        return since
    if time != time:
        raise ValueError(UNREADABLE)
    if not abs(time) < LATEST:
        raise ValueError("its time is beyond the year 9999 in Unix seconds; are these milliseconds?")
    return round(time * MICROSECONDS)


def _parsed(text: str) -> datetime | float:
    if "_" in text or text != text.strip():  # Python takes 1_0 for 10
        raise ValueError(UNREADABLE)
    if not is_date(text):
        try:
            return float(text)
        except ValueError:
            pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(UNREADABLE) from None


States = NDArray[np.uint16 | np.uint32]
"""States of entries, of 16 bits as long as these tell all states apart."""


@dataclass(frozen=True, slots=True, eq=False)
class Mutations:
    """Mutations, sorted by time, then by entry. All columns are of shape (mutations,).

    entry: which entry mutates, numbered from 0.
    time: when, in Unix microseconds.
    old, new: the states before and after, 0 being NULL; they differ.
    row: the number of the row that the mutation was read from, 0 if it was read from none.
    """

    entry: NDArray[np.int64]
    time: NDArray[np.int64]
    old: States
    new: States
    row: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, rows: slice) -> "Mutations":
        return Mutations(self.entry[rows], self.time[rows], self.old[rows], self.new[rows], self.row[rows])

    def by_period(self, start: int, period: int, periods: int) -> Iterator["Mutations"]:
        """The mutations of each period (start + (i-1)·W, start + i·W], i = 1 to `periods`, one period after another.

        start: Unix seconds; mutations up to then are in the first period. period: W, in seconds.
        """
        return self.by_end((start + period * np.arange(1, periods + 1, dtype=np.int64)) * MICROSECONDS)

    def by_end(self, ends: NDArray[np.int64]) -> Iterator["Mutations"]:
        """The mutations until each of the times, and after the one before. ends: Unix microseconds, rising."""
        at = 0
        for until in np.searchsorted(self.time, ends, side="right").tolist():
            yield self[at:until]
            at = until

    def histogram_changes(self, answers: int, bounds: Sequence[int]) -> NDArray[np.int64]:
        """The change of the number of entries in each state 0..z over each node (bounds[i], bounds[i+1]].

        answers: z. bounds: Unix seconds, rising; mutations before the first are in the first node.
        Returns shape (nodes, z + 1). Rows add up to 0, as an entry without an answer counts as NULL.
        """
        d, nodes = answers + 1, len(bounds) - 1
        ends = np.asarray(bounds[1:], np.int64) * MICROSECONDS
        node = np.searchsorted(ends, self.time)
        inside = node < nodes
        cell = node[inside] * d
        gained = np.bincount(cell + self.new[inside], minlength=nodes * d)
        lost = np.bincount(cell + self.old[inside], minlength=nodes * d)
        changes: NDArray[np.int64] = (gained - lost).reshape(nodes, d)
        return changes


@dataclass(frozen=True, slots=True, eq=False)
class Changelog:
    """The mutations of a population, sorted by entry, then time.

    answers: the names of the states 1..z; state 0 is NULL.
    entries: the names of the entries, in order of first appearance.
    entry: which entry mutates, numbered from 0, shape (mutations,).
    time: when it mutates, in Unix microseconds, shape (mutations,).
    state: the state that it is in from then on, shape (mutations,).
    row: the number of the row that the mutation was read from, 0 if it was read from none, shape (mutations,);
    None if no mutation was read from a row.
    unit: what errors call a row; "line" of a text file.
    owner: whose each entry is, numbered from 0, shape (entries,); None if nobody asked.
    """

    answers: tuple[str, ...]
    entries: tuple[str, ...]
    entry: NDArray[np.int64]
    time: NDArray[np.int64]
    state: States
    row: NDArray[np.int64] | None = None
    unit: str = "row"
    owner: NDArray[np.int64] | None = None

    def before(self) -> States:
        """The state that the entry was in before each mutation, shape (mutations,)."""
        first = np.ones(len(self), np.bool_)
        first[1:] = self.entry[1:] != self.entry[:-1]
        old = np.roll(self.state, 1)
        old[first] = 0
        return old

    def mutations(self) -> Mutations:
        """All mutations (entry, time, old -> new), by time, then entry."""
        order = np.argsort(self.time, kind="stable")
        row = np.zeros(len(self), np.int64) if self.row is None else self.row
        return Mutations(self.entry[order], self.time[order], self.before()[order], self.state[order], row[order])

    def states_at(self, times: Sequence[float]) -> States:
        """The state of every entry at each of the times, mutations at the time itself included.

        times: Unix seconds, rising. Returns shape (entries, times). Raises ValueError if the times do not rise.
        """
        asked = np.array([round(time * MICROSECONDS) for time in times], np.int64)
        if np.any(asked[1:] <= asked[:-1]):
            raise ValueError("the times of a replay must rise")
        column = np.searchsorted(asked, self.time)
        seen = column < len(asked)
        # Rows of an entry are in order of time: of several in one cell numpy keeps the last, and the last
        # row so far is the highest.
        last_row = np.zeros((len(self.entries), len(asked)), np.int32)
        last_row[self.entry[seen], column[seen]] = np.flatnonzero(seen) + 1
        np.maximum.accumulate(last_row, axis=1, out=last_row)
        return np.concatenate([np.zeros(1, self.state.dtype), self.state])[last_row]

    def since(self, time: int) -> "Changelog":
        """The changelog from a time on. An answer that an entry holds by then is inserted at that time.

        time: Unix seconds.
        """
        held = self.states_at([time])[:, 0]
        inserted = np.flatnonzero(held)
        later = self.take(self.time > time * MICROSECONDS)
        merged = replace(
            self,
            entry=np.concatenate([inserted, later.entry]),
            time=np.concatenate([np.full(len(inserted), time * MICROSECONDS), later.time]),
            state=np.concatenate([held[inserted], later.state]),
            row=None if later.row is None else np.concatenate([np.zeros(len(inserted), np.int64), later.row]),
        )
        return merged.take(np.argsort(merged.entry, kind="stable"))

    def mutating(self) -> "Changelog":
        """The changelog without rows that leave an answer as it was."""
        return self.take(self.state != self.before())

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> "Changelog":
        """The changelog of only some mutations; its entries and answers are the same.

        rows: which ones, as a mask of shape (mutations,) or by number.
        """
        row = None if self.row is None else self.row[rows]
        return replace(self, entry=self.entry[rows], time=self.time[rows], state=self.state[rows], row=row)

    def __len__(self) -> int:
        return len(self.time)


ANSWER = "answer"
FORMS = "entry,time,answer or entry,time,old,new"


@dataclass(frozen=True, slots=True)
class Columns:
    """Whose answers a changelog is made of.

    answer: the column of the answers. Of any but `answer`, a row may leave the value as it was, as it then tells of
    another column; such rows are no mutations. owner: a column that says whose an entry is, None if nobody asks.
    zone: that of times which name no offset. late: rows may stand behind later ones of their entry, and leave its
    answer as it was; all of them are kept, in order of time.
    """

    answer: str = ANSWER
    owner: str | None = None
    zone: tzinfo = UTC
    late: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """The places of the columns in a row. old: None where rows do not say it. owner: None where nobody asks."""

    entry: int
    time: int
    answer: int
    old: int | None = None
    owner: int | None = None

    @property
    def places(self) -> list[int]:
        """All of them."""
        return [place for place in (self.entry, self.time, self.answer, self.old, self.owner) if place is not None]


def form_of(names: Sequence[str], columns: Columns) -> Form:
    """The places of the columns that are asked for. names: the header of the table.

    Raises BadChangelog, which names the header's columns only if it is one: else they may be answers.
    """
    answer, old = columns.answer, None
    if answer == ANSWER and answer not in names and {"old", "new"} <= set(names):
        answer, old = "new", "old"
    wanted = ["entry", "time", answer, *([] if old is None else [old])]
    wanted += [] if columns.owner is None or columns.owner in wanted else [columns.owner]
    if any(names.count(name) != 1 for name in wanted):
        raise BadChangelog(_wrong(names, columns))
    place = names.index
    owner = None if columns.owner is None else place(columns.owner)
    return Form(place("entry"), place("time"), place(answer), None if old is None else place(old), owner)


def _wrong(names: Sequence[str], columns: Columns) -> str:
    expected = f"the columns must be {FORMS}"
    if columns.answer != ANSWER:
        expected = f"the columns must be entry,time,{columns.answer}"
    if not {"entry", "time"} & {name.strip() for name in names}:
        return f"{expected}; there is no such header, separated by commas"
    if columns.owner is not None and columns.owner not in names:
        expected = f"there must be a column {columns.owner!a}, and {expected}"
    return f"{expected}, got {','.join(names)!a}"


ABSENT = -1
"""Stands for the old state of a row whose old answer is no state."""


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Rows as they came, in columns of shape (rows,), each of them checked by itself.

    names: the names of the states 1, 2, …; state 0 is NULL.
    entries: the names of the entries.
    entry: the row's entry, numbered from 0.
    time: Unix microseconds.
    state: the state that the entry is in from then on.
    old: the state that the row says it was in before, ABSENT if that is no state; None if rows do not say it.
    number: the number by which errors name the row.
    owner: whose the row's entry is, numbered from 0; None if nobody asked.
    """

    names: Sequence[str]
    entries: tuple[str, ...]
    entry: NDArray[np.int64]
    time: NDArray[np.int64]
    state: NDArray[np.int64]
    old: NDArray[np.int64] | None
    number: NDArray[np.int64]
    owner: NDArray[np.int64] | None = None


def in_order(
    rows: Encoded,
    unit: str,
    answers: Sequence[str] | None,
    columns: Columns = Columns(),
) -> Changelog:
    """The changelog that the rows make together.

    unit: what errors call a row.
    answers: what `rows.names` are, if the answers were given; they then keep their order, and else are sorted.
    columns: where the rows' answers are from.
    Raises BadChangelog, which names the first bad row.
    """
    if not len(rows.number):
        raise BadChangelog(f"{unit} 1: there is not one mutation")
    names = list(rows.names) if answers is not None else sorted(rows.names)
    code = {name: state for state, name in enumerate(["", *names])}
    numbers = [code[name] for name in ["", *rows.names]]
    recode: States = np.array(numbers, np.uint16) if len(names) < 2**16 else np.array(numbers, np.uint32)
    order = np.lexsort((rows.time, rows.entry)) if columns.late else np.argsort(rows.entry, kind="stable")
    entry, time, number = rows.entry[order], rows.time[order], rows.number[order]
    state = recode[rows.state[order]]
    owner = None if rows.owner is None else _of_entries(rows, rows.owner, unit, columns.owner)
    changelog = Changelog(tuple(names), rows.entries, entry, time, state, number, unit, owner)
    stated = None
    if rows.old is not None and not columns.late:
        stated = np.where(rows.old < 0, ABSENT, recode[np.maximum(rows.old, 0)].astype(np.int64))[order]
    lenient = columns.late or columns.answer != ANSWER
    _check(changelog, number, unit, stated, lenient)
    return changelog.mutating() if lenient and not columns.late else changelog


def _of_entries(rows: Encoded, owner: NDArray[np.int64], unit: str, column: str | None) -> NDArray[np.int64]:
    """Whose each entry is. Raises BadChangelog, which names the first row that contradicts an earlier one."""
    entries, first = np.unique(rows.entry, return_index=True)
    of_entries = np.zeros(len(rows.entries), np.int64)
    of_entries[entries] = owner[first]
    if bad := np.flatnonzero(owner != of_entries[rows.entry])[:1].tolist():
        raise BadChangelog(f"{unit} {rows.number[bad[0]]}: an earlier row of its entry has another {column}")
    return of_entries


def _check(
    changelog: Changelog,
    number: NDArray[np.int64],
    unit: str,
    stated: NDArray[np.int64] | None,
    lenient: bool,
) -> None:
    entry, state, before = changelog.entry, changelog.state, changelog.before()
    first = np.concatenate([[True], entry[1:] != entry[:-1]])
    passed = np.concatenate([[1], np.diff(changelog.time)])
    faults = [
        (~first & (passed < 0), "its time is before the entry's previous row"),
        (~first & (passed == 0), "it has the same entry and time as an earlier row"),
    ]
    if not lenient:
        faults += [
            ((state == 0) & (before == 0), "it deletes an entry that has no answer"),
            ((state != 0) & (state == before), "it repeats the entry's answer, so it is no mutation"),
        ]
    if stated is not None:
        faults.append((stated != before, "its old answer is not what the entry holds"))
    first_rows = [(int(number[bad].min()), fault) for bad, fault in faults if bad.any()]
    if first_rows:
        row, fault = min(first_rows, key=lambda pair: pair[0])
        raise BadChangelog(f"{unit} {row}: {fault}")


def unknown_answer(answers: Sequence[str]) -> str:
    """The fault of a row whose answer is none of those that are allowed; does not repeat it."""
    return f"unknown answer; the answers are {', '.join(answers)}"


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
