"""What tasks hand on besides lots of closings: what opening found out, and what counting a bucket comes to.

Both pass as bytes of canonical MessagePack, through the shuffle to the driver, which adds them up.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from changeling_aggregator.fold.columns import UploadRows
from changeling_aggregator.fold.counting import OF_A_SURVEY, Counted, count, early_uploads, fresh_closings
from changeling_aggregator.fold.freed_memory import keep_freed_memory
from changeling_aggregator.fold.ids import ids_in, merged_ids
from changeling_aggregator.opening import Kind, Opener, Sheaf, request_number
from changeling_aggregator.segments import place_at
from changeling_aggregator.segments.id_files import read_ids, write_ids
from changeling_aggregator.store import ClosingKey, LoggedRequest
from changeling_aggregator.store.id_files import IdFile
from changeling_aggregator.store.surveys import readable
from changeling_protocol import (
    EarlyEnd,
    NodeNumber,
    Refusal,
    StratumNumber,
    Survey,
    SurveyId,
    TrackNumber,
    UnixMilliseconds,
    canonical,
)
from changeling_statistics import Attendance, NodeTally

from .inputs import Piece, batches_of
from .keys import KeySource, keys_from
from .shuffle import Lot, Spread, lots_of, uploads_of

# MERGED tasks: What executors run: opening the log's requests into lots of closings, and counting a bucket of lots. Both work on Arrow batches, and what they hold at once does not grow with the log: opening holds a batch of requests, counting holds a bucket, of which a run has more the more it reads.


At = tuple[int, int]
"""A request: its stream, and its position."""


@dataclass(slots=True)
class Part:
    """What one task found.

    counted: what it adds, without ids; its `refused` has the envelopes that could not be opened. uploads: how many were
    opened, by survey. failed: the surveys that it could not count. along: for requests that hold a closing from a fast
    clock, until when they are needed for all else that is in them, in Unix milliseconds. files: of ids, which it wrote.
    """

    counted: Counted = field(default_factory=lambda: Counted(Counter()))
    uploads: Counter[SurveyId] = field(default_factory=Counter)
    failed: set[SurveyId] = field(default_factory=set)
    along: dict[At, UnixMilliseconds] = field(default_factory=dict)
    files: list[IdFile] = field(default_factory=list)
    judged: Counter[tuple[SurveyId, Refusal]] = field(default_factory=Counter)
    """Closings and reports that were refused: nothing where their survey could not be counted."""

    def add(self, other: "Part") -> None:
        """Add what another task found."""
        mine, more = self.counted, other.counted
        mine.envelopes += more.envelopes
        mine.refused.update(more.refused)
        mine.rubbish += more.rubbish
        for key, tally in more.tallies.items():
            mine.tallies[key] = mine.tallies[key] + tally if key in mine.tallies else tally
        for place, here in more.attendance.items():
            mine.attendance[place] = mine.attendance.get(place, Attendance(0, 0, 0)) + here
        for at, until in more.held.items():
            mine.held[at] = max(until, mine.held.get(at, until))
        for at, until in other.along.items():
            self.along[at] = max(until, self.along.get(at, until))
        self.uploads.update(other.uploads)
        self.judged.update(other.judged)
        self.failed |= other.failed
        self.files += other.files

    def whole(self) -> Counted:
        """What all parts come to, once they are added: without surveys that could not be counted in one of them."""
        counted = self.counted
        for survey in self.failed:
            counted.uncounted[survey] = self.uploads[survey]
        counted.refused.update({key: count for key, count in self.judged.items() if key[0] not in self.failed})
        counted.tallies = {key: tally for key, tally in counted.tallies.items() if key[0] not in self.failed}
        counted.attendance = {key: here for key, here in counted.attendance.items() if key[0] not in self.failed}
        counted.held = {at: max(until, self.along.get(at, until)) for at, until in counted.held.items()}
        return counted

    def packed(self) -> bytes:
        """Its bytes."""
        counted = self.counted
        return canonical.encode(
            [
                counted.envelopes,
                [list(at) for at in counted.rubbish],
                [[survey, reason.value, count] for (survey, reason), count in counted.refused.items()],
                [[survey, reason.value, count] for (survey, reason), count in self.judged.items()],
                [[*key, each.reports, each.slots.astype("<i8").tobytes()] for key, each in counted.tallies.items()],
                [[*key, each.heard, each.new, each.missed] for key, each in counted.attendance.items()],
                [[*at, until] for at, until in counted.held.items()],
                [[*at, until] for at, until in self.along.items()],
                [[survey, count] for survey, count in self.uploads.items()],
                sorted(self.failed),
                [list(each) for each in self.files],
            ]
        )

    @classmethod
    def unpacked(cls, packed: bytes) -> "Part":
        """The part in such bytes. Raises MalformedBytes."""
        envelopes, rubbish, refused, judged, tallies, attendance, held, along, uploads, failed, files = (
            canonical.decode(packed)
        )
        counted = Counted(
            Counter({(survey, Refusal(reason)): count for survey, reason, count in refused}),
            {
                (survey, TrackNumber(track), NodeNumber(node), StratumNumber(stratum)): NodeTally(
                    reports, np.frombuffer(slots, "<i8").astype(np.int64)
                )
                for survey, track, node, stratum, reports, slots in tallies
            },
            {
                (survey, group, period, StratumNumber(stratum)): Attendance(*counts)
                for survey, group, period, stratum, *counts in attendance
            },
            held={(stream, position): until for stream, position, until in held},
            envelopes=envelopes,
            rubbish=[(stream, position) for stream, position in rubbish],
        )
        return cls(
            counted,
            Counter(dict(uploads)),
            set(failed),
            {(stream, position): until for stream, position, until in along},
            [IdFile(*each) for each in files],
            Counter({(survey, Refusal(reason)): count for survey, reason, count in judged}),
        )


LOTS = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("survey", pa.binary(), nullable=False),
        pa.field("group", pa.int32(), nullable=False),
        pa.field("closings", pa.binary(), nullable=False),
        pa.field("symbols", pa.list_(pa.binary()), nullable=False),
    ]
)
"""Lots; and under a group below 0 ids that were counted before, or what a task found besides."""
PARTS = pa.schema([pa.field("part", pa.binary(), nullable=False)])
_SEEN, _PART = -1, -2
_SEEN_ID = np.dtype([("id", [("high", ">u8"), ("low", ">u8")]), ("period", "<i4")])
_ROWS_AT_ONCE = 64

_log = logging.getLogger("changeling")


@dataclass(frozen=True, slots=True)
class Run:
    """What the tasks of a run have in common; holds no key.

    name: names its files. signed: the surveys, as published. ends: the last period that counts, of those that were
    ended early. sealed: the period up to which closings are sealed, by survey. place: where ids are written.
    """

    name: str
    signed: Mapping[SurveyId, bytes]
    ends: Mapping[SurveyId, int]
    sealed: Mapping[SurveyId, int]
    spread: Spread
    keys: KeySource
    place: str

    def surveys(self) -> dict[SurveyId, Survey]:
        """The surveys that this version can read."""
        return readable(self.signed)

    def last(self, survey: Survey) -> int:
        """The last period that counts."""
        return self.ends.get(survey.id, survey.calendar.periods)


def open_pieces(
    run: Run, tasks: Sequence[Sequence[Piece | IdFile]], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The lots in what these tasks read. numbers: of the tasks, among `tasks`, in a column."""
    for number in (each for batch in numbers for each in batch.column(0).to_pylist()):
        pieces = [each for each in tasks[number] if isinstance(each, Piece)]
        yield from _opened(run, pieces, number)
        for file in tasks[number]:
            if isinstance(file, IdFile):
                yield from _rows(_seen(run, file))


