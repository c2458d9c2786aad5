"""The ids counted for a closing, as a few runs of sorted ids, each at least twice as long as the next.

So a batch rewrites little of what is stored: with each rewriting an id gets into a run of twice the length at least.
Runs are read and written in pieces, so that memory does not grow with them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import Connection

from ..store import ClosingKey
from ..store.runs import CHUNK_BYTES, ID_BYTES, read_run, replace_runs, run_sizes
from .ids import merged_ids


def add_run(connection: Connection, key: ClosingKey, ids: bytes) -> None:
    """Add ids to those counted for a closing. ids: sorted, laid end to end, none of them counted before."""
    sizes = run_sizes(connection, key)
    numbers = list(sizes)
    short = numbers[runs_kept(list(sizes.values()), len(ids)) :]
    pieces = merged([*(read_run(connection, key, number) for number in short), [ids]])
    replace_runs(connection, key, short, numbers[-1] + 1 if numbers else 0, pieces)


def runs_kept(sizes: Sequence[int], size: int) -> int:
    """How many runs of these sizes, the longest first, stay as they are when one of this size is added.

    >>> runs_kept([64, 16], 16)
    1
    """
    kept = len(sizes)
    while kept and sizes[kept - 1] < 2 * size:
        kept -= 1
        size += sizes[kept]
    return kept


def merged(runs: Sequence[Iterable[bytes]]) -> Iterator[bytes]:
    """Several runs as one.

    runs: each in sorted pieces of ids laid end to end. Yields such pieces, all but the last of whole chunks.
    """
    sources = [iter(run) for run in runs]
    pieces = [next(source, b"") for source in sources]
    left = b""
    while any(pieces):
        bound = min(piece[-ID_BYTES:] for piece in pieces if piece)
        below = [_up_to(piece, bound) for piece in pieces]
        left += _sorted([piece[:end] for piece, end in zip(pieces, below, strict=True) if end])
        pieces = [
            piece[end:] or next(source, b"") if end else piece
            for piece, end, source in zip(pieces, below, sources, strict=True)
        ]
        whole = len(left) - len(left) % CHUNK_BYTES
        if whole:
            yield left[:whole]
            left = left[whole:]
    if left:
        yield left


def _up_to(ids: bytes, bound: bytes) -> int:
    """How many bytes the ids up to and with this one take."""
    places = range(0, len(ids), ID_BYTES)
    return ID_BYTES * bisect_right(places, bound, key=lambda place: ids[place : place + ID_BYTES])


def _sorted(runs: Sequence[bytes]) -> bytes:
    return runs[0] if len(runs) == 1 else merged_ids(runs)
