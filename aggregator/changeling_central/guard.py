"""The data against what was promised of them: which mutations keep to the constraint, and what the curator is told.

A guarantee speaks of entries that keep to the constraint. The guard stops a release before the first period that holds
a mutation beyond it, and names its row. That a release stopped is itself no private fact: where entries may break
the constraint and that must not show, freeze them (`frozen`), as the devices of the local model do. What is told of
the data is not private: it goes to whoever runs the release, never into what is published.

Rows that come late, for periods that are published already, stop a release, are dropped, or are shifted. *Stop*: the
changelog differs from what was released, so nothing more is drawn. *Drop*: a late row counts nowhere. *Shift*: it
counts from the first moment that is not yet published; where a later row of its entry was in time, it is overtaken and
counts nowhere. Either way what was published stays as it is, and whether a row is late follows from when its own
entry's rows came and when periods are published, so an entry decides over no other entry's rows. What counts of an
entry is a part of its rows in their order: it mutates no more often than they do, though a shifted row may lie further
from the first. The guard looks at what counts. A release that drops or shifts keeps a hash of every row in its
published periods, and what became of each late one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b

import numpy as np
from changeling_protocol import AtMost, AtMostWithin, Calendar, Constraint, Hybrid, TimeBounded
from changeling_statistics import MICROSECONDS, Changelog, Counts, Floats, Indices, constraint_in_words
from numpy.typing import NDArray

from .dates import bounds_of, local_instant, zone_name
from .errors import ConstraintBroken
from .linear_query import LinearQuery
from .queries import names_in, numbers_of

Hashes = NDArray[np.uint64]
NOWHERE = -1


class Late(StrEnum):
    """Ways to treat rows that come late."""

    STOP = "stop"
    DROP = "drop"
    SHIFT = "shift"

    @property
    def words(self) -> str:
        """The sentence that tells a reader of the release."""
        return {
            Late.STOP: "a row that comes after its period stops the release",
            Late.DROP: "rows that come after their period was published are left out",
            Late.SHIFT: "rows that come after their period was published count from the next one on",
        }[self]


def late_of(text: str | None) -> Late:
    """The way that is asked for; to stop, where nobody says. ValueError for anything else."""
    try:
        return Late(text or "stop")
    except ValueError:
        raise ValueError(f"--late is stop, drop or shift, got {text!r}") from None


@dataclass(frozen=True, slots=True)
class SeenRows:
    """The rows in published periods that a release has seen.

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
        """The rows seen once the periods until this time, in Unix microseconds, are published."""
        rows = self.hashes[: np.searchsorted(self.time, until, side="right")]
        return SeenRows(rows.tobytes(), self.moved)

    def said(self, late: Late, since: str) -> str:
        """Tells the curator of the late rows. since: when those that are shifted count from."""
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


Mask = NDArray[np.bool_]
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Breach:
    """A mutation beyond the constraint.

    time: Unix microseconds. where: its row, or its entry where no row is known. why: what it breaks, in words. at: its
    place among the mutations.
    """

    time: int
    where: str
    why: str
    at: int

    def error(self) -> ConstraintBroken:
        """The error that is raised for it: the row, the time and the reason."""
        when = datetime.fromtimestamp(self.time / MICROSECONDS, UTC).isoformat()
        return ConstraintBroken(
            f"{self.where}, at {when}: {self.why}, which the guarantee does not count with; "
            "what was released before still holds, and nothing was drawn for this period"
        )


def _first_of_entry(entry: Indices) -> Indices:
    """Where the rows of each row's entry begin."""
    first = np.ones(len(entry), np.bool_)
    first[1:] = entry[1:] != entry[:-1]
    began: Indices = np.maximum.accumulate(np.where(first, np.arange(len(entry)), 0))
    return began


def admitted(changelog: Changelog, constraint: Constraint, fixed: bool = False) -> Mask:
    """Mask of the mutations that keep to the constraint, shape (mutations,).

    constraint: what entries promise. fixed: they also promise never to hold two different answers.
    """
    began = _first_of_entry(changelog.entry)
    ok = _within(constraint, np.arange(len(began)) - began, changelog.time - changelog.time[began])
    if not fixed:
        return ok
    same: Mask = (changelog.state == 0) | (changelog.state == changelog.state[began])  # the first row inserts
    return ok & same