def open_streamed(run: Run, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The lots in the pieces of a task of a query. rows: a piece each, as `source.PIECES` says."""
    columns = [[column.to_pylist() for column in batch.columns] for batch in rows]
    pieces = [Piece(*row) for batch in columns for row in zip(*batch, strict=True)]
    yield from _opened(run, pieces, pieces[0].until if pieces else 0)


def _opened(run: Run, pieces: Sequence[Piece], number: int) -> Iterator[pa.RecordBatch]:
    """The lots in a task's pieces. number: decides which bucket is told what else opening has found, as refusals."""
    if not pieces:
        return
    keep_freed_memory()
    surveys = run.surveys()
    opener, part = Opener(surveys, keys_from(run.keys)), Part()
    for requests in batches_of(pieces):
        yield from _rows(_lots(run, surveys, opener, requests, part))
    yield from _rows(iter([Lot(number % run.spread.buckets, SurveyId(b""), _PART, part.packed(), [])]))


def _lots(
    run: Run, surveys: Mapping[SurveyId, Survey], opener: Opener, requests: list[LoggedRequest], part: Part
) -> Iterator[Lot]:
    """Those of a batch of requests; what else there is to say of them is added to the part."""
    opened = opener.open(enumerate(each.body for each in requests))
    counted = part.counted
    counted.envelopes += opened.envelopes
    counted.refused.update(opened.refused)
    counted.rubbish += [(requests[number].stream, requests[number].position) for number in opened.rubbish]
    by_survey: dict[SurveyId, dict[Kind, Sheaf]] = {}
    for kind, sheaf in opened.sheaves.items():
        by_survey.setdefault(kind.survey, {})[kind] = sheaf
        part.uploads[kind.survey] += len(sheaf.numbers)
    arrivals = np.array([each.arrival for each in requests], np.int64)
    early: set[int] = set()
    for id_, sheaves in by_survey.items():
        survey = surveys[id_]
        try:
            rows = UploadRows(survey.plan, sheaves, arrivals)
            of_survey = Counted(Counter())
            fresh = fresh_closings(of_survey, survey, run.last(survey), rows, lambda _: ())
            if unanswered := _unanswered(survey, rows):
                of_survey.refused[id_, Refusal.MALFORMED] += unanswered
            yield from lots_of(survey, rows, fresh, requests, run.spread)
        except OF_A_SURVEY:
            _log.exception("uploads of survey %s cannot be counted", id_.hex())
            part.failed.add(id_)
            continue
        part.judged.update(of_survey.refused)
        early |= {request_number(upload) for upload, _ in early_uploads(fresh, survey)}
    if early and len(by_survey) > 1:
        _keep_what_came_along(part, surveys, by_survey, requests, early)


def _unanswered(survey: Survey, rows: UploadRows) -> int:
    """How many reports belong to closings that say nothing."""
    places = ((group, place) for group in rows.groups for place in range(len(survey.plan.groups[group].tracks)))
    return sum(int((~rows.answered[rows.reports(group, place).closing]).sum()) for group, place in places)


def _keep_what_came_along(
    part: Part,
    surveys: Mapping[SurveyId, Survey],
    by_survey: Mapping[SurveyId, Mapping[Kind, Sheaf]],
    requests: Sequence[LoggedRequest],
    early: set[int],
) -> None:
    """Of requests with an early closing, until when the surveys need them whose uploads are in them."""
    for id_, sheaves in by_survey.items():
        for number in early & {request_number(upload) for sheaf in sheaves.values() for upload in sheaf.numbers}:
            at = requests[number].stream, requests[number].position
            until = UnixMilliseconds(requests[number].arrival + 1000 * surveys[id_].grace)
            part.along[at] = max(until, part.along.get(at, until))


def _seen(run: Run, file: IdFile) -> Iterator[Lot]:
    """A file's ids of closings that are not sealed, by bucket."""
    for period, packed in read_ids(place_at(file.place), file.name, run.sealed.get(file.survey, 0)):
        ids = ids_in(packed)
        bucket = run.spread.bucket(ids[:, 0], ids[:, 1], np.full(len(ids), period, np.int64))
        order = np.argsort(bucket, kind="stable")
        ids, bucket = ids[order], bucket[order]
        records = np.empty(len(ids), _SEEN_ID)
        records["id"]["high"], records["id"]["low"], records["period"] = ids[:, 0], ids[:, 1], period
        begins = np.flatnonzero(np.r_[True, bucket[1:] != bucket[:-1]][: len(bucket)]).tolist()
        for begin, end in zip(begins, [*begins[1:], len(bucket)], strict=True):
            yield Lot(int(bucket[begin]), file.survey, _SEEN, records[begin:end].tobytes(), [])


def _rows(lots: Iterator[Lot]) -> Iterator[pa.RecordBatch]:
    some: list[Lot] = []
    for lot in lots:
        some.append(lot)
        if len(some) == _ROWS_AT_ONCE:
            yield _batch(some)
            some = []
    if some:
        yield _batch(some)


def _batch(lots: Sequence[Lot]) -> pa.RecordBatch:
    columns = zip(*((lot.bucket, lot.survey, lot.group, lot.closings, list(lot.symbols)) for lot in lots), strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, LOTS, strict=True)], schema=LOTS
    )


