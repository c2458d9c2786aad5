"""Driving the fold over a store: batch by batch to the log's end, each batch one transaction.

Tallies, attendance, ids, refusals and cursors are written together, the cursors by compare-and-set: whatever crashes,
and however many fold at once, each closing counts exactly once. While a batch is counted the next one is opened, and
the one before it is written.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing as ending
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from changeling_protocol import EarlyEnd, Refusal, Survey, SurveyId, UnixMilliseconds, UnixSeconds

from ..errors import Overtaken
from ..opening import Open, Opened, open_requests
from ..segments import place_at
from ..store import ClosingKey, IdFile, LoggedRequest, Store, Turn, View, cursors_after, positions_after
from .closing import (
    arrivals_are_ahead,
    close_what_ended,
    compact,
    latest_to_count,
    set_arrivals_right,
    take_snapshots,
)
from .counting import BatchCounts, count
from .ids import Added, SeenIds, add_ids, merged_ids

BATCH_REQUESTS = 5000
BATCH_BYTES = 32 * 2**20


@dataclass(slots=True)
class FoldReport:
    """What a fold did: requests and envelopes read, reports counted, and how much was refused for which reason.

    uncounted: envelopes of surveys that cannot be counted, by survey. They stay in the log for as long as it keeps any.
    behind: whether it stopped before the log's end. stood_by: whether it did nothing, as another was folding.
    """

    requests: int = 0
    envelopes: int = 0
    reports: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)
    uncounted: Counter[SurveyId] = field(default_factory=Counter)
    behind: bool = False
    stood_by: bool = False

    @classmethod
    def of(cls, requests: int, counted: BatchCounts) -> "FoldReport":
        """The report on what was counted in so many requests."""
        refused: Counter[Refusal] = Counter()
        for (_, reason), times in counted.refused.items():
            refused[reason] += times
        reports = sum(tally.reports for tally in counted.tallies.values())
        return cls(requests, counted.envelopes, reports, refused, counted.uncounted)

    def __iadd__(self, other: "FoldReport") -> "FoldReport":
        """Add what was done after."""
        self.requests += other.requests
        self.envelopes += other.envelopes
        self.reports += other.reports
        self.refused += other.refused
        self.uncounted += other.uncounted
        self.behind, self.stood_by = other.behind, other.stood_by
        return self


def fold(
    store: Store,
    now: UnixSeconds,
    batch: int = BATCH_REQUESTS,
    *,
    closing: bool = True,
    open_: Open = open_requests,
    seen: SeenIds | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> FoldReport:
    """Fold what the log holds by now, then seal what is over, destroy keys, and take snapshots of what may be shown.

    now: Unix seconds. batch: the most requests of one transaction. open_: opens them, here or in other processes.
    seen: what is remembered of ids from one fold to the next. stop: asked after each transaction whether to leave the
    rest for the next time.
    closing: False where `now` may be wrong, so that nothing is sealed or destroyed, nor folded where arrivals are ahead
    of it, or past the first deadline that is left: what is folded as late is late for good.
    What is appended meanwhile may wait for the next time, so that uploads which never stop keep nothing from being
    sealed.
    """
    remembered = seen or SeenIds()
    return in_turn(store, now, closing, lambda turn, until: _fold(turn, store, until, batch, open_, remembered, stop))


def in_turn(
    store: Store, now: UnixSeconds, closing: bool, count: Callable[[Turn, UnixMilliseconds], FoldReport]
) -> FoldReport:
    """Fold in this process's turn, if it is given it: before and after counting, what every engine does there.

    now, closing: as `fold` has them. count: counts what arrived up to a moment, in Unix milliseconds, in
    transactions of the turn.
    """
    with store.turn_to_fold() as turn:
        if turn is None:
            return FoldReport(stood_by=True)
        if closing:
            set_arrivals_right(store, now)
        elif arrivals_are_ahead(store, now):
            return FoldReport()
        total = count(turn, latest_to_count(store, now, closing))
        if closing:
            close_what_ended(store, now)
            take_snapshots(store, now)
        compact(turn)
        if total.requests:
            store.write_back()
        return total


def _fold(
    turn: Turn, store: Store, until: UnixMilliseconds, most: int, open_: Open, seen: SeenIds, stop: Callable[[], bool]
) -> FoldReport:
    take_over_files(store, turn)
    total = FoldReport()
    with store.view() as view:
        waiting = view.unfolded()
    while total.requests < waiting and not stop():
        left = waiting - total.requests
        with suppress(Overtaken), ending(batches(store, most, open_, left, until, stop)) as coming:
            for done in count_batches(store, turn, coming, seen):
                total += done
            break
    total.behind = total.requests < waiting and stop()
    return total


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests in the log's order, with what is in them, and the surveys as they were read; none at the log's end."""

    requests: Sequence[LoggedRequest]
    opened: Opened
    surveys: Mapping[SurveyId, Survey]
    ends: Mapping[SurveyId, EarlyEnd]