def first_breach(changelog: Changelog, constraint: Constraint, fixed: bool = False) -> Breach | None:
    """The earliest mutation that breaks the promise (arguments as of `admitted`), None where all keep to it."""
    breach = _earliest(changelog, ~admitted(changelog, constraint, fixed), "the entry holds a second answer")
    if breach is None or admitted(changelog, constraint)[breach.at]:
        return breach
    return replace(breach, why=f"the entry breaks {constraint_in_words(constraint)}")


def _earliest(changelog: Changelog, bad: Mask, why: str) -> Breach | None:
    """The earliest of these mutations, None where there is none."""
    if not bad.any():
        return None
    rows = np.flatnonzero(bad)
    at = int(rows[np.argmin(changelog.time[rows])])
    row = 0 if changelog.row is None else int(changelog.row[at])
    where = f"{changelog.unit} {row}" if row else f"entry {changelog.entries[changelog.entry[at]]!a}"
    return Breach(int(changelog.time[at]), where, why, at)


def frozen(changelog: Changelog, constraint: Constraint, fixed: bool = False) -> Changelog:
    """The changelog with each entry left as it was before its first mutation that breaks the promise.

    Arguments as of `admitted`. What is left keeps to the promise.
    """
    stopped = np.cumsum(~admitted(changelog, constraint, fixed))
    before = stopped[_first_of_entry(changelog.entry)]  # an entry's first mutation is always admitted
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


def beyond(changelog: Changelog, most: int) -> Mask:
    """Mask of the mutations of entries beyond the `most` first of their person, shape (mutations,).

    Of entries that came at once the first by name, which stays so where a file is sorted anew.
    ValueError for a changelog that does not say whose the entries are.
    """
    if changelog.owner is None:
        raise ValueError("the changelog does not say whose the entries are")
    present, first = np.unique(changelog.entry, return_index=True)  # an entry's rows are in order of time
    owner, came = changelog.owner[present], changelog.time[first]
    place = np.empty(len(changelog.entries), np.int64)  # by name
    place[sorted(range(len(place)), key=changelog.entries.__getitem__)] = np.arange(len(place))
    order = np.lexsort((place[present], came, owner))
    surplus = np.zeros(len(changelog.entries), np.bool_)
    surplus[present[order]] = np.arange(len(order)) - _first_of_entry(owner[order]) >= most
    mask: Mask = surplus[changelog.entry]
    return mask


def first_beyond(changelog: Changelog, most: int, column: str) -> Breach | None:
    """The first mutation of an entry beyond the `most` first of its person, None where there is none.

    column: that says whose an entry is.
    """
    entries = "entry" if most == 1 else "entries"
    return _earliest(changelog, beyond(changelog, most), f"its {column} has more than {most} {entries}")


# What the curator is told


@dataclass(frozen=True, slots=True)
class Listener:
    """Collects what is said, and passes it on as it arises. Asides tell of the data: they are for the curator alone."""

    tell: Callable[[str], None]
    notes: list[str] = field(default_factory=list)
    asides: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        """Say something that every reader of the release may know."""
        self.notes.append(sentence)
        self.tell(sentence)

    def aside(self, sentence: str) -> None:
        """Say something of the data."""
        self.asides.append(sentence)
        self.tell(f"not private, for the curator alone: {sentence}")

    def hear_of_data(self, text: str, declared: Sequence[str] | None, log: Changelog, query: LinearQuery) -> None:
        """Say what is to be known of the answers before anything is drawn. text: the query, in words."""
        for sentence in (*_said_of_names(text, declared, log, query), *_said_of_numbers(text, log)):
            self.aside(sentence)

    def hear_of_rows_outside(self, log: Changelog, calendar: Calendar) -> None:
        """Say how many rows lie before the calendar's start, and whether some lie beyond its end."""
        if before := int(np.count_nonzero(log.time < calendar.start * MICROSECONDS)):
            rows = _counted(before, "row lies", "rows lie")
            start = local_instant(calendar.start, zone_name(calendar))
            self.aside(f"{rows} before the calendar's start, {start}: in the first period")
        if len(log) and int(log.time.max()) > calendar.time(calendar.periods) * MICROSECONDS:
            self.aside("the changelog goes on after the calendar's end: what lies beyond is not part of this release")


