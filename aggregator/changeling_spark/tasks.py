"""Tasks of executors: reading their part of the log, opening it into blocks of closings, counting a bucket of blocks.

Executors read files alone. So requests and ids that lie in the database are written to files in the shared place first;
a task reads pieces of segments, each position of the log once, and files with ids. Opening and counting work on Arrow
batches, and what they hold at once does not grow with the log: opening holds a batch of requests, counting holds a
bucket, of which a run has more the more it reads. What a task finds besides blocks passes as bytes of MessagePack,
through the shuffle to the driver, which adds it up.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias, get_args, get_origin

import msgspec
import numpy as np
import pyarrow as pa
from changeling_aggregator.fold import OF_A_SURVEY, BatchCounts, UploadRows, count, fresh_closings, ids_in, merged_ids
from changeling_aggregator.opening import ColumnLayout, Opener, Sheaf
from changeling_aggregator.segments import Place, place_at
from changeling_aggregator.segments.parquet import read_ids, write_ids
from changeling_aggregator.store import (
    ID_BYTES,
    ClosingKey,
    IdFile,
    LoggedRequest,
    LogRange,
    StoredSurvey,
    View,
    readable,
    written_segment,
)
from changeling_protocol import (
    Refusal,
    RefusalCounts,
    Survey,
    SurveyId,
)

from .keys import KeySource, keys_from
from .shuffle import ID, ClosingBlock, Partitioner, blocks_of, cut_by, uploads_of

BATCH_REQUESTS = 20_000
BATCH_BYTES = 8 * 2**20
"""The bytes of requests that are opened at once."""
TASK_BYTES = 16 * 2**20
"""About so much of the log is one task's."""
SEGMENT_REQUESTS = 50_000
SEGMENT_BYTES = 8 * 2**20
ID_FILE_BYTES = 2**20 * ID_BYTES
NumberedRun: TypeAlias = tuple[ClosingKey, int]
"""A run of a closing, by its number."""


def moves_of(pieces: Iterable[LogRange]) -> dict[int, tuple[int, int]]:
    """Per stream, the cursor before and after these pieces."""
    moves: dict[int, tuple[int, int]] = {}
    for piece in sorted(pieces):
        before, _ = moves.get(piece.stream, (piece.after, 0))
        moves[piece.stream] = before, piece.until
    return moves


def tasks_of(pieces: Iterable[LogRange]) -> list[list[LogRange]]:
    """The pieces in groups of about TASK_BYTES, those of a stream together."""
    tasks: list[list[LogRange]] = []
    size = TASK_BYTES
    for piece in sorted(pieces):
        if size >= TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += piece.size
    return tasks


