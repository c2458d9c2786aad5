"""The part of the log that a run folds, as pieces of segments: what each task reads, each position once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from changeling_aggregator.segments import place_at
from changeling_aggregator.segments.form import check_rows, decoded, rows_after
from changeling_aggregator.store import LoggedRequest
from changeling_protocol import UnixMilliseconds

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
