"""The ids counted for a closing, as runs of sorted ids: a few of each length, from the longest to the shortest.

So a batch adds to what is stored and rewrites little of it: with each rewriting an id gets into a run several times as
long. Runs are read and written in pieces, so that memory does not grow with them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlalchemy import Connection

from ..store import ClosingKey
from ..store.runs import CHUNK_BYTES, ID_BYTES, Run, drop_runs, put_runs, read_run, read_runs, runs_of
from .ids import merged_ids

_MOST_ALIKE = 7
"""So many runs of about one length a closing has at most; with one more they become one."""


def add_ids(connection: Connection, added: Mapping[ClosingKey, bytes]) -> dict[ClosingKey, Run]:
    """Add ids to those counted. added: by closing, sorted, laid end to end, none of them counted before.

    Returns the runs that hold these ids alone.
    """
    runs = runs_of(connection, added)
    merging = {key: kept[runs_kept([run.size for run in kept], len(added[key])) :] for key, kept in runs.items()}
    next_number = {key: kept[-1].number + 1 for key, kept in runs.items()}
    short: list[ClosingKey] = []
    alone: dict[ClosingKey, Run] = {}
    for key, ids in added.items():
        number = next_number.get(key, 0)
        if not merging.get(key):
            alone[key] = Run(number, ids[:ID_BYTES], len(ids))
        elif sum(run.size for run in merging[key]) <= CHUNK_BYTES:
            short.append(key)
        else:
            for piece in merged([*(read_run(connection, key, run.number) for run in merging[key]), [ids]]):
                put_runs(connection, [(key, number, piece)])
    some = read_runs(connection, ((key, run.number) for key in short for run in merging[key]))
    put_runs(connection, ((key, next_number[key], merged_ids([*chunks, added[key]])) for key, chunks in some.items()))
    put_runs(connection, ((key, run.number, added[key]) for key, run in alone.items()))
    drop_runs(connection, ((key, run.number) for key, those in merging.items() for run in those))
    return alone


def runs_kept(sizes: Sequence[int], size: int) -> int:
    """How many runs of these sizes, the oldest first, stay as they are when one of this size is added.

    >>> runs_kept([16 * 80, *[16] * 6], 16), runs_kept([16 * 80, *[16] * 7], 16)
    (7, 1)
    """
    kept = len(sizes)
    while True:
        longer = next((at for at in range(kept, 0, -1) if _length(sizes[at - 1]) > _length(size)), 0)
        if kept - longer < _MOST_ALIKE:
            return kept
        size += sum(sizes[longer:kept])
        kept = longer


def _length(size: int) -> int:
    """About how long a run is: one that is eight times as long is one more."""
    return (size // ID_BYTES).bit_length() // 3


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
