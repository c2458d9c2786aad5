"""The fold of a batch: check what was opened, drop duplicates, sum; and the kept log counted again, to compare.

Of several closings with the same period and id the first in the log's order counts, with all its reports; what comes
with the others counts nowhere. Which ids were counted before is an argument. A closing of a fast clock may arrive
before its period has closed: it is tallied at once, and as no tally of an open node is ever shown, it waits there until
the period closes.

All uploads of a survey are counted at once, without an object per closing or report: the columns of uploads become
rows. A column has a row for everything that could be answered in the upload's span. So where a row stands says which
closing or node it is about, and from a report's row follows the row of its closing.

`check` finds what differs: a node that is not sealed must have the tally that the log gives, and a closing its
attendance, as their envelopes are all kept, and so are the keys to them.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, zip_longest
from typing import Any, TypeAlias, TypeVar

import numpy as np
import polars as pl
from changeling_protocol import (
    CLOSING_BYTES,
    CLOSING_ID_BYTES,
    MOST_PERIODS,
    STANDING_BYTES,
    NodeNumber,
    Randomizer,
    Refusal,
    RefusalCounts,
    ReleasePlan,
    Standing,
    StratumNumber,
    Survey,
    SurveyId,
    Track,
    UnixMilliseconds,
    closings,
    symbol_bytes,
)
from changeling_protocol.wire import MOST_ENVELOPES_TAKEN
from changeling_statistics import Attendance, Counterpart, NodeTally, PlanNode, Tallies, counterpart_of
from numpy.typing import NDArray

from ..opening import ColumnLayout, Open, Opened, Sheaf, open_requests, request_number
from ..store import (
    AttendanceKey,
    ClosingKey,
    LoggedRequest,
    LogRange,
    Store,
    StoredSurvey,
    TallyKey,
    Transaction,
    View,
    everybody,
    readable,
)
from .ids import Ids, are_in, first_of_each, ids_in, merged_ids

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ReportRows:
    """The reports written in a track's columns, without rows that say nothing.

    closing: the row of the closing that each report belongs to, in `UploadRows.closings`. node: the number of its node
    in the track. symbol: may be out of range.
    """

    closing: Integers
    node: Integers
    symbol: NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """A sheaf among the rows. first: the row of its first closing. closings: the periods that each upload spans."""

    kind: ColumnLayout
    sheaf: Sheaf
    first: int
    closings: Integers

    @property
    def uploads(self) -> int:
        return len(self.sheaf.numbers)


class UploadRows:
    """The uploads of one survey, in rows.

    sheaves: the uploads by kind. arrivals: of each request, by its number, in Unix milliseconds.

    closings: a row for each closing in each upload's span, in the order of the log, and of periods. Columns: row (by
    which reports name it), upload (its number), group, arrival in Unix milliseconds, period, standing (raised by one;
    0 if the closing is not answered), and stratum.

    ids: of the closings, by row.
    """

    def __init__(self, plan: ReleasePlan, sheaves: Mapping[ColumnLayout, Sheaf], arrivals: Integers) -> None:
        self._plan = plan
        periods = _closing_periods(plan)
        self._blocks: list[_Block] = []
        rows = 0
        for kind, sheaf in sheaves.items():
            begin, end = np.searchsorted(periods, [kind.start, kind.end], side="right")
            self._blocks.append(_Block(kind, sheaf, rows, periods[begin:end]))
            rows += len(sheaf.numbers) * int(end - begin)
        self.closings, self.ids = self._closings(arrivals)
        self.answered = self.closings["standing"].to_numpy() > 0
        """By row, whether the closing is."""
        self.closings = self.closings.sort("upload", maintain_order=True)

    @property
    def groups(self) -> list[int]:
        """The groups that any upload is of, rising."""
        return sorted({block.kind.group for block in self._blocks})

    def reports(self, group: int, place: int) -> ReportRows:
        """The reports on one track. place: the track's place in its group."""
        track = self._plan.groups[group].tracks[place]
        parts = [_reports(block, track, place) for block in self._blocks if block.kind.group == group]
        columns = zip(*((part.closing, part.node, part.symbol) for part in parts), strict=True)
        return ReportRows(*map(np.concatenate, columns))

    def _closings(self, arrivals: Integers) -> tuple[pl.DataFrame, Ids]:
        parts, ids = [], []
        for block in self._blocks:
            n, spanned = block.uploads, len(block.closings)
            table = np.frombuffer(b"".join(block.sheaf.closings), np.uint8).reshape(n, spanned * CLOSING_BYTES)
            of_block, standings, strata = np.split(
                table, [CLOSING_ID_BYTES * spanned, (CLOSING_ID_BYTES + STANDING_BYTES) * spanned], axis=1
            )
            ids.append(of_block.tobytes())
            numbers = np.array(block.sheaf.numbers, np.int64)
            parts.append(
                {
                    "upload": np.repeat(numbers, spanned),
                    "group": np.full(n * spanned, block.kind.group),
                    "arrival": np.repeat(arrivals[numbers // MOST_ENVELOPES_TAKEN], spanned),
                    "period": np.tile(block.closings, n),
                    "standing": standings.astype(np.int64).ravel(),
                    "stratum": np.ascontiguousarray(strata).view(">u2").astype(np.int64).ravel(),
                }
            )
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return pl.DataFrame({"row": np.arange(len(columns["upload"])), **columns}), ids_in(b"".join(ids))


def _reports(block: _Block, track: Track, place: int) -> ReportRows:
    first = max((block.kind.start - track.first) // track.width + 1, 1)
    last = min((block.kind.end - track.first) // track.width, track.count)
    nodes = np.arange(first, max(last, first - 1) + 1)
    written = _integers(b"".join(block.sheaf.symbols[place]), symbol_bytes(track.randomizer))
    begins = np.arange(block.first, block.first + block.uploads * len(block.closings), len(block.closings) or 1)
    ends = np.searchsorted(block.closings, track.first + nodes * track.width)
    closing = (begins[:, None] + ends).ravel()
    reported = written > 0
    node, symbol = np.tile(nodes, block.uploads)[reported], written[reported].astype(np.uint64) - np.uint64(1)
    return ReportRows(closing[reported], node, symbol)


@lru_cache(maxsize=64)
def _closing_periods(plan: ReleasePlan) -> Integers:
    """Every period at which a node of any track ends, rising."""
    return np.array(closings(plan, 0, max(track.last for track in plan.tracks)), np.int64)


def _integers(packed: bytes, width: int) -> NDArray[np.unsignedinteger[Any]]:
    """Big-endian integers of 1 to 8 bytes each."""
    table = np.frombuffer(packed, np.uint8)
    if width == 1:
        return table
    columns = table.reshape(-1, width).T
    integers: NDArray[np.uint64] = columns[0].astype(np.uint64)
    for column in columns[1:]:
        integers = integers << np.uint64(8) | column
    return integers


_REFUSAL = "refusal"


def _judged(closings: pl.DataFrame, survey: Survey, last: int) -> pl.DataFrame:
    """The closings with one more column, `refusal`: the first reason that applies, null for a good one.

    last: the last period that counts; what is later is of a survey that was ended early.
    closings: answered ones, with the columns of `UploadRows.closings`. One is late when it arrives after its period's
    close and grace, and of the future when its period begins later than arrival and skew.
    """
    close = _close_ms(survey)
    begin = close - 1000 * survey.calendar.period
    arrival = pl.col("arrival")
    return closings.with_columns(
        pl.when(pl.col("standing") > len(Standing))
        .then(pl.lit(Refusal.MALFORMED.value))
        .when(pl.col("stratum") >= survey.strata)
        .then(pl.lit(Refusal.UNKNOWN_STRATUM.value))
        .when(pl.col("period") > last)
        .then(pl.lit(Refusal.CLOSED.value))
        .when(begin > arrival + 1000 * survey.skew)
        .then(pl.lit(Refusal.FUTURE.value))
        .when(arrival > close + 1000 * survey.grace)
        .then(pl.lit(Refusal.LATE.value))
        .otherwise(None)
        .alias(_REFUSAL)
    )


def _close_ms(survey: Survey) -> pl.Expr:
    """When each closing's period ends, in Unix milliseconds."""
    calendar = survey.calendar
    return 1000 * (calendar.start + pl.col("period") * calendar.period)


Seen: TypeAlias = Callable[[Mapping[ClosingKey, bytes]], Iterable[tuple[ClosingKey, bytes]]]
"""Called with ids by closing; gives ids that were counted for a closing, among them all of those given that were.

What is given, each time, is sorted ids laid end to end.
"""

OF_A_SURVEY = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError, pl.exceptions.PolarsError)
"""Errors that a defect raises in counting a survey; a store that fails, or memory that ends, is no survey's own."""

_log = logging.getLogger("changeling")

_FEW_KEYS = 2**16
_NOT_COUNTED, _UNANSWERED = -1, -2
"""Stand for the stratum of a closing that does not count, and of one that says nothing."""


@dataclass(slots=True)
class BatchCounts:
    """The counts that a batch adds.

    envelopes: how many there were. rubbish: the requests, by stream and position, that no fold can ever count.
    refused: how many closings and reports, by survey and reason. tallies: by node and stratum. attendance: by group,
    closing and stratum. ids: of the closings that count, sorted.
    needed_until: Unix milliseconds by stream and position, until when a request is needed to count an open node again;
    only of requests with a closing that arrived before its period had ended.
    uncounted: how many envelopes add nothing because their survey cannot be counted, by survey.
    """

    refused: RefusalCounts
    tallies: dict[TallyKey, NodeTally] = field(default_factory=dict)
    attendance: dict[AttendanceKey, Attendance] = field(default_factory=dict)
    ids: dict[ClosingKey, bytes] = field(default_factory=dict)
    needed_until: dict[tuple[int, int], UnixMilliseconds] = field(default_factory=dict)
    uncounted: Counter[SurveyId] = field(default_factory=Counter)
    envelopes: int = 0
    rubbish: list[tuple[int, int]] = field(default_factory=list)

    def add(self, other: "BatchCounts") -> None:
        """Add what another part of the log adds. Ids that both have for a closing are not put together."""
        self.envelopes += other.envelopes
        self.rubbish += other.rubbish
        self.refused.update(other.refused)
        self.ids |= other.ids
        for key, tally in other.tallies.items():
            self.tallies[key] = self.tallies[key] + tally if key in self.tallies else tally
        for place, here in other.attendance.items():
            self.attendance[place] = self.attendance.get(place, Attendance()) + here
        for at, until in other.needed_until.items():
            self.needed_until[at] = max(until, self.needed_until.get(at, until))

    def write(self, writing: Transaction, moves: Mapping[int, tuple[int, int]]) -> None:
        """Add all but the ids to what is stored. moves: by stream, the cursor before and after.

        Raises Overtaken where another folder moved a cursor meanwhile.
        """
        writing.add(
            moves,
            tallies=self.tallies,
            attendance=self.attendance,
            refused=self.refused,
            needed_until=self.needed_until,
            rubbish=self.rubbish,
        )


def count(
    requests: Sequence[LoggedRequest],
    opened: Opened,
    surveys: Mapping[SurveyId, StoredSurvey],
    seen: Seen,
) -> BatchCounts:
    """The counts that these requests add.

    requests: in the log's order, after all whose ids are in `seen`. opened: what is in them. surveys: by id. A
    survey whose counting fails harms no other. Raises what `seen` raises of a store that fails.
    """
    rubbish = [(requests[number].stream, requests[number].position) for number in opened.rubbish]
    counted = BatchCounts(opened.refused, envelopes=opened.envelopes, rubbish=rubbish)
    for id_, sheaves in opened.by_survey().items():
        try:
            counted.add(_count_survey(surveys[id_], sheaves, requests, seen))
        except OF_A_SURVEY:
            uploads = sum(len(sheaf.numbers) for sheaf in sheaves.values())
            _log.exception("%d uploads of survey %s cannot be counted", uploads, id_.hex())
            counted.uncounted[id_] += uploads
    return counted


def _count_survey(
    stored: StoredSurvey, sheaves: Mapping[ColumnLayout, Sheaf], requests: Sequence[LoggedRequest], seen: Seen
) -> BatchCounts:
    counted, survey = BatchCounts(Counter()), stored.survey
    rows = UploadRows(survey.plan, sheaves, np.array([each.arrival for each in requests], np.int64))
    fresh = fresh_closings(counted, survey, stored.last, rows, seen)
    for upload, until in _early_uploads(fresh, survey):
        request = requests[request_number(upload)]
        at = request.stream, request.position
        counted.needed_until[at] = max(until, counted.needed_until.get(at, until))
    _count_attendance(counted, survey.id, fresh)
    _count_reports(counted, survey, rows, fresh)
    return counted


def _early_uploads(closings: pl.DataFrame, survey: Survey) -> list[tuple[int, UnixMilliseconds]]:
    """The numbers of uploads with a closing that arrived before its period had closed, and when the last is sealed."""
    sealed = _close_ms(survey) + 1000 * survey.grace
    early = closings.filter(pl.col("arrival") < _close_ms(survey))
    return early.group_by("upload").agg(sealed.max().alias("until")).rows()


def fresh_closings(counted: BatchCounts, survey: Survey, last: int, rows: UploadRows, seen: Seen) -> pl.DataFrame:
    """The closings that count; the others are counted as refused."""
    closings = _judged(rows.closings.filter(pl.col("standing") > 0), survey, last)
    good = closings.filter(pl.col(_REFUSAL).is_null())
    for reason, refused in closings[_REFUSAL].drop_nulls().value_counts().iter_rows():
        counted.refused[survey.id, Refusal(reason)] += refused

    row = good["row"].to_numpy()
    firsts: dict[ClosingKey, NDArray[np.int64]] = {}
    for period, places in _by_period(good["period"].to_numpy()):
        key = survey.id, period
        ids = rows.ids.take(row[places], axis=0)
        order = first_of_each(ids)
        firsts[key], counted.ids[key] = places[order], ids.take(order, axis=0).tobytes()
    counts = np.zeros(len(good), bool)
    for places in firsts.values():
        counts[places] = True
    for key, some in seen(counted.ids):
        counts[firsts[key][are_in(ids_in(counted.ids[key]), ids_in(some))]] = False
    if duplicates := int((~counts).sum()):
        counted.refused[survey.id, Refusal.DUPLICATE] += duplicates
        fresh = {key: ids_in(ids)[counts[firsts[key]]].tobytes() for key, ids in counted.ids.items()}
        counted.ids = {key: ids for key, ids in fresh.items() if ids}
    return good.filter(pl.Series(counts))


def _by_period(periods: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each period, and the places where it stands, rising."""
    found, times = _times(periods)
    order = np.argsort(periods, kind="stable")
    yield from zip(found.tolist(), np.split(order, np.cumsum(times)[:-1]), strict=False)


def _times(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The keys that there are, rising, none of which is below 0; and how often each is there."""
    if keys.max(initial=0) > max(len(keys), _FEW_KEYS):
        return np.unique(keys, return_counts=True)
    times = np.bincount(keys)
    found = np.flatnonzero(times)
    return found, times[found]


def _count_attendance(counted: BatchCounts, survey: SurveyId, closings: pl.DataFrame) -> None:
    kinds = closings.group_by("group", "period", "stratum", "standing").len()
    for group, period, stratum, standing, heard in kinds.iter_rows():
        key = survey, group, period, StratumNumber(stratum)
        new, missed = (heard if standing == each + 1 else 0 for each in (Standing.NEW, Standing.MISSED))
        counted.attendance[key] = counted.attendance.get(key, Attendance()) + Attendance(heard, new, missed)


def _count_reports(counted: BatchCounts, survey: Survey, rows: UploadRows, closings: pl.DataFrame) -> None:
    """Adds the reports that belong to these closings to the tallies; symbols that cannot be are counted as refused."""
    strata = np.where(rows.answered, _NOT_COUNTED, _UNANSWERED).astype(np.int64)
    strata[closings["row"].to_numpy()] = closings["stratum"].to_numpy()
    for group in rows.groups:
        for place, (number, track) in enumerate(survey.plan.numbered(group)):
            reports = rows.reports(group, place)
            stratum = strata[reports.closing]
            if unanswered := int((stratum == _UNANSWERED).sum()):
                counted.refused[survey.id, Refusal.MALFORMED] += unanswered
            counts, possible = stratum >= 0, reports.symbol < track.randomizer.symbols
            if wrong := int((counts & ~possible).sum()):
                counted.refused[survey.id, Refusal.SYMBOL_OUT_OF_RANGE] += wrong
            good = counts & possible
            columns = reports.node[good], stratum[good], reports.symbol[good]
            for node, of, tally in _tallies(counterpart_of(track.randomizer), *columns):
                counted.tallies[survey.id, number, node, of] = tally


def _tallies(
    counterpart: Counterpart[Randomizer],
    node: NDArray[np.int64],
    stratum: NDArray[np.int64],
    symbol: NDArray[np.uint64],
) -> Iterator[tuple[NodeNumber, StratumNumber, NodeTally]]:
    """The tallies of reports, for each node and stratum that there are reports of."""
    strata = int(stratum.max(initial=0)) + 1
    first = int(node.min(initial=MOST_PERIODS))
    of = (node - first) * strata + stratum
    found, _ = _times(of)
    if len(found) and found[-1] >= len(found):
        of = np.searchsorted(found, of)
    for key, tally in zip(found.tolist(), counterpart.tallies(symbol, of, len(found)), strict=True):
        yield NodeNumber(first + key // strata), StratumNumber(key % strata), tally


_REQUESTS_AT_ONCE = 500
_MOST_PIECES = 16
"""The ids of a closing are kept in so many pieces, which then become one."""
_K = TypeVar("_K")
_V = TypeVar("_V", NodeTally, Attendance)


@dataclass(frozen=True, slots=True)
class TallyDifference:
    """How a survey's counts differ: on how many nodes and closings, and by how much at most.

    most: of reports, entries, or what a slot holds; None where that is below the survey's minimum, and nobody's to see.
    """

    survey: SurveyId
    nodes: int
    closings: int
    most: int | None


def check(store: Store, open_: Open = open_requests) -> list[TallyDifference]:
    """The surveys for which counting the log again comes to something else than is stored. Writes nothing. Raises what
    a fold raises.

    open_: opens requests, here or in other processes.
    """
    with store.view() as view:
        surveys = readable(view.surveys())
        again = _counted_again(view, open_, surveys)
        differences = []
        for id_, each in surveys.items():
            stored = _figures(each, everybody(view.counted_strata(id_, each.survey.plan)))
            counted = _figures(each, again[id_])
            apart = {what: _apart(stored.get(what, ()), counted.get(what, ())) for what in {*stored, *counted}}
            differing = {what: by for what, by in apart.items() if by}
            if differing:
                most, nodes = max(differing.values()), sum(is_node for is_node, _, _ in differing)
                shown = most if most >= each.survey.minimum else None
                differences.append(TallyDifference(id_, nodes, len(differing) - nodes, shown))
        return differences


def _figures(of: StoredSurvey, tallies: Tallies) -> dict[tuple[bool, int, int], Sequence[int]]:
    """The counts of nodes (by track and number) and of closings (by group and period) that are not sealed. Of periods
    after the last that counts some may have been counted before the survey was ended: they are left out."""
    figures, tracks = dict[tuple[bool, int, int], Sequence[int]](), of.survey.plan.tracks
    for (track, number), tally in tallies.items():
        if of.sealed < tracks[track].node(number).end <= of.last:
            figures[True, track, number] = tally.reports, *tally.slots.tolist()
    for (group, period), here in tallies.attendance.items():
        if of.sealed < period <= of.last:
            figures[False, group, period] = here.heard, here.new, here.missed
    return figures


def _apart(one: Sequence[int], other: Sequence[int]) -> int:
    return max((abs(a - b) for a, b in zip_longest(one, other, fillvalue=0)), default=0)


def _counted_again(view: View, open_: Open, stored: Mapping[SurveyId, StoredSurvey]) -> dict[SurveyId, Tallies]:
    """The tallies of each survey, of all that is kept of what the fold has counted."""
    surveys, keys = {id_: each.survey for id_, each in stored.items()}, view.private_keys()
    nodes: dict[SurveyId, dict[PlanNode, NodeTally]] = {id_: {} for id_ in surveys}
    closings: dict[SurveyId, dict[tuple[int, int], Attendance]] = {id_: {} for id_ in surveys}
    seen: dict[ClosingKey, list[bytes]] = {}

    def before(wanted: Mapping[ClosingKey, bytes]) -> Iterable[tuple[ClosingKey, bytes]]:
        return ((key, piece) for key in wanted for piece in seen.get(key, ()))

    requests = view.kept_requests(LogRange(number, 0, each.counted) for number, each in view.streams().items())
    while some := [*islice(requests, _REQUESTS_AT_ONCE)]:
        counted = count(some, open_([each.body for each in some], surveys, keys), stored, before)
        for (survey, track, node, _), tally in counted.tallies.items():
            _add(nodes[survey], (track, node), tally)
        for (survey, group, period, _), here in counted.attendance.items():
            _add(closings[survey], (group, period), here)
        for key, ids in counted.ids.items():
            pieces = seen.setdefault(key, [])
            pieces.append(ids)
            if len(pieces) > _MOST_PIECES:
                seen[key] = [merged_ids(pieces)]
    return {id_: Tallies(nodes[id_], closings[id_]) for id_ in surveys}


def _add(sums: MutableMapping[_K, _V], key: _K, more: _V) -> None:
    sums[key] = sums[key] + more if key in sums else more
