"""Driving the fold over a store: batch by batch to the log's end, then sealing, deleting and showing.

Tallies, attendance, ids, refusals and cursors of a batch are written together, in one transaction, the cursors by
compare-and-set: whatever crashes, and however many fold at once, each closing counts exactly once. While a batch is
counted and written the next one is opened.

Once the log is folded, closings whose grace is over are sealed. Private keys are destroyed a grace after they have
expired, and envelopes deleted that no open closing needs: for keys the grace is the longest of the surveys that have
something left to seal, for envelopes it is their own survey's. A snapshot of what is counted is taken by whoever folds,
in a transaction in which nothing else is folded, and never by whoever reads: so all servers of a store show the same, a
restart changes nothing, and asking more often makes no snapshot come earlier.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing as ending
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, floor
from typing import NamedTuple

from changeling_protocol import Refusal, SurveyId, UnixMilliseconds, UnixSeconds
from changeling_statistics import batches_to_show

from ..errors import Overtaken, SegmentLost, Unwritable
from ..opening import Open, Opened, open_requests
from ..segments import place_at
from ..store import (
    ClosingKey,
    IdFile,
    LoggedRequest,
    LogState,
    SnapshotProgress,
    Store,
    StoredSurvey,
    StratumCounts,
    StratumKey,
    Turn,
    View,
    cursors_after,
    positions_after,
    readable,
)
from .counting import BatchCounts, count
from .ids import SeenIds, add_ids, merged_ids

MOST_RETENTION_SECONDS = 90 * 86_400
"""No survey keeps expired keys and folded envelopes longer than that, whatever its grace."""
MOST_AHEAD_MS = 60_000
"""Arrivals this far ahead of a clock that is believed come of one that was wrong."""

_log = logging.getLogger("changeling")
BATCH_REQUESTS = 5000
BATCH_BYTES = 32 * 2**20


@dataclass(slots=True)
class FoldReport:
    """The work of a fold: requests and envelopes read, reports counted, and how much was refused for which reason.

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
        try:
            turn.compact()
        except (SegmentLost, Unwritable) as error:
            _log.warning("segments cannot be put in order", extra={"why": f"{error}"})
        if total.requests:
            store.write_back()
        return total


def _fold(
    turn: Turn, store: Store, until: UnixMilliseconds, most: int, open_: Open, seen: SeenIds, stop: Callable[[], bool]
) -> FoldReport:
    take_over_files(store, turn)
    total = FoldReport()
    with store.view() as view:
        waiting = view.log_state().unfolded
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
    surveys: Mapping[SurveyId, StoredSurvey]


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
        stored = readable(view.surveys())
        keys = view.private_keys() if requests else {}
    surveys = {id_: each.survey for id_, each in stored.items()}
    return Batch(requests, open_([each.body for each in requests], surveys, keys), stored)


def count_batches(store: Store, turn: Turn | Store, coming: Iterable[Batch], seen: SeenIds) -> Iterator[FoldReport]:
    """Count batches, each in a transaction of its own.

    turn: gives the transactions.
    """
    for batch in coming:
        with store.view() as view:
            counted = count(batch.requests, batch.opened, batch.surveys, partial(seen.near, view))
        _write(turn, batch, counted)
        yield FoldReport.of(len(batch.requests), counted)


def _write(turn: Turn | Store, batch: Batch, counted: BatchCounts) -> None:
    with turn.transaction() as writing:
        counted.write(writing, cursors_after(batch.requests))
        add_ids(writing, counted.ids)


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
            stored = writing.surveys(file.survey).get(file.survey)
            add_ids(writing, _ids_of(file, 0 if stored is None else stored.sealed))
    for file in files:
        place_at(file.place).delete(file.name)


def _ids_of(file: IdFile, sealed: int) -> Mapping[ClosingKey, bytes]:
    from ..segments.parquet import read_ids

    pieces: dict[ClosingKey, list[bytes]] = {}
    for period, ids in read_ids(place_at(file.place), file.name, sealed):
        pieces.setdefault((file.survey, period), []).append(ids)
    return {key: merged_ids(some) for key, some in pieces.items()}


# After the log is folded


def set_arrivals_right(store: Store, now: UnixSeconds) -> None:
    """Where arrivals were given out far ahead of now, by a clock that was wrong, set them back.

    now: Unix seconds, of a clock that is believed. What is not folded has then arrived now, and is not late for it.
    """
    if arrivals_are_ahead(store, now):
        with store.transaction() as writing:
            writing.set_back_arrivals(_ms(now))


def arrivals_are_ahead(store: Store, now: UnixSeconds) -> bool:
    """Tell whether arrivals were given out so far ahead of now that a clock was wrong. now: Unix seconds."""
    with store.view() as view:
        state = view.log_state()
    return state.arrival > latest_right(state, now)


def latest_to_count(store: Store, now: UnixSeconds, believed: bool) -> UnixMilliseconds:
    """The moment, in Unix milliseconds, after which no arrival is counted yet.

    believed: False where `now` may be wrong. What is late by such a clock is in time once that is set right, and late
    for good if it is counted: so what arrived after the time that was last believed waits from the first deadline on.
    """
    with store.view() as view:
        latest = latest_right(view.log_state(), now)
        if believed:
            return latest
        due = [
            each.survey.calendar.time(each.sealed + 1) + each.survey.grace
            for each in readable(view.surveys()).values()
            if each.sealed < each.last
        ]
        return min(latest, max(view.kept_time().told, UnixMilliseconds(1000 * min(due, default=0))))


