"""The fold of a batch: open, check, drop duplicates, sum. Pure: what was seen before comes as an argument.

Of several reports with one track, node and id the first in the log's order counts, and of several on one node in
one upload the first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import polars as pl
from changeling_protocol import Survey
from changeling_protocol.refusal import Refusal
from changeling_statistics.randomizers import counterpart_of
from changeling_statistics.tallies import NodeTally
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..store import LoggedEnvelope, NodeKey
from .checks import REFUSAL, early_pieces, first_of_each, judged, not_seen
from .columns import id_bytes, id_frame, report_frame
from .opening import Piece, RefusalCounts, open_envelopes

Seen: TypeAlias = Callable[[NodeKey, bytes], Iterable[bytes]]
"""For a node and sorted ids: ids already counted for it, in pieces, with those of the given that were at least."""


@dataclass(slots=True)
class Counted:
    """What a batch adds, by node: tallies, and the ids behind them, sorted; and what was refused.

    held: envelopes with a report on a node that was still open, by stream and position, and until when they are
    needed to count its node again, in Unix milliseconds.
    """

    refused: RefusalCounts
    tallies: dict[NodeKey, NodeTally] = field(default_factory=dict)
    ids: dict[NodeKey, bytes] = field(default_factory=dict)
    held: dict[tuple[int, int], int] = field(default_factory=dict)


def count(
    envelopes: Iterable[LoggedEnvelope],
    surveys: Mapping[bytes, Survey],
    keys: Mapping[bytes, X25519PrivateKey],
    seen: Seen,
) -> Counted:
    """Fold envelopes that follow, in the log's order, everything in `seen`."""
    opened = open_envelopes(envelopes, surveys, keys)
    counted = Counted(opened.refused)
    for (survey, track), pieces in opened.pieces.items():
        _count_track(counted, survey, surveys[survey], track, pieces, seen)
    return counted


def _count_track(
    counted: Counted, id_: bytes, survey: Survey, number: int, pieces: Sequence[Piece], seen: Seen
) -> None:
    track = survey.plan.tracks[number]
    reports = judged(report_frame(track, pieces), survey, track)
    good = reports.filter(pl.col(REFUSAL).is_null())
    for reason, refused in reports.filter(pl.col(REFUSAL).is_not_null())[REFUSAL].value_counts().iter_rows():
        counted.refused[id_, Refusal(reason)] += refused

    fresh = 0
    for of_node in first_of_each(good).partition_by("node", maintain_order=True):
        key = (id_, number, int(of_node["node"][0]))
        for ids in seen(key, id_bytes(of_node)):
            of_node = not_seen(of_node, id_frame(ids))
        if of_node.is_empty():
            continue
        fresh += len(of_node)
        counted.tallies[key] = counterpart_of(track.randomizer).tally(of_node["symbol"].to_numpy())
        counted.ids[key] = id_bytes(of_node)
        for piece, until in early_pieces(of_node, survey, track):
            _, stream, position, _ = pieces[piece].logged
            counted.held[stream, position] = max(until, counted.held.get((stream, position), 0))
    if duplicates := len(good) - fresh:
        counted.refused[id_, Refusal.DUPLICATE] += duplicates
