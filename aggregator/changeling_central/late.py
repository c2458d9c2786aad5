"""Rows that come late, for periods that are published already: they stop a release, are dropped, or are shifted.

*Stop*: the changelog differs from what was released, so nothing more is drawn. *Drop*: a late row counts nowhere.
*Shift*: it counts from the first moment that is not yet published; where a later row of its entry was in time, it is
overtaken and counts nowhere. Either way what was published stays as it is, and whether a row is late follows from when
its own entry's rows came and when periods are published, so an entry decides over no other entry's rows. What counts of
an entry is a part of its rows in their order: it mutates no more often than they do, though a shifted row may lie
further from the first. The guard looks at what counts.

A release that drops or shifts keeps a hash of every row in its published periods, and what became of each late one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b

import numpy as np
from changeling_statistics import Changelog, Indices
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
NOWHERE = -1


class Late(StrEnum):
    """What is done with rows that come late."""

    STOP = "stop"
    DROP = "drop"
    SHIFT = "shift"

    @property
    def words(self) -> str:
        """What a reader of the release is told."""
        return {
            Late.STOP: "a row that comes after its period stops the release",
            Late.DROP: "rows that come after their period was published are left out",
            Late.SHIFT: "rows that come after their period was published count from the next one on",
        }[self]


def late_of(text: str | None) -> Late:
    """What is asked for; to stop, where nobody says. ValueError for anything else."""
    try:
        return Late(text or "stop")
    except ValueError:
        raise ValueError(f"--late is stop, drop or shift, got {text!r}") from None


@dataclass(frozen=True, slots=True)
class SeenRows:
    """What a release knows of the rows in its published periods.

    rows: their hashes, 8 bytes each. moved: of each that came late its hash, and the time that it counts from in Unix
    microseconds, or NOWHERE.
    """

    rows: bytes = b""
    moved: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """The rows of a changelog as they are to be counted.

    counted: what is released. time: of all rows, rising, in Unix microseconds. hashes: of the same. moved: as of
    `SeenRows`. late: how many rows came late since the last run. overtaken: how many of these count nowhere.
    """

    counted: Changelog
    time: Indices
    hashes: Hashes
    moved: tuple[tuple[int, int], ...]
    late: int
    overtaken: int

    def seen(self, until: int) -> SeenRows:
        """What is known once the periods until this time, in Unix microseconds, are published."""
        rows = self.hashes[: np.searchsorted(self.time, until, side="right")]
        return SeenRows(rows.tobytes(), self.moved)

    def said(self, late: Late, since: str) -> str:
        """What the curator is told of the late rows. since: when those that are shifted count from."""
        rows = f"{self.late:,} row{' comes' if self.late == 1 else 's come'} late, for periods that are published"
        if late == Late.DROP:
            return f"{rows}: left out (--late drop)"
        overtaken = f"; {self.overtaken:,} of them nowhere, as a later row of the same entry was in time"
        return f"{rows}: counted from {since} on (--late shift)" + overtaken * bool(self.overtaken)


def arrived(log: Changelog, late: Late, until: int | None, seen: SeenRows) -> Arrivals:
    """The rows of a changelog, of which those that are new in published periods are late.

    log: all rows, by entry and time, those that leave an answer as it was included. until: the end of the last period
    that is published, in Unix microseconds; None before there is one.
    """
    hashes = _hashes(log)
    past = np.zeros(len(log), np.bool_) if until is None else log.time <= until
    came_late = past & ~np.isin(hashes, np.frombuffer(seen.rows, np.uint64))
    shifted = np.zeros(len(log), np.bool_)
    if late == Late.SHIFT:
        following = np.zeros(len(log), np.bool_)
        following[:-1] = (log.entry[1:] == log.entry[:-1]) & past[1:]
        shifted = came_late & ~following
    time = np.where(came_late, NOWHERE, log.time)
    time[shifted] = (until or 0) + 1
    for key, at in seen.moved:
        time[hashes == key] = at
    moved = [*seen.moved, *zip(hashes[came_late].tolist(), time[came_late].tolist(), strict=True)]
    order = np.lexsort((time, log.entry))
    counted = replace(log, time=time).take(order[time[order] != NOWHERE]).mutating()
    by_time = np.argsort(log.time, kind="stable")
    overtaken = int(came_late.sum() - shifted.sum())
    return Arrivals(counted, log.time[by_time], hashes[by_time], tuple(moved), int(came_late.sum()), overtaken)


def _hashes(log: Changelog) -> Hashes:
    """A hash of each row's entry, time and answer, by their names, whose numbers may change as a file grows."""
    entries, answers = _of_names(log.entries)[log.entry], _of_names(["", *log.answers])[log.state]
    return _mixed(entries + _mixed(log.time.astype(np.uint64) + _mixed(answers)))


def _of_names(names: Sequence[str]) -> Hashes:
    digests = b"".join(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, np.uint64)


def _mixed(numbers: Hashes) -> Hashes:
    """SplitMix64's finalizer: every bit of a number moves half of the bits of the result."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
