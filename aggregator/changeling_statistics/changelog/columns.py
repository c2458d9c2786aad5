"""Changelogs of a population: the mutations of many entries, in columns, checked and replayable.

From CSV, Parquet, frames of polars or pandas, or rows, with the columns `entry,time,answer` (the entry's answer
from that time on; an empty one deletes the entry) or `entry,time,old,new`. Every error names the row. Knows no
calendar and no constraint.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadChangelog
from .mutations import Mutations
from .times import MICRO, Time


@dataclass(frozen=True, slots=True, eq=False)
class Changelog:
    """The mutations of a population, sorted by entry, then time.

    answers: names of the states 1..z; state 0 is NULL. entries: their names, in order of first appearance.
    entry: the mutation's entry, numbered from 0. time: Unix microseconds. state: what the entry is in from
    that time on. row: the number of the row it was read from, 0 where it was not; None if no mutation was. unit:
    what rows are called, "line" of a file. The columns have shape (mutations,).
    """

    answers: tuple[str, ...]
    entries: tuple[str, ...]
    entry: NDArray[np.int64]
    time: NDArray[np.int64]
    state: NDArray[np.uint16]
    row: NDArray[np.int64] | None = None
    unit: str = "row"

    @classmethod
    def from_csv(cls, path: Path, answers: Sequence[str] | None = None) -> "Changelog":
        """The changelog in a file, .csv or .csv.gz, in UTF-8.

        Times are Unix seconds, or ISO 8601, UTC where they name no offset. Rows of several entries may be
        mixed; the times of one entry rise strictly, every row changes its answer, and `old`, where there is
        such a column, is the answer it had. answers: the only ones allowed, in their order; without them those
        of the file, sorted. Raises BadChangelog, which names the file and the line.
        """
        from .csv_files import read_csv

        return _naming(path, lambda: read_csv(path, answers))

    @classmethod
    def from_parquet(cls, path: Path, answers: Sequence[str] | None = None) -> "Changelog":
        """The changelog in a Parquet file, checked in the same way; errors name the file and number rows from 1."""
        from .frames import read_parquet

        return _naming(path, lambda: read_parquet(path, answers))

    @classmethod
    def from_frame(cls, frame: Any, answers: Sequence[str] | None = None) -> "Changelog":
        """The changelog in a frame of polars or pandas, checked in the same way; errors number rows from 1.

        Times may be datetimes or dates too. Answers and entries of any kind count as their text, null as NULL.
        """
        from .frames import read_frame

        return read_frame(frame, answers)

    @classmethod
    def from_rows(
        cls, rows: Iterable[tuple[str, Time, str | None]], answers: Sequence[str] | None = None
    ) -> "Changelog":
        """The changelog of rows (entry, time, answer), checked in the same way; errors number rows from 1."""
        from .rows import Row, read_rows

        numbered = (Row(i, entry, time, answer or "", None) for i, (entry, time, answer) in enumerate(rows, 1))
        return read_rows(numbered, "row", answers)

    def before(self) -> NDArray[np.uint16]:
        """The state that each mutation ends: old where `state` is new; shape (mutations,)."""
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
            row=None if later.row is None else np.concatenate([np.zeros(len(inserted), np.int64), later.row]),
        )
        return merged.take(np.argsort(merged.entry, kind="stable"))

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> "Changelog":
        """The mutations chosen by a mask or by number, of the same entries and answers."""
        row = None if self.row is None else self.row[rows]
        return replace(self, entry=self.entry[rows], time=self.time[rows], state=self.state[rows], row=row)

    def __len__(self) -> int:
        return len(self.time)


def _naming(path: Path, read: Any) -> Changelog:
    try:
        changelog: Changelog = read()
    except BadChangelog as error:
        raise BadChangelog(f"{path.name}, {error}") from error
    return changelog
