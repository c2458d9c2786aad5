"""Changelogs of a population: the mutations of many entries, in columns, checked and replayable.

Read from CSV with the columns `entry,time,answer`: the entry's answer from that time on; an empty answer
deletes the entry. Every error names the line. Knows no calendar and no constraint.
"""

import csv
import gzip
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO, TypeAlias

import numpy as np
from changeling_protocol.randomizers.spaces import MOST_ANSWERS
from numpy.typing import NDArray

from .errors import BadChangelog

COLUMNS = ("entry", "time", "answer")
MICRO = 10**6

Time: TypeAlias = datetime | float | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = 253_402_300_800
"""The year 10000 in Unix seconds: times beyond it are most often milliseconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Changelog:
    """The mutations of a population, sorted by entry, then time.

    answers: names of the states 1..z; state 0 is NULL. entries: their names, in order of first appearance.
    entry: the mutation's entry, numbered from 0. time: Unix microseconds. state: what the entry is in from
    that time on. The three columns have shape (mutations,).
    """

    answers: tuple[str, ...]
    entries: tuple[str, ...]
    entry: NDArray[np.int64]
    time: NDArray[np.int64]
    state: NDArray[np.uint16]

    @classmethod
    def from_csv(cls, path: Path, answers: Sequence[str] | None = None) -> "Changelog":
        """The changelog in a file, .csv or .csv.gz, in UTF-8.

        Times are Unix seconds, or ISO 8601, UTC where they name no offset. Rows of several entries may be
        mixed; the times of one entry rise strictly, and every row changes its answer. answers: the only ones
        allowed, in their order; without them those of the file, sorted.
        Raises BadChangelog, which names the file and the line.
        """
        try:
            with _opened(path) as file:
                return _in_order(_encoded(_rows(file), "line", answers), "line")
        except BadChangelog as error:
            raise BadChangelog(f"{path.name}, {error}") from error

    @classmethod
    def from_rows(
        cls, rows: Iterable[tuple[str, Time, str | None]], answers: Sequence[str] | None = None
    ) -> "Changelog":
        """The changelog of rows (entry, time, answer), checked in the same way; errors number rows from 1."""
        numbered = ((i, entry, time, answer or "") for i, (entry, time, answer) in enumerate(rows, 1))
        return _in_order(_encoded(numbered, "row", answers), "row")

    def states_at(self, times: Sequence[float]) -> NDArray[np.uint16]:
        """The state of every entry at each of the times, mutations at the time itself included.

        times: Unix seconds, rising. Returns shape (entries, times).
        """
        asked = np.array([round(time * MICRO) for time in times], np.int64)
        if np.any(asked[1:] <= asked[:-1]):
            raise ValueError("the times of a replay must rise")
        column = np.searchsorted(asked, self.time)
        seen = column < len(asked)
        # Rows of an entry are in order of time: of several in one cell numpy keeps the last, and the last
        # row so far is the highest.
        last_row = np.zeros((len(self.entries), len(asked)), np.int32)
        last_row[self.entry[seen], column[seen]] = np.flatnonzero(seen) + 1
        np.maximum.accumulate(last_row, axis=1, out=last_row)
        return np.concatenate([np.zeros(1, np.uint16), self.state])[last_row]

    def since(self, time: int) -> "Changelog":
        """The changelog from a time on, in Unix seconds: what an entry holds by then is inserted at that time."""
        held = self.states_at([time])[:, 0]
        inserted = np.flatnonzero(held)
        later = self.take(self.time > time * MICRO)
        merged = replace(
            self,
            entry=np.concatenate([inserted, later.entry]),
            time=np.concatenate([np.full(len(inserted), time * MICRO), later.time]),
            state=np.concatenate([held[inserted], later.state]),
        )
        return merged.take(np.argsort(merged.entry, kind="stable"))

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> "Changelog":
        """The mutations chosen by a mask or by number, of the same entries and answers."""
        return replace(self, entry=self.entry[rows], time=self.time[rows], state=self.state[rows])

    def __len__(self) -> int:
        return len(self.time)


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")


def _rows(file: TextIO) -> Iterator[tuple[int, str, str, str]]:
    """(line, entry, time, answer) of every row. A row of several lines is named by its first."""
    reader = csv.reader(file, strict=True)
    line = 1
    try:
        header = next(reader, [])
        if not header:
            raise BadChangelog("line 1: the file is empty; it must open with entry,time,answer")
        if sorted(header) != sorted(COLUMNS):
            raise BadChangelog(f"line 1: the columns must be entry,time,answer, got {','.join(header)!a}")
        entry, time, answer = map(header.index, COLUMNS)
        line = reader.line_num + 1
        for row in reader:
            if row:
                if len(row) != len(COLUMNS):
                    raise BadChangelog(f"line {line}: a row has {len(COLUMNS)} columns, this one {len(row)}")
                if not all(map(_is_unicode, row)):
                    raise BadChangelog(f"line {line}: not UTF-8")
                yield line, row[entry], row[time], row[answer]
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadChangelog(f"line {line}: not CSV: {error}") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadChangelog(f"line {line}: the compressed file is cut or damaged here") from error


def _is_unicode(field: str) -> bool:
    return field.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in field)


def _encoded(
    rows: Iterable[tuple[int, str, Time, str]], unit: str, answers: Sequence[str] | None
) -> tuple[Changelog, NDArray[np.int64]]:
    """Rows as columns, in their own order, and the number of each; checks what a row alone can show."""
    entries: dict[str, int] = {}
    states = {name: state for state, name in enumerate(["", *(answers or [])])}
    entry, time, state, numbers = array("q"), array("q"), array("q"), array("q")
    for number, who, when, what in rows:
        try:
            if not who:
                raise ValueError("the entry has no name")
            if what not in states and answers is not None:
                raise ValueError(f"unknown answer; the answers are {', '.join(answers)}")
            time.append(_microseconds(when))
        except ValueError as error:
            raise BadChangelog(f"{unit} {number}: {error}") from error
        entry.append(entries.setdefault(who, len(entries)))
        state.append(states.setdefault(what, len(states)))
        numbers.append(number)
    if not numbers:
        raise BadChangelog(f"{unit} 1: there is not one mutation")
    names = list(states)[1:] if answers is not None else sorted(list(states)[1:])
    if not 1 <= len(names) <= MOST_ANSWERS:
        raise BadChangelog(f"{unit} {numbers[-1]}: there must be 1 to {MOST_ANSWERS} answers, not {len(names)}")
    code = {name: state for state, name in enumerate(["", *names])}
    recoded = np.array([code[name] for name in states], np.uint16)[np.asarray(state)]
    columns = Changelog(tuple(names), tuple(entries), np.asarray(entry), np.asarray(time), recoded)
    return columns, np.asarray(numbers)


def _in_order(encoded: tuple[Changelog, NDArray[np.int64]], unit: str) -> Changelog:
    """The columns sorted by entry; checks what the rows of one entry show together."""
    columns, numbers = encoded
    order = np.argsort(columns.entry, kind="stable")
    columns, numbers = columns.take(order), numbers[order]
    entry, time, state = columns.entry, columns.time, columns.state
    first = np.concatenate([[True], entry[1:] != entry[:-1]])
    passed = np.concatenate([[1], np.diff(time)])
    before = np.where(first, 0, np.concatenate([[0], state[:-1]]))
    faults = [
        (~first & (passed < 0), "its time is before the entry's previous row"),
        (~first & (passed == 0), "it has the same entry and time as an earlier row"),
        ((state == 0) & (before == 0), "it deletes an entry that has no answer"),
        ((state != 0) & (state == before), "it repeats the entry's answer, so it is no mutation"),
    ]
    found = [(int(numbers[bad].min()), fault) for bad, fault in faults if bad.any()]
    if found:
        number, fault = min(found)
        raise BadChangelog(f"{unit} {number}: {fault}")
    return columns


def _microseconds(time: Time) -> int:
    """Unix microseconds of a datetime, of Unix seconds, or of either as text. Raises ValueError."""
    if isinstance(time, str):
        time = _parsed(time)
    if isinstance(time, datetime):
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MICROSECOND
    if not abs(time) < _LATEST:
        raise ValueError(f"{time} is not a time in Unix seconds; are these milliseconds?")
    return round(time * MICRO)


def _parsed(text: str) -> datetime | float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!a} is not a time in ISO 8601 or Unix seconds") from None
