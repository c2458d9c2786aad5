"""The part of the log that a run folds, as pieces of segments: what each task reads, each position once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from changeling_aggregator.fold.ids import merged_ids
from changeling_aggregator.segments import Place, place_at
from changeling_aggregator.segments.form import Row, check_rows, decoded, encoded, rows_after
from changeling_aggregator.segments.id_files import write_ids
from changeling_aggregator.store import ClosingKey, LoggedRequest
from changeling_aggregator.store.id_files import IdFile
from changeling_aggregator.store.log import requests_after
from changeling_aggregator.store.runs import ID_BYTES, read_run
from changeling_aggregator.store.schema import runs
from changeling_aggregator.store.stretches import Stretch
from changeling_protocol import SurveyId, UnixMilliseconds
from sqlalchemy import Connection, select

# MERGED unread: What of the log a run folds. Requests that lie in the database's table are written to segments, for executors.

# MERGED ids_of_runs: The ids that the database's runs hold, written to files for executors to read.


BATCH_REQUESTS = 20_000
BATCH_BYTES = 8 * 2**20
"""So much is opened at once."""
TASK_BYTES = 16 * 2**20
"""About so much of the log is one task's."""
_BEGINNING, _END = UnixMilliseconds(0), UnixMilliseconds(2**63 - 1)


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment's requests at the positions after `after`, up to `until`, of one stream.

    place, name: where the segment lies. size: of its file, in bytes. earliest, latest: its arrivals count as in that
    span, in Unix milliseconds.
    """

    place: str
    name: str
    stream: int
    after: int
    until: int
    size: int
    earliest: UnixMilliseconds = _BEGINNING
    latest: UnixMilliseconds = _END

    def read(self) -> Iterator[LoggedRequest]:
        """Its requests, in order.

        Raises SegmentLost, or ValueError where the file is damaged, lacks one of them, or is another stream's.
        """
        position = self.after
        table = decoded(place_at(self.place).get(self.name))
        check_rows(table, self.stream, 0, 2**63 - 1)  # between which positions it is seen below
        for row in rows_after(table, self.after, (self.earliest, self.latest)):
            if row.position > self.until:
                break
            if row.position != position + 1:
                raise ValueError(f"segment {self.name} lacks position {position + 1} of stream {self.stream}")
            position = row.position
            yield LoggedRequest(row.arrival, self.stream, row.position, row.body)
        if position != self.until:
            raise ValueError(f"segment {self.name} ends before position {self.until} of stream {self.stream}")


def moves_of(pieces: Iterable[Piece]) -> dict[int, tuple[int, int]]:
    """Per stream, the cursor before and after these pieces."""
    moves: dict[int, tuple[int, int]] = {}
    for piece in sorted(pieces, key=lambda each: (each.stream, each.after)):
        before, _ = moves.get(piece.stream, (piece.after, 0))
        moves[piece.stream] = before, piece.until
    return moves


def tasks_of(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """The pieces in groups of about TASK_BYTES, those of a stream together."""
    tasks: list[list[Piece]] = []
    size = TASK_BYTES
    for piece in sorted(pieces, key=lambda each: (each.stream, each.after)):
        if size >= TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += piece.size
    return tasks


def batches_of(pieces: Sequence[Piece]) -> Iterator[list[LoggedRequest]]:
    """The requests of a task, some at a time, each time of one stream and in the log's order."""
    batch: list[LoggedRequest] = []
    size = 0
    for piece in pieces:
        for request in piece.read():
            if batch and (request.stream != batch[0].stream or len(batch) == BATCH_REQUESTS or size >= BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(request)
            size += len(request.body)
    if batch:
        yield batch


_SEGMENT_BYTES = 8 * 2**20
_SEGMENT_REQUESTS = 50_000


def pieces_of(connection: Connection, stretches: Iterable[Stretch], place: Place, run: str) -> list[Piece]:
    """The requests in these stretches. run: names the segments that are written to the place."""
    pieces: list[Piece] = []
    for stretch in stretches:
        stream, after, until, segment = stretch
        if segment is not None:
            span = segment.earliest, segment.latest
            pieces.append(Piece(segment.place, segment.name, stream, after, until, segment.size, *span))
            continue
        for some in _segments(connection, stretch):
            name = f"{run}-log-{stream}-{some[0].position}.parquet"
            content = encoded(stream, [Row(each.position, each.arrival, each.body) for each in some])
            place.put(name, content)
            before = some[0].position - 1
            pieces.append(Piece(place.name, name, stream, before, some[-1].position, len(content)))
    return pieces


def _segments(connection: Connection, stretch: Stretch) -> Iterator[list[LoggedRequest]]:
    some: list[LoggedRequest] = []
    size = 0
    for request in requests_after(connection, stretch.stream, stretch.after):
        if request.position > stretch.until:
            break
        some.append(request)
        size += len(request.body)
        if size >= _SEGMENT_BYTES or len(some) == _SEGMENT_REQUESTS:
            yield some
            some, size = [], 0
    if some:
        yield some


_FILE_BYTES = 2**20 * ID_BYTES


def ids_of_runs(
    connection: Connection, place: Place, run: str, sealed: Mapping[SurveyId, int]
) -> dict[IdFile, list[tuple[ClosingKey, int]]]:
    """Write the ids of closings that are not sealed; returns the files, with the runs that each ends with.

    run: names the files. Every run is in the list of the file that has the last of it.
    """
    written: dict[IdFile, list[tuple[ClosingKey, int]]] = {}
    for survey in sealed:
        for ids, ended in _files(connection, survey):
            name = f"{run}-ids-{survey.hex()}-run{len(written)}.parquet"
            size = write_ids(place, name, ids)
            written[IdFile(place.name, name, survey, size)] = ended
    return written


def _files(connection: Connection, survey: SurveyId) -> Iterator[tuple[dict[int, bytes], list[tuple[ClosingKey, int]]]]:
    query = select(runs.c.period, runs.c.number).where(runs.c.survey == survey).distinct()
    ids: dict[int, list[bytes]] = {}
    ended: list[tuple[ClosingKey, int]] = []
    size = 0
    for period, number in sorted(tuple(row) for row in connection.execute(query)):
        for piece in read_run(connection, (survey, period), number):
            if size >= _FILE_BYTES:
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
