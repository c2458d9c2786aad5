"""The inputs of a run: the log's requests as pieces of segments, each position once, and files with ids.

Executors read files alone. So requests and ids that lie in the database are written to files in the shared place first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from changeling_aggregator.fold import merged_ids
from changeling_aggregator.segments import Place, place_at
from changeling_aggregator.segments.parquet import SegmentRow, check_rows, decoded, encoded, rows_after, write_ids
from changeling_aggregator.store import ID_BYTES, ClosingKey, IdFile, LoggedRequest, LogRange, View
from changeling_protocol import SurveyId, UnixMilliseconds

BATCH_REQUESTS = 20_000
BATCH_BYTES = 8 * 2**20
"""So much is opened at once."""
TASK_BYTES = 16 * 2**20
"""About so much of the log is one task's."""
SEGMENT_REQUESTS = 50_000
SEGMENT_BYTES = 8 * 2**20
ID_FILE_BYTES = 2**20 * ID_BYTES
NumberedRun: TypeAlias = tuple[ClosingKey, int]
"""A run of a closing, by its number."""
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
    for piece in _in_order(pieces):
        before, _ = moves.get(piece.stream, (piece.after, 0))
        moves[piece.stream] = before, piece.until
    return moves


def tasks_of(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """The pieces in groups of about TASK_BYTES, those of a stream together."""
    tasks: list[list[Piece]] = []
    size = TASK_BYTES
    for piece in _in_order(pieces):
        if size >= TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += piece.size
    return tasks


def _in_order(pieces: Iterable[Piece]) -> list[Piece]:
    return sorted(pieces, key=lambda each: (each.stream, each.after))


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


def pieces_of(view: View, ranges: Iterable[LogRange], place: Place, run: str) -> list[Piece]:
    """The requests in these ranges of the log. run: names the segments that are written to the place."""
    pieces: list[Piece] = []
    for span in ranges:
        if (lies := span.segment) is not None:
            where = lies.place, lies.name, span.stream, span.after, span.until, lies.size
            pieces.append(Piece(*where, lies.earliest, lies.latest))
            continue
        for some in batches_of(view.requests_in(span), SEGMENT_REQUESTS, SEGMENT_BYTES):
            first, last = some[0].position, some[-1].position
            name = f"{run}-log-{span.stream}-{first}.parquet"
            content = encoded(span.stream, [SegmentRow(each.position, each.arrival, each.body) for each in some])
            place.put(name, content)
            pieces.append(Piece(place.name, name, span.stream, first - 1, last, len(content)))
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
