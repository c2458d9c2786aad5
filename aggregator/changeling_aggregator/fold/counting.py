"""The fold of a batch: open, check, drop duplicates, sum. Pure: which ids were counted before comes as an argument.

Of several reports with the same track, node and id the first in the log's order counts; of several on one node in one
upload the first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import polars as pl
from changeling_protocol import Survey
from changeling_protocol.quantities import NodeNumber, SurveyId, TrackNumber, UnixMilliseconds
from changeling_protocol.refusal import Refusal
from changeling_statistics.randomizers import counterpart_of
from changeling_statistics.tallies import NodeTally
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..store import LoggedEnvelope, NodeKey
from ..store.counted import RefusalCounts
from .checks import REFUSAL, early_pieces, first_of_each, judged, not_seen
from .columns import id_bytes, id_frame, report_frame
from .opening import Piece, open_envelopes

Seen: TypeAlias = Callable[[NodeKey, bytes], Iterable[bytes]]
"""Called with a node and sorted ids; gives ids that were counted for the node, among them all of those given that were.

Each piece is ids laid end to end.
"""


@dataclass(slots=True)
class Counted:
    """What a batch adds to what is counted.

    refused: how many reports, by survey and reason. tallies: by node. ids: of the reports in each tally, sorted.
    held: until when an envelope is needed to count an open node again, in Unix milliseconds, by the envelope's stream
    and position; only of envelopes with a report that arrived before its node had closed.
    """

    refused: RefusalCounts
    tallies: dict[NodeKey, NodeTally] = field(default_factory=dict)
    ids: dict[NodeKey, bytes] = field(default_factory=dict)
    held: dict[tuple[int, int], UnixMilliseconds] = field(default_factory=dict)


def count(
    envelopes: Iterable[LoggedEnvelope],
    surveys: Mapping[SurveyId, Survey],
    keys: Mapping[bytes, X25519PrivateKey],
    seen: Seen,
) -> Counted:
    """What these envelopes add.

    envelopes: in the log's order, after all whose ids are in `seen`. surveys: by id. keys: private keys by key id.
    """
    opened = open_envelopes(envelopes, surveys, keys)
    counted = Counted(opened.refused)
    for (survey, track), pieces in opened.pieces.items():
        _count_track(counted, survey, surveys[survey], track, pieces, seen)
    return counted


def _count_track(
    counted: Counted, id_: SurveyId, survey: Survey, number: TrackNumber, pieces: Sequence[Piece], seen: Seen
) -> None:
    track = survey.plan.tracks[number]
    reports = judged(report_frame(track, pieces), survey, track)
    good = reports.filter(pl.col(REFUSAL).is_null())
    for reason, refused in reports.filter(pl.col(REFUSAL).is_not_null())[REFUSAL].value_counts().iter_rows():
        counted.refused[id_, Refusal(reason)] += refused

    fresh = 0
    for of_node in first_of_each(good).partition_by("node", maintain_order=True):
        key = (id_, number, NodeNumber(int(of_node["node"][0])))
        for ids in seen(key, id_bytes(of_node)):
            of_node = not_seen(of_node, id_frame(ids))
        if of_node.is_empty():
            continue
        fresh += len(of_node)
        counted.tallies[key] = counterpart_of(track.randomizer).tally(of_node["symbol"].to_numpy())
        counted.ids[key] = id_bytes(of_node)
        for piece, until in early_pieces(of_node, survey, track):
            _, stream, position, _ = pieces[piece].logged
            counted.held[stream, position] = max(until, counted.held.get((stream, position), until))
    if duplicates := len(good) - fresh:
        counted.refused[id_, Refusal.DUPLICATE] += duplicates
