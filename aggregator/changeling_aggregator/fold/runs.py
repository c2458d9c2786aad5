"""Runs of sorted ids: a few per node, each at least twice as long as the next.

So a batch rewrites little of what is stored, and an id is rewritten at most as often as a doubling takes. Runs are
read and written in pieces: what is held of them does not grow with them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import Connection

from ..store import NodeKey
from ..store.runs import CHUNK_BYTES, ID_BYTES, read_run, replace_runs, run_sizes
from .columns import id_bytes, id_frame


def add_run(connection: Connection, key: NodeKey, ids: bytes) -> None:
    """Put ids to those counted for a node. ids: sorted, none of them among those."""
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
    """One run of several, each in sorted pieces; its own pieces are whole chunks but for the last."""
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
    """The bytes that the ids up to this one take."""
    places = range(0, len(ids), ID_BYTES)
    return ID_BYTES * bisect_right(places, bound, key=lambda place: ids[place : place + ID_BYTES])


def _sorted(runs: Sequence[bytes]) -> bytes:
    return runs[0] if len(runs) == 1 else id_bytes(id_frame(b"".join(runs)))
