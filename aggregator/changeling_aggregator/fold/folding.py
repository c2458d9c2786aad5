"""The log's next requests, batch by batch: each is opened while the one before it is counted, and read before that."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing as ending
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from changeling_protocol import EarlyEnd, Refusal, Survey, SurveyId, UnixMilliseconds, UnixSeconds
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import Connection

from ..errors import Overtaken
from ..opening import Open, Opened, open_requests
from ..segments import place_at
from ..store import ClosingKey, LoggedRequest, Store
from ..store.counted import add_attendance, add_refusals, add_tallies, sealed_period
from ..store.database import Transactions
from ..store.early_ends import published_ends
from ..store.id_files import IdFile, registered_files, replace_files
from ..store.log import advance_cursors, cursors_after, positions_after, unfolded, unread
from ..store.pruning import discard, hold
from ..store.sealing_keys import private_keys
from ..store.surveys import published_surveys, readable
from .closing import (
    arrivals_are_ahead,
    close_what_ended,
    latest_right,
    recover_journals,
    set_arrivals_right,
    take_snapshots,
    tidy_segments,
)
from .counting import Counted, count
from .freed_memory import keep_freed_memory
from .halves import SortedIds
from .ids import merged_ids
from .runs import Added, add_ids
from .seen import SeenIds
from .short_turns import short_turns

# MERGED fold.taking_over: The ids that a fold beyond one machine left in files, taken into the database's runs before it is folded here.

# MERGED fold.folding: Driving the fold over a store: batch by batch to the log's end, each batch one transaction. Tallies, attendance, ids, refusals and cursors are written together, the cursors by compare-and-set: whatever crashes, and however many fold at once, each closing counts exactly once.


BATCH_REQUESTS = 5000
BATCH_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests in the log's order, with what is in them, and the surveys as they were read; none at the log's end."""

    requests: Sequence[LoggedRequest]
    opened: Opened
    surveys: Mapping[SurveyId, Survey]
    ends: Mapping[SurveyId, EarlyEnd]


@dataclass(frozen=True, slots=True)
class _Sealed:
    """What a batch is made of, before its requests are opened."""

    requests: Sequence[LoggedRequest]
    surveys: Mapping[SurveyId, Survey]
    ends: Mapping[SurveyId, EarlyEnd]
    keys: Mapping[bytes, X25519PrivateKey]

    def opened(self, open_: Open) -> Batch:
        opened = open_([each.body for each in self.requests], self.surveys, self.keys)
        return Batch(self.requests, opened, self.surveys, self.ends)


def next_batch(store: Store, most: int, open_: Open, after: Mapping[int, int]) -> Batch:
    """The next requests that are not counted, opened.

    most: so many at most. after: the positions by stream of what is being counted, which is left out.
    """
    return _next_sealed(store, most, after, None).opened(open_)


def _next_sealed(store: Store, most: int, after: Mapping[int, int], until: UnixMilliseconds | None) -> _Sealed:
    """until: what arrived later is left out, in Unix milliseconds; None for nothing."""
    with store.reading() as connection:
        requests = unread(connection, most, BATCH_BYTES, after, until)
        surveys = readable(published_surveys(connection))
        ends = published_ends(connection)
        keys = private_keys(connection, store.at_rest) if requests else {}
    return _Sealed(requests, surveys, ends, keys)


def batches(
    store: Store, most: int, open_: Open, waiting: int, until: UnixMilliseconds, stop: Callable[[], bool]
) -> Generator[Batch, None, None]:
    """Batches up to the log's end, or until so many requests were read.

    most: the most requests of one. waiting: how many requests to read, about. until: what arrived later is left out, in
    Unix milliseconds. stop: asked before each but the first whether to leave the rest.
    While one is counted the next is opened, and the one after that is read: so those that open never wait for it.
    """
    after: dict[int, int] = {}
    opening: Future[Batch] | None = None
    with ThreadPoolExecutor(1, "reading") as reader, ThreadPoolExecutor(1, "opening") as opener:
        reading: Future[_Sealed] | None = reader.submit(_next_sealed, store, most, after, until)
        while reading is not None and (sealed := reading.result()).requests:
            waiting -= len(sealed.requests)
            after = after | positions_after(sealed.requests)
            before, opening = opening, opener.submit(sealed.opened, open_)
            ahead = waiting > 0 and not stop()
            reading = reader.submit(_next_sealed, store, most, after, until) if ahead else None
            if before is not None:
                yield before.result()
        if opening is not None:
            yield opening.result()


def take_over_files(store: Store, writing: Transactions) -> None:
    """Put what the registered files hold into runs, if there are any, in one transaction; then delete the files.

    Raises SegmentLost or ValueError where a file is gone or damaged: nothing can be folded without its ids.
    """
    with store.reading() as connection:
        files = registered_files(connection)
    if not files:
        return
    with writing() as connection:
        replace_files(connection, files, ())
        for file in files:
            add_ids(connection, _ids_of(file, sealed_period(connection, file.survey)))
    for file in files:
        place_at(file.place).remove(file.name)


def _ids_of(file: IdFile, sealed: int) -> Mapping[ClosingKey, bytes]:
    from ..segments.id_files import read_ids  # its libraries are not installed everywhere

    pieces: dict[ClosingKey, list[bytes]] = {}
    for period, ids in read_ids(place_at(file.place), file.name, sealed):
        pieces.setdefault((file.survey, period), []).append(ids)
    return {key: merged_ids(some) for key, some in pieces.items()}


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
