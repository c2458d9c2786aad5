"""Driving the fold over a store: batch by batch to the log's end, each batch one transaction.

Tallies, attendance, ids, refusals and cursors are written together, the cursors by compare-and-set: whatever crashes,
and however many fold at once, each closing counts exactly once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing as ending
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from changeling_protocol import Refusal, SurveyId, UnixSeconds
from sqlalchemy import Connection

from ..errors import Overtaken
from ..opening import Open, open_requests
from ..store import ClosingKey, Store
from ..store.counted import add_attendance, add_refusals, add_tallies
from ..store.database import Transactions
from ..store.log import advance_cursors, cursors_after, unfolded
from ..store.pruning import discard, hold
from .batches import BATCH_REQUESTS, Batch, batches, next_batch
from .closing import (
    arrivals_are_ahead,
    close_what_ended,
    latest_right,
    recover_journals,
    set_arrivals_right,
    tidy_segments,
)
from .counting import Counted, count
from .freed_memory import keep_freed_memory
from .halves import SortedIds
from .runs import Added, add_ids
from .seen import SeenIds
from .short_turns import short_turns
from .snapshots import take_snapshots
from .taking_over import take_over_files


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
    def of(cls, requests: int, counted: Counted) -> "FoldReport":
        """Of what was counted in so many requests."""
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
    of it: what is folded as late is late for good.
    What is appended meanwhile may wait for the next time, so that uploads which never stop keep nothing from being
    sealed.
    """
    keep_freed_memory()
    remembered = seen or SeenIds()
    with short_turns.wanted():
        return in_turn(store, now, closing, lambda writing: _fold(store, now, stop, batch, open_, remembered, writing))


def in_turn(store: Store, now: UnixSeconds, closing: bool, count: Callable[[Transactions], FoldReport]) -> FoldReport:
    """Fold in this process's turn, if it is given it: before and after counting, what every fold does there.

    now, closing: as `fold` has them. count: counts what the log holds, in transactions of the turn.
    """
    with store.turn_to_fold() as writing:
        if writing is None:
            return FoldReport(stood_by=True)
        recover_journals(store, now)
        if closing:
            set_arrivals_right(store, now)
        elif arrivals_are_ahead(store, now):
            return FoldReport()
        total = count(writing)
        if closing:
            close_what_ended(store, now)
            take_snapshots(store, now)
        tidy_segments(store, writing)
        if total.requests:
            store.write_back()
        return total


def _fold(
    store: Store,
    now: UnixSeconds,
    stop: Callable[[], bool],
    batch: int,
    open_: Open,
    seen: SeenIds,
    writing: Transactions,
) -> FoldReport:
    take_over_files(store, writing)
    total = FoldReport()
    with store.reading() as connection:
        waiting, until = unfolded(connection), latest_right(connection, now)
    while total.requests < waiting and not stop():
        left = waiting - total.requests
        with suppress(Overtaken), ending(batches(store, batch, open_, left, until, stop)) as coming:
            for done in _count(store, coming, seen, writing):
                total += done
            break
    total.behind = total.requests < waiting and stop()  # else the rest waits for what a journal still has
    return total


def fold_batch(
    store: Store, most: int = BATCH_REQUESTS, open_: Open = open_requests, seen: SeenIds | None = None
) -> FoldReport:
    """Fold the next requests, if there are any. seen: what is remembered of ids from one batch to the next.

    Raises Overtaken where another folder counted some of them meanwhile; then this has changed nothing.
    """
    batch = next_batch(store, most, open_, {})
    done = _count(store, [batch] if batch.requests else [], seen or SeenIds(), store.writing)
    return next(iter([*done]), FoldReport())


def _count(store: Store, coming: Iterable[Batch], seen: SeenIds, writing: Transactions) -> Iterator[FoldReport]:
    """Count batches, each in a transaction of its own, which is written while the next one is counted.

    What is being written counts as seen: so it does not matter whether the next one sees it in the store.
    """
    ids: Mapping[ClosingKey, SortedIds] = {}
    written: Future[tuple[FoldReport, Mapping[ClosingKey, Added]]] | None = None
    remembered = False

    def remember() -> FoldReport:
        nonlocal remembered
        assert written is not None  # noqa: S101
        report, runs = written.result()
        for key, added in () if remembered else runs.items():
            seen.remember(key, added, ids[key])
        remembered = True
        return report

    def look(connection: Connection, wanted: Mapping[ClosingKey, bytes]) -> Iterator[tuple[ClosingKey, bytes]]:
        if written is not None and written.done() and written.exception() is None:
            remember()  # what the store may show by now, and would be read from it
        return seen.near(connection, ids, wanted)

    with ThreadPoolExecutor(1, "writing") as pool:
        for batch in coming:
            with store.reading() as connection:
                counted = count(batch.requests, batch.opened, batch.surveys, partial(look, connection), batch.ends)
            if written is not None:
                yield remember()
            written, remembered = pool.submit(_write, batch, counted, writing), False
            ids = {key: SortedIds.of(packed) for key, packed in counted.ids.items()}
        if written is not None:
            yield remember()


def _write(batch: Batch, counted: Counted, writing: Transactions) -> tuple[FoldReport, Mapping[ClosingKey, Added]]:
    """Returns where the ids of each closing are, too."""
    with writing() as connection:
        add_counted(connection, cursors_after(batch.requests), counted)
        added = add_ids(connection, counted.ids)
    return FoldReport.of(len(batch.requests), counted), added


def add_counted(connection: Connection, moves: Mapping[int, tuple[int, int]], counted: Counted) -> None:
    """Move the cursors, and add what was counted in between, all but the ids.

    moves: per stream, the cursor before and after. Raises Overtaken where another folder moved one meanwhile.
    """
    advance_cursors(connection, moves)
    add_tallies(connection, counted.tallies)
    add_attendance(connection, counted.attendance)
    add_refusals(connection, counted.refused)
    hold(connection, counted.held)
    discard(connection, counted.rubbish)