def batches(
    store: Store, most: int, open_: Open, waiting: int, until: UnixMilliseconds, stop: Callable[[], bool]
) -> Generator[Batch, None, None]:
    """Opened batches up to the log's end, or until so many requests were read; the next is opened meanwhile.

    most: the most requests of one. waiting: how many requests to read, about. until: what arrived later is left out, in
    Unix milliseconds. stop: asked before each but the first whether to leave the rest.
    """
    after: dict[int, int] = {}
    with ThreadPoolExecutor(1, "opening") as opener:
        coming: Future[Batch] | None = opener.submit(_next_batch, store, most, open_, after, until)
        while coming is not None and (batch := coming.result()).requests:
            waiting -= len(batch.requests)
            after = after | positions_after(batch.requests)
            ahead = waiting > 0 and not stop()
            coming = opener.submit(_next_batch, store, most, open_, after, until) if ahead else None
            yield batch


def _next_batch(store: Store, most: int, open_: Open, after: Mapping[int, int], until: UnixMilliseconds) -> Batch:
    """The next requests that are not counted, opened. after: the positions by stream of what is being counted."""
    with store.view() as view:
        requests = view.unread(most, BATCH_BYTES, after, until)
        surveys, ends = view.surveys(), view.early_ends()
        keys = view.private_keys() if requests else {}
    return Batch(requests, open_([each.body for each in requests], surveys, keys), surveys, ends)


Written: TypeAlias = tuple[FoldReport, Mapping[ClosingKey, Added]]


@dataclass(slots=True)
class _Before:
    """The ids that were counted before a batch, which is asked for those of each survey in turn.

    ids: those that `writing` writes. They count whether the view shows them or not; what is written when the view
    begins to be read is remembered, and need not be read from it again.
    """

    seen: SeenIds
    view: View
    writing: Future[Written] | None
    ids: Mapping[ClosingKey, bytes]
    _asked: bool = False

    def __call__(self, wanted: Mapping[ClosingKey, bytes]) -> Iterator[tuple[ClosingKey, bytes]]:
        done = self.writing is not None and self.writing.done() and self.writing.exception() is None
        if self.writing is not None and done and not self._asked:
            self.seen.remember(self.writing.result()[1], self.ids)
            self.ids = {}
        self._asked = True
        return self.seen.near(self.view, self.ids, wanted)


def count_batches(store: Store, turn: Turn | Store, coming: Iterable[Batch], seen: SeenIds) -> Iterator[FoldReport]:
    """Count batches, each in a transaction of its own, which is written while the next one is counted.

    turn: gives the transactions.
    """
    ids: Mapping[ClosingKey, bytes] = {}
    writing: Future[Written] | None = None
    with ThreadPoolExecutor(1, "writing") as pool:
        for batch in coming:
            with store.view() as view:
                before = _Before(seen, view, writing, ids)
                counted = count(batch.requests, batch.opened, batch.surveys, before, batch.ends)
            if writing is not None:
                yield _written(writing, seen, before.ids)
            ids = counted.ids
            writing = pool.submit(_write, turn, batch, counted)
        if writing is not None:
            yield _written(writing, seen, ids)


def _written(writing: Future[Written], seen: SeenIds, ids: Mapping[ClosingKey, bytes]) -> FoldReport:
    """The report on a batch, once it is written. ids: those it added that are not remembered yet."""
    report, added = writing.result()
    seen.remember({key: place for key, place in added.items() if key in ids}, ids)
    return report


def _write(turn: Turn | Store, batch: Batch, counted: BatchCounts) -> Written:
    """Returns in which runs the ids of each closing are, too."""
    with turn.transaction() as writing:
        counted.write(writing, cursors_after(batch.requests))
        added = add_ids(writing, counted.ids)
    return FoldReport.of(len(batch.requests), counted), added


def take_over_files(store: Store, turn: Turn) -> None:
    """Put the ids that a fold beyond one machine left in files into runs, in one transaction; then delete the files.

    Raises SegmentLost or ValueError where a file is gone or damaged: nothing can be folded without its ids.
    """
    with store.view() as view:
        files = view.id_files()
    if not files:
        return
    with turn.transaction() as writing:
        writing.replace_id_files(files, ())
        for file in files:
            add_ids(writing, _ids_of(file, writing.sealed_period(file.survey)))
    for file in files:
        place_at(file.place).delete(file.name)


def _ids_of(file: IdFile, sealed: int) -> Mapping[ClosingKey, bytes]:
    from ..segments.parquet import read_ids  # its libraries are not installed everywhere

    pieces: dict[ClosingKey, list[bytes]] = {}
    for period, ids in read_ids(place_at(file.place), file.name, sealed):
        pieces.setdefault((file.survey, period), []).append(ids)
    return {key: merged_ids(some) for key, some in pieces.items()}