def count_lots(run: Run, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the lots of a bucket add, in rows of PARTS; the ids that are counted by then are written to files."""
    keep_freed_memory()
    lots: dict[SurveyId, list[Lot]] = {}
    seen: dict[SurveyId, dict[int, list[bytes]]] = {}
    whole = Part()
    for batch in batches:
        for bucket, survey, group, closings, symbols in zip(
            *(batch.column(at).to_pylist() for at in range(5)), strict=True
        ):
            if group == _PART:
                whole.add(Part.unpacked(closings))
            elif group == _SEEN:
                _remember(seen.setdefault(SurveyId(survey), {}), closings)
            else:
                lots.setdefault(SurveyId(survey), []).append(Lot(bucket, SurveyId(survey), group, closings, symbols))
    for id_ in sorted({*lots, *seen}):
        before = {period: merged_ids(pieces) for period, pieces in seen.get(id_, {}).items()}
        added: Mapping[ClosingKey, bytes] = {}
        if id_ in lots:
            part, added = _counted(run, id_, lots.pop(id_), before)
            whole.add(part)
        ids = {
            period: merged_ids([each for each in (before.get(period), added.get((id_, period))) if each])
            for period in {*before, *(period for _, period in added)}
        }
        if ids and id_ not in whole.failed:
            name = _file_name(run, id_)
            whole.files.append(IdFile(run.place, name, id_, write_ids(place_at(run.place), name, ids)))
    yield pa.RecordBatch.from_arrays([pa.array([whole.packed()], pa.binary())], schema=PARTS)


def _remember(seen: dict[int, list[bytes]], packed: bytes) -> None:
    """Add ids to those seen of a survey, sorted, by period."""
    records = np.frombuffer(packed, _SEEN_ID)
    period = records["period"]
    for each in np.unique(period).tolist():
        seen.setdefault(each, []).append(np.ascontiguousarray(records["id"][period == each]).tobytes())


def _counted(
    run: Run, id_: SurveyId, lots: list[Lot], before: Mapping[int, bytes]
) -> tuple[Part, Mapping[ClosingKey, bytes]]:
    """What the lots of one survey add, and the ids that are counted with them."""
    surveys = {id_: run.surveys()[id_]}
    ends = {ended: EarlyEnd(ended, last) for ended, last in run.ends.items()}
    part = Part()
    try:
        requests, opened = uploads_of(surveys[id_], lots)
    except OF_A_SURVEY:
        _log.exception("closings of survey %s cannot be counted", id_.hex())
        part.failed.add(id_)
        return part, {}
    counted = count(
        requests,
        opened,
        surveys,
        lambda wanted: [(key, before[key[1]]) for key in wanted if key[1] in before],
        ends,
    )
    part.failed |= set(counted.uncounted)
    part.judged, part.counted.tallies = counted.refused, counted.tallies
    part.counted.attendance, part.counted.held = counted.attendance, counted.held
    return part, counted.ids


def _file_name(run: Run, survey: SurveyId) -> str:
    """Of a file that no other task, nor another attempt at this one, writes."""
    return f"{run.name}-ids-{survey.hex()}-{secrets.token_hex(8)}.parquet"
