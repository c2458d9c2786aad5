"""Tasks of executors: reading their part of the log, opening it into blocks of closings, counting a bucket of blocks.

Executors read files alone. So requests and ids that lie in the database are written to files in the shared place first;
a task reads pieces of segments, each position of the log once, and files with ids. Opening and counting work on Arrow
batches, and what they hold at once does not grow with the log: opening holds a batch of requests, counting holds a
bucket, of which a run has more the more it reads. What a task finds besides blocks passes as bytes of MessagePack,
through the shuffle to the driver, which adds it up.

A block is of a group and a bucket. It has its closings as records of a fixed width and, for each track of their group,
the symbols of those at whose period a node of it ends. What counts them gets each as an upload of its own, of one
closing: so the embedded fold's counting counts them as it counts any.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, pairwise
from typing import Any, TypeAlias, get_args, get_origin

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from changeling_aggregator.fold import (
    OF_A_SURVEY,
    BatchCounts,
    ColumnLayout,
    Opened,
    Opener,
    Sheaf,
    UploadRows,
    count,
    fresh_closings,
    ids_in,
    merged_ids,
    upload_number,
)
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
from changeling_protocol import Group, Refusal, RefusalCounts, Survey, SurveyId, Track, UnixMilliseconds, symbol_bytes
from changeling_protocol.wire import MOST_ENVELOPES_TAKEN
from numpy.typing import NDArray

from .session import KeySource, keys_from

ID = [("high", ">u8"), ("low", ">u8")]
CLOSING = np.dtype(
    [
        ("id", ID),
        ("period", "<i4"),
        ("arrival", "<i8"),
        ("stream", "<i4"),
        ("position", "<i8"),
        ("place", "<u2"),
        ("standing", "u1"),
        ("stratum", "<u2"),
    ]
)
"""A closing, with where its upload stands in the log: the last of it, `place`, is the envelope's in its request."""
_ROW = np.dtype([("id", ID), ("standing", "u1"), ("stratum", ">u2")])
"""An upload's columns of closings, where it has one closing."""