def batches_of(requests: Iterable[LoggedRequest], most: int, most_bytes: int) -> Iterator[list[LoggedRequest]]:
    """Requests some at a time, of one stream: at most so many, or up to the one that reaches so many bytes."""
    batch: list[LoggedRequest] = []
    size = 0
    for request in requests:
        if batch and (request.stream != batch[0].stream or len(batch) == most or size >= most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(request)
        size += len(request.body)
    if batch:
        yield batch


def pieces_of(view: View, ranges: Iterable[LogRange], place: Place, run: str) -> list[LogRange]:
    """These ranges of the log, all in segments. run: names those that are written to the place."""
    pieces: list[LogRange] = []
    for span in ranges:
        if span.segment is not None:
            pieces.append(span)
            continue
        for some in batches_of(view.requests_in(span), SEGMENT_REQUESTS, SEGMENT_BYTES):
            segment = written_segment(place, f"{run}-log-{span.stream}-{some[0].position}.parquet", some)
            pieces.append(LogRange(span.stream, segment.first - 1, segment.last, segment))
    return pieces


def ids_of_runs(view: View, place: Place, run: str, surveys: Iterable[SurveyId]) -> dict[IdFile, list[NumberedRun]]:
    """Write the ids in the database's runs to files; returns these, each with the runs whose last ids it has.

    run: names the files.
    """
    written: dict[IdFile, list[NumberedRun]] = {}
    for survey in surveys:
        for ids, ended in _files(view, survey):
            name = f"{run}-ids-{survey.hex()}-run{len(written)}.parquet"
            size = write_ids(place, name, ids)
            written[IdFile(place.name, name, survey, size)] = ended
    return written


def _files(view: View, survey: SurveyId) -> Iterator[tuple[dict[int, bytes], list[NumberedRun]]]:
    """The ids of each file, by period, and the runs that end in it."""
    ids: dict[int, list[bytes]] = {}
    ended: list[NumberedRun] = []
    size = 0
    for period, number in view.runs_of_survey(survey):
        for piece in view.read_run((survey, period), number):
            if size >= ID_FILE_BYTES:
                yield _merged(ids), ended
                ids, ended, size = {}, [], 0
            ids.setdefault(period, []).append(piece)
            size += len(piece)
        ended.append(((survey, period), number))
    if ended:
        yield _merged(ids), ended


def _merged(ids: Mapping[int, Sequence[bytes]]) -> dict[int, bytes]:
    """Each period's sorted: what is in several runs is sorted run by run, and in a file is looked for all at once."""
    return {period: merged_ids(pieces) for period, pieces in ids.items()}


BLOCKS = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("survey", pa.binary(), nullable=False),
        pa.field("group", pa.int32(), nullable=False),
        pa.field("closings", pa.binary(), nullable=False),
        pa.field("symbols", pa.list_(pa.binary()), nullable=False),
    ]
)
"""Blocks; and under a group below 0 ids that were counted before, or what a task found besides."""
FINDINGS = pa.schema([pa.field("findings", pa.binary(), nullable=False)])
_SEEN, _FINDINGS = -1, -2
_SEEN_ID = np.dtype([("id", ID), ("period", "<i4")])
_ROWS_AT_ONCE = 64

_log = logging.getLogger("changeling")


@dataclass(frozen=True, slots=True)
class SparkRun:
    """The settings that all tasks of a run share; holds no key.

    name: names its files. surveys: by id. place: where ids are written.
    """

    name: str
    surveys: Mapping[SurveyId, StoredSurvey]
    partitioner: Partitioner
    keys: KeySource
    place: str

    def sealed(self, survey: SurveyId) -> int:
        """The period up to which a survey's closings are sealed; 0 of one that is not published."""
        return self.surveys[survey].sealed if survey in self.surveys else 0


@dataclass(slots=True)
class Findings:
    """The findings of tasks besides blocks, added up.

    counted: what is added, without ids; its `refused` has the envelopes that could not be opened. uploads: how many
    were opened, by survey. failed: the surveys that could not be counted. files: of ids, which were written. judged:
    closings and reports that were refused, which is nothing where their survey could not be counted.
    """

    counted: BatchCounts = field(default_factory=lambda: BatchCounts(Counter()))
    uploads: Counter[SurveyId] = field(default_factory=Counter)
    failed: set[SurveyId] = field(default_factory=set)
    files: list[IdFile] = field(default_factory=list)
    judged: RefusalCounts = field(default_factory=Counter)

    def add(self, other: "Findings") -> None:
        """Add what another task found."""
        self.counted.add(other.counted)
        self.uploads.update(other.uploads)
        self.judged.update(other.judged)
        self.failed |= other.failed
        self.files += other.files

    def whole(self) -> BatchCounts:
        """The counts of all, once everything is added: without surveys that could not be counted somewhere."""
        counted = self.counted
        for survey in self.failed:
            counted.uncounted[survey] = self.uploads[survey]
        counted.refused.update({key: count for key, count in self.judged.items() if key[0] not in self.failed})
        counted.tallies = {key: tally for key, tally in counted.tallies.items() if key[0] not in self.failed}
        counted.attendance = {key: here for key, here in counted.attendance.items() if key[0] not in self.failed}
        return counted

    def packed(self) -> bytes:
        """Packs it into bytes."""
        return _ENCODER.encode(self)

    @classmethod
    def unpacked(cls, packed: bytes) -> "Findings":
        """The findings in such bytes."""
        return _DECODER.decode(packed)


