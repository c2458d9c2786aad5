"""The ids counted for a closing, as runs of sorted ids: a few of each length, from the longest to the shortest.

So a batch adds to what is stored and rewrites little of it: with each rewriting an id gets into a run several times as
long. Runs are read and written in pieces, so that memory does not grow with them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from ..store import ClosingKey
from ..store.runs import CHUNK_BYTES, ID_BYTES, Run, drop_runs, put_runs, read_run, read_runs, runs_of
from .ids import merged_ids

_MOST_ALIKE = (12, 13, 14, 15, 16)
"""So many runs of about one length a closing has; with one more they become one, at once or soon.

Closings take these in turn. As each batch has ids of all of them, they would else all be due with the same batch, and
who counts the next one would wait for it.
"""
_LENGTH_OF_BATCHES, _MORE_OF_BATCHES = 3, 20
"""Of runs of 2,000 to 33,000 ids, as a batch adds them to a closing under load, there may be so many more: to look an
id up in more runs costs less than to write it once more. Of longer ones not, as that would be much to write at once."""
_MOST_REWRITTEN = 4
"""How many times as much as it adds a transaction rewrites, about, so that none takes very long."""
_LEAST_REWRITTEN_BYTES = 32 * 2**20
"""So much it rewrites in any case."""
_AT_ONCE_BYTES = 8 * 2**20
"""What is no more is read, merged and written in one go."""


@dataclass(frozen=True, slots=True)
class Added:
    """Where the ids are that were added to a closing.

    run: the one that holds them. merged: the runs that it took the place of, with all that was in them.
    """

    run: Run
    merged: Sequence[Run] = ()


def add_ids(connection: Connection, added: Mapping[ClosingKey, bytes]) -> dict[ClosingKey, Added]:
    """Add ids to those counted. added: by closing, sorted, laid end to end, none of them counted before.

    Where that would rewrite much more than it adds, some closings have more runs until the next time.
    """
    runs = runs_of(connection, added)
    merging = _merging(runs, added)
    done: dict[ClosingKey, Added] = {}
    for key, ids in added.items():
        others = merging.get(key, ())
        first = min([ids[:ID_BYTES], *(run.first for run in others)])
        size = len(ids) + sum(run.size for run in others)
        done[key] = Added(Run(runs[key][-1].number + 1 if key in runs else 0, first, size), others)
    for keys in _together(done):
        names = [(key, run.number) for key in keys for run in done[key].merged]
        if done[keys[0]].run.size > _AT_ONCE_BYTES:
            (key,) = keys
            for piece in merged([*(read_run(connection, *name) for name in names), [added[key]]]):
                put_runs(connection, [(key, done[key].run.number, piece)])
            drop_runs(connection, names)
        else:
            chunks = read_runs(connection, names)
            drop_runs(connection, names)  # whose room the next take
            whole = {key: merged_ids([*chunks.get(key, []), added[key]]) for key in keys}
            put_runs(connection, ((key, done[key].run.number, ids) for key, ids in whole.items()))
    return done


def _together(done: Mapping[ClosingKey, Added]) -> Iterator[list[ClosingKey]]:
    """The closings, in parts that fit into memory; what does not by itself is a part of its own."""
    part: list[ClosingKey] = []
    size = 0
    for key, added in done.items():
        size += added.run.size
        if part and size > _AT_ONCE_BYTES:
            yield part
            part, size = [], added.run.size
        part.append(key)
    if part:
        yield part


def _merging(
    runs: Mapping[ClosingKey, Sequence[Run]], added: Mapping[ClosingKey, bytes]
) -> dict[ClosingKey, Sequence[Run]]:
    """The runs that are rewritten with what is added: of closings with the most runs first, if it is too much."""
    left = max(_LEAST_REWRITTEN_BYTES, _MOST_REWRITTEN * sum(map(len, added.values())))
    merging: dict[ClosingKey, Sequence[Run]] = {}
    for key, kept in sorted(runs.items(), key=lambda item: -len(item[1])):
        most = _MOST_ALIKE[key[1] % len(_MOST_ALIKE)]
        others = kept[runs_kept([run.size for run in kept], len(added[key]), most) :]
        if left > 0:
            merging[key] = others
            left -= sum(run.size for run in others)
    return merging


def runs_kept(sizes: Sequence[int], size: int, most: int) -> int:
    """How many runs of these sizes, the oldest first, stay as they are when one of this size is added.

    most: so many of about one length there may be, and more of what batches add.

    >>> runs_kept([16 * 80, *[16] * 6], 16, 7), runs_kept([16 * 80, *[16] * 7], 16, 7)
    (7, 1)
    >>> runs_kept([80_000] * 26, 80_000, 7), runs_kept([80_000] * 27, 80_000, 7)
    (26, 0)
    """
    kept = len(sizes)
    while True:
        length = _length(size)
        longer = next((at for at in range(kept, 0, -1) if _length(sizes[at - 1]) > length), 0)
        if kept - longer < most + (_MORE_OF_BATCHES if length == _LENGTH_OF_BATCHES else 0):
            return kept
        size += sum(sizes[longer:kept])
        kept = longer


def _length(size: int) -> int:
    """About how long a run is: one that is sixteen times as long is one more."""
    return (size // ID_BYTES).bit_length() // 4


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
        left += merged_ids([piece[:end] for piece, end in zip(pieces, below, strict=True) if end])
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
