"""The plaintext of an upload: what one entry reports of the nodes that closed over some periods.

A MessagePack array [track, columns, track, columns, …], then zeros. The columns of a track are one `bin`: n node
numbers (4 bytes each), n report ids (16) and n symbols (fixed width), big-endian. The length of a plaintext depends on
the plan and on the periods it spans, and on nothing else: a node that the entry does not report has a row of zeros,
and a group with little to report is padded to the length of the group with most.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import msgpack

from .calendar import Node
from .coins import Coins
from .errors import MalformedBytes
from .plan import ReleasePlan, Track
from .quantities import NodeNumber, TrackNumber
from .randomizers import symbol_bytes

NODE_BYTES = 4
REPORT_ID_BYTES = 16
MOST_SPANNED_PERIODS = 64
"""The most periods one upload spans; a longer offline spell sends several."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report on one node.

    track: the track's number in the plan. node: the node's number in its track, from 1 on. id: 16 random bytes.
    symbol: what the track's randomizer gave.
    """

    track: TrackNumber
    node: NodeNumber
    id: bytes
    symbol: int


def draw_report_id(coins: Coins) -> bytes:
    """The id of a new report: 16 uniform bytes, which tell nothing of the entry, and which no other report has."""
    return coins.below(1 << 8 * REPORT_ID_BYTES).to_bytes(REPORT_ID_BYTES)


def closings(plan: ReleasePlan, after: int, until: int) -> list[int]:
    """The periods in (after, until] at which a node of any track ends, rising."""
    if until <= after:
        return []
    return sorted({end for track in plan.tracks for end in _ends(track, Node(after, until))})


def encode_upload(plan: ReleasePlan, group: int, span: Node, reports: Iterable[Report]) -> bytes:
    """The plaintext for an entry of this group.

    span: the periods whose closing it reports, (start, end]. reports: each on a node of one of the group's
    tracks that ends in the span; ValueError otherwise.
    """
    listed = list(reports)
    waiting = {(report.track, report.node): report for report in listed}
    if len(waiting) < len(listed):
        raise ValueError("an upload holds one report a node")
    columns: list[int | bytes] = []
    for number, track in plan.numbered(group):
        first, last = _numbers(track, span)
        rows = [waiting.pop((number, NodeNumber(node)), None) for node in range(first, last + 1)]
        if rows:
            columns += [number, _columns(rows, symbol_bytes(track.randomizer))]
    if waiting:
        raise ValueError(f"not on nodes of group {group} that end in ({span.start}, {span.end}]: {sorted(waiting)}")
    return _packed(columns).ljust(upload_bytes(plan, span), b"\0")


@lru_cache(maxsize=4096)
def upload_bytes(plan: ReleasePlan, span: Node) -> int:
    """The length of a plaintext over these periods: the longest of any group's."""
    return max(len(_packed(_blank_columns(plan, group, span))) for group in range(len(plan.groups)))


def row_bytes(track: Track) -> int:
    """The width of one report of a track."""
    return NODE_BYTES + REPORT_ID_BYTES + symbol_bytes(track.randomizer)


def decode_upload(plaintext: bytes) -> list[tuple[TrackNumber, bytes]]:
    """The number of each track in a plaintext, with its columns, which are not looked into. Raises MalformedBytes."""
    unpacker = msgpack.Unpacker(raw=False, max_buffer_size=len(plaintext))
    unpacker.feed(plaintext)
    try:
        items = unpacker.unpack()
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise MalformedBytes("an upload is a MessagePack array") from error
    if plaintext[unpacker.tell() :].strip(b"\0"):
        raise MalformedBytes("an upload is padded with zeros")
    if not isinstance(items, list) or len(items) % 2:
        raise MalformedBytes("an upload is an array of tracks and their columns")
    pairs = list(zip(items[::2], items[1::2], strict=True))
    if not all(type(track) is int and isinstance(columns, bytes) for track, columns in pairs):
        raise MalformedBytes("an upload is an array of tracks and their columns")
    return pairs


def _columns(rows: list[Report | None], width: int) -> bytes:
    nodes = b"".join((row.node if row else 0).to_bytes(NODE_BYTES) for row in rows)
    ids = b"".join(row.id if row else bytes(REPORT_ID_BYTES) for row in rows)
    return nodes + ids + b"".join((row.symbol if row else 0).to_bytes(width) for row in rows)


def _blank_columns(plan: ReleasePlan, group: int, span: Node) -> list[int | bytes]:
    blank: list[int | bytes] = []
    for number, track in plan.numbered(group):
        first, last = _numbers(track, span)
        if first <= last:
            blank += [number, bytes((last - first + 1) * row_bytes(track))]
    return blank


def _numbers(track: Track, span: Node) -> tuple[int, int]:
    """The first and last number of the track's nodes that end in the span; last < first if there are none."""
    last = min((span.end - track.first) // track.width, track.count)
    return max((span.start - track.first) // track.width + 1, 1), last


def _ends(track: Track, span: Node) -> range:
    first, last = _numbers(track, span)
    return range(track.first + first * track.width, track.first + last * track.width + 1, track.width)


def _packed(items: list[int | bytes]) -> bytes:
    packed: bytes = msgpack.packb(items, use_bin_type=True)
    return packed