def latest_right(state: LogState, now: UnixSeconds) -> UnixMilliseconds:
    """After this moment, in Unix milliseconds, an arrival comes of a clock that was wrong. now: Unix seconds.

    Another server may give one out at any time, so a fold counts none that is later, until it is set back.
    """
    return UnixMilliseconds(max(_ms(now) + MOST_AHEAD_MS, state.floor))


def close_what_ended(store: Store, now: UnixSeconds) -> None:
    """Seal closings, destroy keys and prune the log, as of now; or of the first arrival that is not folded, if earlier.

    now: Unix seconds, of a clock that is believed. From then on no arrival is before that moment, so that whatever else
    comes for a sealed closing is late, and nothing that waits was sealed to a key that is gone.
    """
    destroyed = False
    with store.view() as view:
        ended = _Ended.by(view, now)
        is_over = ended.seal or view.anything_overdue(*ended.overdue)
    if is_over:  # without which uploads need not wait for a transaction
        with store.transaction() as writing:
            writing.stop_appending()
            ended = _Ended.by(writing, now)
            writing.seal(ended.seal, UnixMilliseconds(ceil(ended.moment * 1000)))
            destroyed = writing.delete_overdue(*ended.overdue) > 0
    store.forget_overwritten(changed=destroyed)


class _Ended(NamedTuple):
    """The things whose time is over.

    moment: now, or the first arrival that is not folded, if that is earlier; Unix seconds. seal: by survey, the period
    up to which closings can be sealed, where that is more than is sealed. graces: for how many milliseconds a survey
    needs its requests: 0 where all that counts is sealed by then. longest: for how many seconds anything that could
    still be folded again is kept.
    """

    moment: UnixSeconds
    seal: Mapping[SurveyId, int]
    graces: Mapping[SurveyId, int]
    longest: int

    @classmethod
    def by(cls, view: View, now: UnixSeconds) -> "_Ended":
        """What is over by now, in Unix seconds."""
        first, stored = view.log_state().first_unfolded, view.surveys()
        moment = now if first is None else min(now, UnixSeconds(first / 1000))
        seal, graces, longest = {}, {}, 0
        for id_, each in readable(stored).items():
            grace = min(each.survey.grace, MOST_RETENTION_SECONDS)
            closed = each.survey.calendar.closed(UnixSeconds(moment - each.survey.grace))
            if closed > each.sealed:
                seal[id_] = closed
            if each.sealed < each.last:
                longest = max(longest, grace)
            graces[id_] = 1000 * grace if max(closed, each.sealed) < each.last else 0
        if len(graces) < len(stored):  # another version, perhaps on another server, may need them longer
            longest = MOST_RETENTION_SECONDS
        return cls(moment, seal, graces, longest)

    @property
    def overdue(self) -> tuple[UnixMilliseconds, Mapping[SurveyId, int], int]:
        """As `Transaction.delete_overdue` takes it."""
        return _ms(self.moment), self.graces, 1000 * self.longest


def _ms(time: UnixSeconds) -> UnixMilliseconds:
    return UnixMilliseconds(floor(time * 1000))


def take_snapshots(store: Store, now: UnixSeconds) -> None:
    """Show what may be shown by now, in Unix seconds, of what is counted, where that moves enough.

    What that is is found out before the transaction that writes it, which uploads may have to wait for.
    """
    with store.view() as view:
        found = {
            (stored.id, stored.looked, after): _fresh(view, stored, after) for stored, after in _to_look_at(view, now)
        }
    if not found:
        return
    with store.transaction() as writing:
        writing.stop_folding()
        for stored, after in _to_look_at(writing, now):
            fresh = found.get((stored.id, stored.looked, after))
            if fresh is None:  # something was folded or sealed since
                fresh = _fresh(writing, stored, after)
            if fresh or after.final > stored.looked.final:
                after = replace(after, revision=after.revision + 1)
            writing.put_snapshots(stored.id, after, fresh)


def _to_look_at(view: View, now: UnixSeconds) -> list[tuple[StoredSurvey, SnapshotProgress]]:
    """The surveys of which anything was folded, closed or sealed since they were looked at; and how far now."""
    counted, found = view.log_state().folded, []
    for stored in readable(view.surveys()).values():
        survey, before = stored.survey, stored.looked
        due = min(survey.calendar.closed(UnixSeconds(now - survey.skew - survey.spread)), stored.last)
        due = max(due, before.due)  # what was shown stays so, whatever the clock does
        final = max(before.final, min(stored.sealed, due))
        after = SnapshotProgress(before.revision, final, due, counted)
        if after != before and due > before.final:
            found.append((stored, after))
    return found


def _fresh(view: View, stored: StoredSurvey, after: SnapshotProgress) -> dict[StratumKey, StratumCounts]:
    """The counts to show from now on, of closings that are not shown for good."""
    survey, final = stored.survey, stored.looked.final
    counted = _by_closing(view.counted_strata(survey.id, survey.plan, final, after.due))
    shown = _by_closing(view.shown_strata(survey.id, after=final, until=after.due))
    fresh: dict[StratumKey, StratumCounts] = {}
    for period, counts in counted.items():
        chosen = batches_to_show(
            {key: each.counts for key, each in shown[period].items()},
            {key: each.counts for key, each in counts.items()},
            max(1, survey.minimum),
            sealed=period <= after.final,
        )
        fresh |= {key: counts[key] for key in counts.keys() & chosen}
    return fresh


def _by_closing(counts: dict[StratumKey, StratumCounts]) -> defaultdict[int, dict[StratumKey, StratumCounts]]:
    closings: defaultdict[int, dict[StratumKey, StratumCounts]] = defaultdict(dict)
    for key, each in counts.items():
        closings[key[0]][key] = each
    return closings