def said_of_freezing(log: Changelog, kept: Changelog, query: LinearQuery, calendar: Calendar) -> str:
    """How many entries were frozen, how many mutations that left out, and how far off the worst column ever is.

    log: as it was read. kept: what is released.
    """
    if len(kept) == len(log):
        return "--freeze froze no entry"
    off = true_levels(kept, query, calendar) - true_levels(log, query, calendar)
    worst = np.unravel_index(np.argmax(np.abs(off)), off.shape)
    far = float(off[worst] * query.unit)
    when = local_instant(calendar.time(int(worst[0]) + 1), zone_name(calendar))
    return (
        f"--freeze froze {frozen_in_words(log, kept)}: what is counted is off by up to {far:+,.6g} "
        f"({query.names[int(worst[1])]}, at {when}), whatever its standard error"
    )


def frozen_in_words(log: Changelog, kept: Changelog, leave: str = "left") -> str:
    """How many entries lost a mutation, and how many mutations they lost. Arguments as of `said_of_freezing`."""
    entries, counts = np.unique(log.entry, return_counts=True)
    there = np.bincount(kept.entry, minlength=len(log.entries))[entries]
    touched = int(np.count_nonzero(there < counts))
    return (
        f"{_counted(touched, 'entry', 'entries')} of {len(entries):,} and {leave} out "
        f"{_counted(len(log) - len(kept), 'mutation', 'mutations')} of {len(log):,}"
    )


def true_levels(log: Changelog, query: LinearQuery, calendar: Calendar) -> Counts:
    """The query at the ends of the periods, without noise, shape (periods, w), in units."""
    mutations = log.mutations()
    period = np.maximum(np.searchsorted(bounds_of(calendar), mutations.time), 1)
    inside = period <= calendar.periods
    changes = np.zeros((calendar.periods, query.width), np.int64)
    moved = query.cells[mutations.new[inside]] - query.cells[mutations.old[inside]]
    np.add.at(changes, period[inside] - 1, moved)
    levels: Counts = np.cumsum(changes, axis=0)
    return levels


def updates_by_period(log: Changelog, query: LinearQuery, calendar: Calendar) -> Floats:
    """How often a column was moved by the end of each period, mean over the columns, shape (periods,)."""
    mutations = log.mutations()
    moved = (query.cells[mutations.new] != query.cells[mutations.old]).mean(1)
    period = np.searchsorted(bounds_of(calendar)[1:], mutations.time)
    updates: Floats = np.bincount(period, moved, calendar.periods + 1)[: calendar.periods].cumsum()
    return updates


def _said_of_names(text: str, declared: Sequence[str] | None, log: Changelog, query: LinearQuery) -> Iterator[str]:
    """Names that no row holds, and values that nobody declared, a sentence each."""
    held = set(log.answers)
    wanted = [*names_in(text), *(declared or [])]
    if missing := [name for name in dict.fromkeys(wanted) if name not in held]:
        yield f"no row holds {_list(missing)}"
    if declared is None:
        return
    states = [state for state, name in enumerate(log.answers, 1) if name not in declared]
    if states:
        unknown = [log.answers[state - 1] for state in states]
        rows = int(np.isin(log.state, states).sum())
        where = "counted as other" if "other" in query.names and "other" not in declared else "counted nowhere"
        if query.width == 1 and bool(query.cells[states].all()):
            where = "counted, as the query counts them all"
        yield (
            f"{_counted(rows, 'row holds', 'rows hold')} one of {_counted(len(unknown), 'answer', 'answers')} that "
            f"nobody declared, {_list(unknown)}: {where}"
        )


def _said_of_numbers(query: str, log: Changelog) -> Iterator[str]:
    """Warns, for a sum or a mean, of answers that are no numbers and of those that are clipped, a sentence each."""
    if (numbers := numbers_of(query, log.answers)) is None:
        return
    values, low, high = numbers
    no_numbers = [state for state, name in enumerate(log.answers, 1) if name not in values]
    clipped = [state for state, name in enumerate(log.answers, 1) if not low <= values.get(name, low) <= high]
    for states, said in ((no_numbers, "hold what is no finite number, and add nothing"), (clipped, "are clipped")):
        if rows := int(np.isin(log.state, states).sum()):
            yield f"{rows:,} of {int((log.state > 0).sum()):,} values {said}"


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(repr, names[:MOST_NAMED])) + more