def _plain(array: object) -> bytes:
    """The bytes of a tally's slots."""
    return np.asarray(array).astype("<i8").tobytes()


def _of_kind(kind: Any, plain: Any) -> object:
    """A counter, or a tally's slots, of what stands for it."""
    if get_origin(kind) is Counter:
        return Counter(msgspec.convert(plain, dict[get_args(kind)[0], int]))  # type: ignore[misc]
    return np.frombuffer(plain, "<i8").astype(np.int64)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
_DECODER = msgspec.msgpack.Decoder(Findings, dec_hook=_of_kind)


def open_pieces(
    run: SparkRun, tasks: Sequence[Sequence[LogRange | IdFile]], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The blocks in what these tasks read. numbers: of the tasks, among `tasks`, in a column."""
    for number in (each for batch in numbers for each in batch.column(0).to_pylist()):
        yield from _opened(run, [each for each in tasks[number] if isinstance(each, LogRange)], number)
        for file in tasks[number]:
            if isinstance(file, IdFile):
                yield from _rows(_seen(run, file))


def _opened(run: SparkRun, pieces: Sequence[LogRange], number: int) -> Iterator[pa.RecordBatch]:
    """The blocks in a task's pieces. number: decides which bucket is told what else opening has found, as refusals."""
    if not pieces:
        return
    stored = readable(run.surveys)
    opener = Opener({id_: each.survey for id_, each in stored.items()}, keys_from(run.keys))
    findings = Findings()
    read = (request for piece in pieces for request in piece.read())
    for requests in batches_of(read, BATCH_REQUESTS, BATCH_BYTES):
        yield from _rows(_blocks(run, stored, opener, requests, findings))
    yield from _rows(
        iter([ClosingBlock(number % run.partitioner.buckets, SurveyId(b""), _FINDINGS, findings.packed(), [])])
    )


def _blocks(
    run: SparkRun,
    surveys: Mapping[SurveyId, StoredSurvey],
    opener: Opener,
    requests: list[LoggedRequest],
    findings: Findings,
) -> Iterator[ClosingBlock]:
    """The blocks in a batch of requests; what else there is to say of these is added to the findings."""
    opened = opener.open(enumerate(each.body for each in requests))
    counted = findings.counted
    counted.envelopes += opened.envelopes
    counted.refused.update(opened.refused)
    counted.rubbish += [(requests[number].stream, requests[number].position) for number in opened.rubbish]
    by_survey: dict[SurveyId, dict[ColumnLayout, Sheaf]] = {}
    for kind, sheaf in opened.sheaves.items():
        by_survey.setdefault(kind.survey, {})[kind] = sheaf
        findings.uploads[kind.survey] += len(sheaf.numbers)
    arrivals = np.array([each.arrival for each in requests], np.int64)
    for id_, sheaves in by_survey.items():
        survey = surveys[id_].survey
        try:
            rows = UploadRows(survey.plan, sheaves, arrivals)
            of_survey = BatchCounts(Counter())
            fresh = fresh_closings(of_survey, survey, surveys[id_].last, rows, lambda _: ())
            if unanswered := _unanswered(survey, rows):
                of_survey.refused[id_, Refusal.MALFORMED] += unanswered
            yield from blocks_of(survey, rows, fresh, requests, run.partitioner)
        except OF_A_SURVEY:
            _log.exception("uploads of survey %s cannot be counted", id_.hex())
            findings.failed.add(id_)
            continue
        findings.judged.update(of_survey.refused)


def _unanswered(survey: Survey, rows: UploadRows) -> int:
    """How many reports belong to closings that say nothing."""
    places = ((group, place) for group in rows.groups for place in range(len(survey.plan.groups[group].tracks)))
    return sum(int((~rows.answered[rows.reports(group, place).closing]).sum()) for group, place in places)


def _seen(run: SparkRun, file: IdFile) -> Iterator[ClosingBlock]:
    """A file's ids of closings that are not sealed, by bucket."""
    for period, packed in read_ids(place_at(file.place), file.name, run.sealed(file.survey)):
        ids = ids_in(packed)
        bucket = run.partitioner.bucket(ids[:, 0], ids[:, 1], np.full(len(ids), period, np.int64))
        order = np.argsort(bucket, kind="stable")
        records = np.empty(len(ids), _SEEN_ID)
        records["id"]["high"], records["id"]["low"], records["period"] = ids[order, 0], ids[order, 1], period
        for each, begin, end in cut_by(bucket[order]):
            yield ClosingBlock(each, file.survey, _SEEN, records[begin:end].tobytes(), [])


def _rows(blocks: Iterator[ClosingBlock]) -> Iterator[pa.RecordBatch]:
    while some := [*islice(blocks, _ROWS_AT_ONCE)]:
        rows = ((each.bucket, each.survey, each.group, each.closings, list(each.symbols)) for each in some)
        columns = zip(zip(*rows, strict=True), BLOCKS, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(column, kind.type) for column, kind in columns], schema=BLOCKS)


