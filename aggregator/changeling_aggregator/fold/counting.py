"""The fold of a batch: open, check, drop duplicates, sum. Pure: what was seen before comes as an argument.

Of several reports with one track, node and id the first in the log's order counts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import polars as pl
from changeling_protocol import Survey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..refusal import Refusal
from ..store import LogEntry, NodeKey
from ..tallies import NodeTally, tally
from .checks import REFUSAL, first_of_each, judged, not_seen
from .columns import id_bytes, id_frame, report_frame
from .opening import Piece, RefusalCounts, open_entries

Seen: TypeAlias = Callable[[NodeKey], Sequence[bytes]]
"""The runs of ids already counted for a node."""


@dataclass(slots=True)
class Counted:
    """What a batch adds, by node: tallies, and the ids behind them, sorted; and what was refused."""

    refused: RefusalCounts
    tallies: dict[NodeKey, NodeTally] = field(default_factory=dict)
    ids: dict[NodeKey, bytes] = field(default_factory=dict)


def count(
    entries: Iterable[LogEntry],
    surveys: Mapping[bytes, Survey],
    keys: Mapping[bytes, X25519PrivateKey],
    seen: Seen,
) -> Counted:
    """Fold entries that follow, in the log's order, everything in `seen`."""
    opened = open_entries(entries, surveys, keys)
    counted = Counted(opened.refused)
    for (survey, track), pieces in opened.pieces.items():
        _count_track(counted, survey, surveys[survey], track, pieces, seen)
    return counted


def refold(
    batches: Iterable[Iterable[LogEntry]],
    surveys: Mapping[bytes, Survey],
    keys: Mapping[bytes, X25519PrivateKey],
) -> dict[NodeKey, NodeTally]:
    """The tallies of a whole log, folded from empty: what the stored ones must be.

    Envelopes whose private key is destroyed do not open any more, so this holds while the keys live.
    """
    tallies: dict[NodeKey, NodeTally] = {}
    runs: dict[NodeKey, list[bytes]] = {}
    for batch in batches:
        counted = count(batch, surveys, keys, lambda key: runs.get(key, ()))
        for key, added in counted.tallies.items():
            tallies[key] = tallies[key] + added if key in tallies else added
            runs.setdefault(key, []).append(counted.ids[key])
    return tallies


def _count_track(
    counted: Counted, id_: bytes, survey: Survey, number: int, pieces: Sequence[Piece], seen: Seen
) -> None:
    track = survey.plan.tracks[number]
    reports = judged(report_frame(track, pieces), survey, track)
    good = reports.filter(pl.col(REFUSAL).is_null())
    for reason, refused in reports.filter(pl.col(REFUSAL).is_not_null())[REFUSAL].value_counts().iter_rows():
        counted.refused[id_, Refusal(reason)] += refused

    first = first_of_each(good)
    nodes = first["node"].unique().to_list()
    fresh = not_seen(first, _seen_frame({node: seen((id_, number, node)) for node in nodes}))
    if duplicates := len(good) - len(fresh):
        counted.refused[id_, Refusal.DUPLICATE] += duplicates

    for node_reports in fresh.partition_by("node"):
        key = (id_, number, int(node_reports["node"][0]))
        counted.tallies[key] = tally(track.randomizer, node_reports["symbol"].to_numpy())
        counted.ids[key] = id_bytes(node_reports)


def _seen_frame(runs: Mapping[int, Sequence[bytes]]) -> pl.DataFrame:
    frames = [
        id_frame(ids).with_columns(node=pl.lit(node, pl.Int64)) for node, of_node in runs.items() for ids in of_node
    ]
    schema = {"high": pl.UInt64, "low": pl.UInt64, "node": pl.Int64}
    return pl.concat([pl.DataFrame(schema=schema), *frames])
