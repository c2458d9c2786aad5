"""The fold of a batch: open, check, drop duplicates, sum. Pure: which ids were counted before comes as an argument.

Of several closings with the same period and id the first in the log's order counts, with all its reports; what comes
with the others counts nowhere.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import polars as pl
from changeling_protocol import Standing, Survey
from changeling_protocol.ending import EarlyEnd
from changeling_protocol.quantities import NodeNumber, StratumNumber, SurveyId, UnixMilliseconds
from changeling_protocol.refusal import Refusal
from changeling_statistics.randomizers import counterpart_of
from changeling_statistics.tallies import Attendance, NodeTally
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from ..store import AttendanceKey, ClosingKey, LoggedEnvelope, TallyKey
from ..store.counted import RefusalCounts
from .checks import REFUSAL, early_uploads, judged
from .columns import ID, ReportRows, UploadRows
from .ids import are_in, first_of_each, packed_ids
from .opening import Kind, Opened, Sheaf, open_requests, request_number

Seen: TypeAlias = Callable[[ClosingKey, bytes], Iterable[bytes]]
"""Called with a closing and sorted ids; gives ids that were counted for it, among them all of those given that were.

Each piece is sorted ids laid end to end.
"""

Open: TypeAlias = Callable[[Sequence[bytes], Mapping[SurveyId, Survey], Mapping[bytes, X25519PrivateKey]], Opened]
"""Called with requests, with surveys by id, and with private keys by key id; `open_requests`, or what does the same."""

_OF_A_SURVEY = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError, pl.exceptions.PolarsError)
"""What a defect raises in counting a survey; a store that fails, or memory that ends, is no survey's own trouble."""

_log = logging.getLogger("changeling")

_NOT_COUNTED = -1
"""Stands for the stratum of a closing that does not count."""


@dataclass(slots=True)
class Counted:
    """What a batch adds to what is counted.

    envelopes: how many there were. rubbish: the requests, by stream and position, that no fold can ever count.
    refused: how many closings and reports, by survey and reason. tallies: by node and stratum. attendance: by group,
    closing and stratum. ids: of the closings that count, sorted.
    held: until when an envelope is needed to count an open node again, in Unix milliseconds, by the envelope's stream
    and position; only of envelopes with a closing that arrived before its period had ended.
    uncounted: how many envelopes add nothing because their survey cannot be counted, by survey.
    """

    refused: RefusalCounts
    tallies: dict[TallyKey, NodeTally] = field(default_factory=dict)
    attendance: dict[AttendanceKey, Attendance] = field(default_factory=dict)
    ids: dict[ClosingKey, bytes] = field(default_factory=dict)
    held: dict[tuple[int, int], UnixMilliseconds] = field(default_factory=dict)
    uncounted: Counter[SurveyId] = field(default_factory=Counter)
    envelopes: int = 0
    rubbish: list[tuple[int, int]] = field(default_factory=list)

    def add(self, other: "Counted") -> None:
        """Add what a survey adds that is not in here yet."""
        self.refused.update(other.refused)
        self.tallies |= other.tallies
        self.attendance |= other.attendance
        self.ids |= other.ids
        for at, until in other.held.items():
            self.held[at] = max(until, self.held.get(at, until))


def count(
    requests: Sequence[LoggedEnvelope],
    surveys: Mapping[SurveyId, Survey],
    keys: Mapping[bytes, X25519PrivateKey],
    seen: Seen,
    ends: Mapping[SurveyId, EarlyEnd],
    open_: Open = open_requests,
) -> Counted:
    """What these requests add.

    requests: in the log's order, after all whose ids are in `seen`. surveys: by id. keys: private keys by key id.
    ends: of the surveys that were ended early, by id. A survey whose counting fails harms no other. Raises what `seen`
    raises of a store that fails.
    """
    opened = open_([each.envelope for each in requests], surveys, keys)
    rubbish = [(requests[number].stream, requests[number].position) for number in opened.rubbish]
    counted = Counted(opened.refused, envelopes=opened.envelopes, rubbish=rubbish)
    by_survey: dict[SurveyId, dict[Kind, Sheaf]] = {}
    for kind, sheaf in opened.sheaves.items():
        by_survey.setdefault(kind.survey, {})[kind] = sheaf
    for id_, sheaves in by_survey.items():
        last = ends[id_].last if id_ in ends else surveys[id_].calendar.periods
        try:
            counted.add(_count_survey(surveys[id_], last, sheaves, requests, seen))
        except _OF_A_SURVEY:
            uploads = sum(len(sheaf.numbers) for sheaf in sheaves.values())
            _log.exception("%d uploads of survey %s cannot be counted", uploads, id_.hex())
            counted.uncounted[id_] += uploads
    return counted