@dataclass(frozen=True, slots=True)
class Partitioner:
    """A hash of ids and periods, under numbers that are drawn for the run.

    All closings with one id of one period are in one bucket, and those of one period in all of them: so no node,
    however many report on it, is more work for one task than for another. Who sends uploads does not know the numbers,
    and cannot choose ids that meet in one bucket.

    buckets: how many, fewer than 2^31. high, low, period: odd numbers below 2^64, by which the two halves of an id and
    its period are multiplied.
    """

    buckets: int
    high: int
    low: int
    period: int

    @classmethod
    def drawn(cls, buckets: int) -> "Partitioner":
        """One over so many buckets, with fresh numbers."""
        high, low, period = (secrets.randbits(64) | 1 for _ in range(3))
        return cls(buckets, high, low, period)

    def bucket(self, high: NDArray[np.uint64], low: NDArray[np.uint64], period: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bucket of each closing, by its id's halves and its period."""
        mixed = high.astype(np.uint64) * np.uint64(self.high) + low.astype(np.uint64) * np.uint64(self.low)
        mixed += period.astype(np.uint64) * np.uint64(self.period)
        return ((mixed >> np.uint64(33)) * np.uint64(self.buckets) >> np.uint64(31)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ClosingBlock:
    """Closings of one group that are counted in one bucket.

    closings: records of CLOSING. symbols: by the tracks of the group, big-endian, as uploads have them.
    """

    bucket: int
    survey: SurveyId
    group: int
    closings: bytes
    symbols: Sequence[bytes]


def cut_by(buckets: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Each bucket with where it begins and ends. buckets: rising."""
    begins = np.flatnonzero(np.r_[True, buckets[1:] != buckets[:-1]][: len(buckets)]).tolist()
    for begin, end in pairwise([*begins, len(buckets)]):
        yield int(buckets[begin]), begin, end


def blocks_of(
    survey: Survey,
    rows: UploadRows,
    fresh: pl.DataFrame,
    requests: Sequence[LoggedRequest],
    partitioner: Partitioner,
) -> Iterator[ClosingBlock]:
    """The closings that may count, cut into blocks.

    fresh: rows of `rows.closings`. requests: those that the uploads came in, by their numbers.
    """
    streams = np.array([each.stream for each in requests], np.int64)
    positions = np.array([each.position for each in requests], np.int64)
    for group in rows.groups:
        of_group = fresh.filter(pl.col("group") == group)
        columns = {name: of_group[name].to_numpy() for name in of_group.columns}
        ids = rows.ids[columns["row"]]
        bucket = partitioner.bucket(ids[:, 0], ids[:, 1], columns["period"])
        order = np.argsort(bucket, kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
        ids = ids[order]
        records = np.empty(len(order), CLOSING)
        records["id"]["high"], records["id"]["low"] = ids[:, 0], ids[:, 1]
        request, records["place"] = np.divmod(columns["upload"], MOST_ENVELOPES_TAKEN)
        records["stream"], records["position"] = streams[request], positions[request]
        for name in ("period", "arrival", "standing", "stratum"):
            records[name] = columns[name]
        symbols = [
            _symbols(rows, group, place, track, columns["row"], columns["period"])
            for place, track in enumerate(survey.plan.groups[group].tracks)
        ]
        for each, begin, end in cut_by(bucket[order]):
            cut = [written[ends[begin] : ends[end]].tobytes() for written, ends in symbols]
            yield ClosingBlock(each, survey.id, group, records[begin:end].tobytes(), cut)


def _symbols(
    rows: UploadRows, group: int, place: int, track: Track, chosen: NDArray[np.int64], period: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of the symbols at these closings, where a node ends; and how many there are before each closing."""
    reports = rows.reports(group, place)
    written = np.zeros(len(rows.answered), np.uint64)
    written[reports.closing] = reports.symbol + np.uint64(1)
    ends = _node_ends(track, period)
    packed = written[chosen[ends]].astype(">u8").view(np.uint8).reshape(-1, 8)
    return packed[:, 8 - symbol_bytes(track.randomizer) :], np.r_[0, np.cumsum(ends)]


def _node_ends(track: Track, period: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell whether a node of the track ends at each period."""
    past = period - track.first
    ends: NDArray[np.bool_] = (past > 0) & (past % track.width == 0) & (past <= track.count * track.width)
    return ends


def uploads_of(survey: Survey, blocks: Iterable[ClosingBlock]) -> tuple[list[LoggedRequest], Opened]:
    """The closings of these blocks, each as an upload of its own, in the log's order.

    blocks: of this survey. Returns the requests that they came in, without what was in them, and what was.
    """
    by_group: dict[int, list[ClosingBlock]] = {}
    for block in blocks:
        by_group.setdefault(block.group, []).append(block)
    groups = [(group, *_joined(survey.plan.groups[group], some)) for group, some in sorted(by_group.items())]
    requests, numbers = _numbered(np.concatenate([np.empty(0, CLOSING), *(records for _, records, _ in groups)]))
    opened, begin = Opened(), 0
    for group, closings, symbols in groups:
        number = numbers[begin : begin + len(closings)]
        begin += len(closings)
        order = np.lexsort((number, closings["period"]))
        number, closings = number[order], closings[order]
        symbols = [each[order] for each in symbols]
        rows = np.empty(len(closings), _ROW)
        for name in ("id", "standing", "stratum"):
            rows[name] = closings[name]
        for last, at, end in cut_by(closings["period"]):
            written = [
                [each[at:end].tobytes() if _node_ends(track, closings["period"][at : at + 1])[0] else b""]
                for track, each in zip(survey.plan.groups[group].tracks, symbols, strict=True)
            ]
            kind = ColumnLayout(survey.id, group, last - 1, last)
            opened.sheaves[kind] = Sheaf(number[at:end].tolist(), [rows[at:end].tobytes()], written)
    return requests, opened


def _joined(group: Group, blocks: Sequence[ClosingBlock]) -> tuple[NDArray[np.void], list[NDArray[np.uint8]]]:
    """The records of a group's blocks, and for each track the bytes of every closing's symbol; zeros for none."""
    records = np.frombuffer(b"".join(block.closings for block in blocks), CLOSING)
    symbols = []
    for place, track in enumerate(group.tracks):
        width = symbol_bytes(track.randomizer)
        packed = np.zeros((len(records), width), np.uint8)
        written = np.frombuffer(b"".join(block.symbols[place] for block in blocks), np.uint8).reshape(-1, width)
        packed[_node_ends(track, records["period"].astype(np.int64))] = written
        symbols.append(packed)
    return records, symbols


def _numbered(records: NDArray[np.void]) -> tuple[list[LoggedRequest], NDArray[np.int64]]:
    """The requests that closings came in, in the log's order; and of each closing the number of its upload."""
    names = ("arrival", "stream", "position")
    columns = [records[name].astype(np.int64) for name in names]
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    fresh = np.zeros(len(order), bool)
    fresh[:1] = True
    for column in ordered:
        fresh[1:] |= column[1:] != column[:-1]
    request = np.empty(len(order), np.int64)
    request[order] = np.cumsum(fresh) - 1
    firsts = zip(*(column[fresh].tolist() for column in ordered), strict=True)
    requests = [LoggedRequest(UnixMilliseconds(at), stream, position, b"") for at, stream, position in firsts]
    return requests, upload_number(1, 0) * request + records["place"]


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
        after = span.after
        for some in batches_of(view.kept_requests([span]), SEGMENT_REQUESTS, SEGMENT_BYTES):
            segment = written_segment(place, f"{run}-log-{span.stream}-{some[0].position}.parquet", some)
            pieces.append(LogRange(span.stream, after, segment.last, segment))
            after = segment.last
    return pieces


def ids_of_runs(view: View, place: Place, run: str) -> dict[IdFile, list[NumberedRun]]:
    """Write the ids in the database's runs to files; returns these, each with the runs whose last ids it has.

    run: names the files.
    """
    written: dict[IdFile, list[NumberedRun]] = {}
    kept = sorted((key, each.number) for key, runs in view.runs().items() for each in runs)
    for survey, of_survey in groupby(kept, lambda each: each[0][0]):
        for ids, ended in _files(view, of_survey):
            name = f"{run}-ids-{survey.hex()}-run{len(written)}.parquet"
            size = write_ids(place, name, ids)
            written[IdFile(place.name, name, survey, size)] = ended
    return written


def _files(view: View, runs: Iterable[NumberedRun]) -> Iterator[tuple[dict[int, bytes], list[NumberedRun]]]:
    """The ids of each file, by period, and the runs that end in it. runs: of one survey, in order."""
    ids: dict[int, list[bytes]] = {}
    ended: list[NumberedRun] = []
    size = 0
    for key, number in runs:
        for piece in view.read_run(key, number):
            if size >= ID_FILE_BYTES:
                yield _merged(ids), ended
                ids, ended, size = {}, [], 0
            ids.setdefault(key[1], []).append(piece)
            size += len(piece)
        ended.append((key, number))
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
    arrivals = np.array([each.arrival for each in requests], np.int64)
    for id_, sheaves in opened.by_survey().items():
        survey = surveys[id_].survey
        findings.uploads[id_] += sum(len(sheaf.numbers) for sheaf in sheaves.values())
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