def count_blocks(run: SparkRun, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The counts of a bucket's blocks, in rows of FINDINGS; the ids that are counted by then are written to files."""
    blocks: dict[SurveyId, list[ClosingBlock]] = {}
    seen: dict[SurveyId, dict[int, list[bytes]]] = {}
    whole = Findings()
    for row in (row for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True)):
        block = ClosingBlock(*row)
        if block.group == _FINDINGS:
            whole.add(Findings.unpacked(block.closings))
        elif block.group == _SEEN:
            _remember(seen.setdefault(block.survey, {}), block.closings)
        else:
            blocks.setdefault(block.survey, []).append(block)
    for id_ in sorted({*blocks, *seen}):
        before = {period: merged_ids(pieces) for period, pieces in seen.get(id_, {}).items()}
        added: Mapping[ClosingKey, bytes] = {}
        if id_ in blocks:
            findings, added = _counted(run, id_, blocks.pop(id_), before)
            whole.add(findings)
        ids = {
            period: merged_ids([each for each in (before.get(period), added.get((id_, period))) if each])
            for period in {*before, *(period for _, period in added)}
        }
        if ids and id_ not in whole.failed:
            name = f"{run.name}-ids-{id_.hex()}-{secrets.token_hex(8)}.parquet"  # no other attempt writes this one
            whole.files.append(IdFile(run.place, name, id_, write_ids(place_at(run.place), name, ids)))
    yield pa.RecordBatch.from_arrays([pa.array([whole.packed()], pa.binary())], schema=FINDINGS)


def _remember(seen: dict[int, list[bytes]], packed: bytes) -> None:
    """Add ids to those seen of a survey, sorted, by period."""
    records = np.frombuffer(packed, _SEEN_ID)
    for period in np.unique(records["period"]).tolist():
        ids = np.ascontiguousarray(records["id"][records["period"] == period]).tobytes()
        seen.setdefault(period, []).append(ids)


def _counted(
    run: SparkRun, id_: SurveyId, blocks: list[ClosingBlock], before: Mapping[int, bytes]
) -> tuple[Findings, Mapping[ClosingKey, bytes]]:
    """The counts of one survey's blocks, and the ids that are counted with them."""
    stored, findings = run.surveys[id_], Findings()
    try:
        requests, opened = uploads_of(stored.survey, blocks)
    except OF_A_SURVEY:
        _log.exception("closings of survey %s cannot be counted", id_.hex())
        findings.failed.add(id_)
        return findings, {}
    counted = count(
        requests,
        opened,
        {id_: stored},
        lambda wanted: [(key, before[key[1]]) for key in wanted if key[1] in before],
    )
    findings.failed |= set(counted.uncounted)
    findings.judged, findings.counted.tallies = counted.refused, counted.tallies
    findings.counted.attendance, findings.counted.needed_until = counted.attendance, counted.needed_until
    return findings, counted.ids