def _count_survey(
    survey: Survey, last: int, sheaves: Mapping[Kind, Sheaf], requests: Sequence[LoggedEnvelope], seen: Seen
) -> Counted:
    counted = Counted(Counter())
    rows = UploadRows(survey.plan, sheaves, np.array([each.arrival for each in requests], np.int64))
    fresh = _fresh_closings(counted, survey, last, rows.closings, seen)
    for upload, until in early_uploads(fresh, survey):
        request = requests[request_number(upload)]
        at = request.stream, request.position
        counted.held[at] = max(until, counted.held.get(at, until))
    _count_attendance(counted, survey.id, fresh)
    _count_reports(counted, survey, rows, fresh)
    return counted


def _fresh_closings(counted: Counted, survey: Survey, last: int, closings: pl.DataFrame, seen: Seen) -> pl.DataFrame:
    """The closings that count; the others are counted as refused."""
    closings = judged(closings.filter(pl.col("standing") > 0), survey, last)
    good = closings.filter(pl.col(REFUSAL).is_null())
    for reason, refused in closings.filter(pl.col(REFUSAL).is_not_null())[REFUSAL].value_counts().iter_rows():
        counted.refused[survey.id, Refusal(reason)] += refused

    counts = np.zeros(len(good), bool)
    high, low = (good[half].to_numpy() for half in ID)
    for period, places in _by_period(good["period"].to_numpy()):
        key = survey.id, period
        places = places[first_of_each(high[places], low[places])]
        for ids in seen(key, packed_ids(high[places], low[places])):
            places = places[~are_in(high[places], low[places], ids)]
        if len(places):
            counted.ids[key] = packed_ids(high[places], low[places])
            counts[places] = True
    known = good.filter(counts)
    if duplicates := len(good) - len(known):
        counted.refused[survey.id, Refusal.DUPLICATE] += duplicates
    return known


def _by_period(periods: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each period, and the places where it stands, rising."""
    order, begins = _alike(periods)
    for begin, end in zip(begins, [*begins[1:], len(order)], strict=False):
        yield int(periods[order[begin]]), order[begin:end]


def _alike(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """An order in which equal numbers stand together, as they stood; and where each of them begins in it.

    keys: not below 0. Those below 2^16, as nearly always, are sorted by their bits, in a tenth of the time.
    """
    small = len(keys) and int(keys.max()) < 2**16
    order = np.argsort(keys.astype(np.uint16) if small else keys, kind="stable")
    ordered = keys[order]
    return order, np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(keys)])


def _count_attendance(counted: Counted, survey: SurveyId, closings: pl.DataFrame) -> None:
    marked = {
        standing.name.lower(): (pl.col("standing") == standing + 1).sum()
        for standing in (Standing.NEW, Standing.MISSED)
    }
    heard = closings.group_by("group", "period", "stratum").agg(heard=pl.len(), **marked)
    for group, period, stratum, *numbers in heard.iter_rows():
        counted.attendance[survey, group, period, StratumNumber(stratum)] = Attendance(*numbers)


def _count_reports(counted: Counted, survey: Survey, rows: UploadRows, closings: pl.DataFrame) -> None:
    """Adds the reports that belong to these closings to the tallies; symbols that cannot be are counted as refused."""
    answered = rows.answered
    strata = np.full(len(answered), _NOT_COUNTED)
    strata[closings["row"].to_numpy()] = closings["stratum"].to_numpy()
    for group in rows.groups:
        for place, (number, track) in enumerate(survey.plan.numbered(group)):
            reports = rows.reports(group, place)
            if unanswered := int((~answered[reports.closing]).sum()):
                counted.refused[survey.id, Refusal.MALFORMED] += unanswered
            counts = strata[reports.closing] != _NOT_COUNTED
            possible = reports.symbol < track.randomizer.symbols
            if wrong := int((counts & ~possible).sum()):
                counted.refused[survey.id, Refusal.SYMBOL_OUT_OF_RANGE] += wrong
            counterpart = counterpart_of(track.randomizer)
            for node, stratum, symbols in _by_node(reports, strata, counts & possible):
                counted.tallies[survey.id, number, node, stratum] = counterpart.tally(symbols)


def _by_node(
    reports: ReportRows, strata: NDArray[np.int64], which: NDArray[np.bool_]
) -> Iterator[tuple[NodeNumber, StratumNumber, NDArray[np.uint64]]]:
    """The symbols of these reports for each node and stratum.

    strata: of the closings, by row. which: of the reports, those that are wanted.
    """
    node, stratum, symbol = reports.node[which], strata[reports.closing[which]], reports.symbol[which]
    order, begins = _alike(node * (1 + stratum.max(initial=0)) + stratum)
    symbol = symbol[order]
    for begin, end in zip(begins, [*begins[1:], len(node)], strict=False):
        first = order[begin]
        yield NodeNumber(int(node[first])), StratumNumber(int(stratum[first])), symbol[begin:end]
