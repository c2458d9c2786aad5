"""Changelogs of a population: the mutations of many entries, in columns that can be replayed to any time.

Times are as people write them, Unix seconds or ISO 8601, UTC where it names no offset. An error never repeats a field:
where columns are swapped it is somebody's answer. Knows no files, no calendar and no constraint.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from numbers import Integral, Real
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

MICROSECONDS = 10**6
"""Microseconds in a second."""

Time: TypeAlias = datetime | float | str

LATEST = 253_402_300_800
"""The start of the year 10000, in Unix seconds. What is beyond it is most often meant as milliseconds."""

UNREADABLE = "its time is neither in ISO 8601, such as 2027-03-31 or 2027-03-31T12:00:00Z, nor in Unix seconds"

NO_YEAR = "its datetime is not within the years 1 to 9999"
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
    if isinstance(time, bool) or not isinstance(time, datetime | str | Real):
        raise ValueError(UNREADABLE)
    if isinstance(time, Integral) and is_date(str(time)):
        time = str(time)
    if isinstance(time, str):
        time = _parsed(time)
    if isinstance(time, datetime):
        aware = time if time.tzinfo else time.replace(tzinfo=zone)
        since = (aware - _EPOCH) // _MICROSECOND
        if zone is not UTC and not time.tzinfo:
            try:
                back = (_EPOCH + since * _MICROSECOND).astimezone(zone)
            except OverflowError:
                raise ValueError(NO_YEAR) from None
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
