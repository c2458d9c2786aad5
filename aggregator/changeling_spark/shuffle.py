"""Closings on their way from the task that opens them to the task that counts them: blocks, each of a group and bucket.

A block has its closings as records of a fixed width and, for each track of their group, the symbols of those at whose
period a node of it ends. What counts them gets each as an upload of its own, of one closing: so the embedded fold's
counting counts them as it counts any.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from changeling_aggregator.fold import UploadRows
from changeling_aggregator.opening import ColumnLayout, Opened, Sheaf, upload_number
from changeling_aggregator.store import LoggedRequest
from changeling_protocol import Group, Survey, SurveyId, Track, UnixMilliseconds, symbol_bytes
from changeling_protocol.wire import MOST_ENVELOPES_TAKEN
from numpy.typing import NDArray

ID = [("high", ">u8"), ("low", ">u8")]
CLOSING = np.dtype(
    [
        ("id", ID),
        ("period", "<i4"),
        ("arrival", "<i8"),
        ("stream", "<i4"),
        ("position", "<i8"),
        ("place", "<u2"),
        ("standing", "u1"),
        ("stratum", "<u2"),
    ]
)
"""A closing, with where its upload stands in the log: the last of it, `place`, is the envelope's in its request."""
_ROW = np.dtype([("id", ID), ("standing", "u1"), ("stratum", ">u2")])
"""An upload's columns of closings, where it has one closing."""


@dataclass(frozen=True, slots=True)
class Partitioner:
    """A hash of ids and periods, under numbers that are drawn for the run.

    All closings with one id of one period are in one bucket, and those of one period in all of them: so no node,
    however many report on it, is more work for one task than for another. Who sends uploads does not know the numbers,
    and cannot choose ids that meet in one bucket.

    buckets: how many, fewer than 2^31. high, low, period: odd numbers below 2^64, by which the two halves of an id and
    its period are multiplied.
    """

    buckets: int
    high: int
    low: int
    period: int

    @classmethod
    def drawn(cls, buckets: int) -> "Partitioner":
        """One over so many buckets, with fresh numbers."""
        high, low, period = (secrets.randbits(64) | 1 for _ in range(3))
        return cls(buckets, high, low, period)

    def bucket(self, high: NDArray[np.uint64], low: NDArray[np.uint64], period: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bucket of each closing, by its id's halves and its period."""
        mixed = high.astype(np.uint64) * np.uint64(self.high) + low.astype(np.uint64) * np.uint64(self.low)
        mixed += period.astype(np.uint64) * np.uint64(self.period)
        return ((mixed >> np.uint64(33)) * np.uint64(self.buckets) >> np.uint64(31)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ClosingBlock:
    """Closings of one group that are counted in one bucket.

    closings: records of CLOSING. symbols: by the tracks of the group, big-endian, as uploads have them.
    """

    bucket: int
    survey: SurveyId
    group: int
    closings: bytes
    symbols: Sequence[bytes]


def cut_by(buckets: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Each bucket with where it begins and ends. buckets: rising."""
    begins = np.flatnonzero(np.r_[True, buckets[1:] != buckets[:-1]][: len(buckets)]).tolist()
    for begin, end in pairwise([*begins, len(buckets)]):
        yield int(buckets[begin]), begin, end


def blocks_of(
    survey: Survey,
    rows: UploadRows,
    fresh: pl.DataFrame,
    requests: Sequence[LoggedRequest],
    partitioner: Partitioner,
) -> Iterator[ClosingBlock]:
    """The closings that may count, cut into blocks.

    fresh: rows of `rows.closings`. requests: those that the uploads came in, by their numbers.
    """
    streams = np.array([each.stream for each in requests], np.int64)
    positions = np.array([each.position for each in requests], np.int64)
    for group in rows.groups:
        of_group = fresh.filter(pl.col("group") == group)
        columns = {name: of_group[name].to_numpy() for name in of_group.columns}
        ids = rows.ids[columns["row"]]
        bucket = partitioner.bucket(ids[:, 0], ids[:, 1], columns["period"])
        order = np.argsort(bucket, kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
        ids = ids[order]
        records = np.empty(len(order), CLOSING)
        records["id"]["high"], records["id"]["low"] = ids[:, 0], ids[:, 1]
        request, records["place"] = np.divmod(columns["upload"], MOST_ENVELOPES_TAKEN)
        records["stream"], records["position"] = streams[request], positions[request]
        for name in ("period", "arrival", "standing", "stratum"):
            records[name] = columns[name]
        symbols = [
            _symbols(rows, group, place, track, columns["row"], columns["period"])
            for place, track in enumerate(survey.plan.groups[group].tracks)
        ]
        for each, begin, end in cut_by(bucket[order]):
            cut = [written[ends[begin] : ends[end]].tobytes() for written, ends in symbols]
            yield ClosingBlock(each, survey.id, group, records[begin:end].tobytes(), cut)


def _symbols(
    rows: UploadRows, group: int, place: int, track: Track, chosen: NDArray[np.int64], period: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of the symbols at these closings, where a node ends; and how many there are before each closing."""
    reports = rows.reports(group, place)
    written = np.zeros(len(rows.answered), np.uint64)
    written[reports.closing] = reports.symbol + np.uint64(1)
    ends = _node_ends(track, period)
    packed = written[chosen[ends]].astype(">u8").view(np.uint8).reshape(-1, 8)
    return packed[:, 8 - symbol_bytes(track.randomizer) :], np.r_[0, np.cumsum(ends)]


def _node_ends(track: Track, period: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell whether a node of the track ends at each period."""
    past = period - track.first
    ends: NDArray[np.bool_] = (past > 0) & (past % track.width == 0) & (past <= track.count * track.width)
    return ends


def uploads_of(survey: Survey, blocks: Iterable[ClosingBlock]) -> tuple[list[LoggedRequest], Opened]:
    """The closings of these blocks, each as an upload of its own, in the log's order.

    blocks: of this survey. Returns the requests that they came in, without what was in them, and what was.
    """
    by_group: dict[int, list[ClosingBlock]] = {}
    for block in blocks:
        by_group.setdefault(block.group, []).append(block)
    groups = [(group, *_joined(survey.plan.groups[group], some)) for group, some in sorted(by_group.items())]
    requests, numbers = _numbered(np.concatenate([np.empty(0, CLOSING), *(records for _, records, _ in groups)]))
    opened, begin = Opened(), 0
    for group, closings, symbols in groups:
        number = numbers[begin : begin + len(closings)]
        begin += len(closings)
        order = np.lexsort((number, closings["period"]))
        number, closings = number[order], closings[order]
        symbols = [each[order] for each in symbols]
        rows = np.empty(len(closings), _ROW)
        for name in ("id", "standing", "stratum"):
            rows[name] = closings[name]
        for last, at, end in cut_by(closings["period"]):
            written = [
                [each[at:end].tobytes() if _node_ends(track, closings["period"][at : at + 1])[0] else b""]
                for track, each in zip(survey.plan.groups[group].tracks, symbols, strict=True)
            ]
            kind = ColumnLayout(survey.id, group, last - 1, last)
            opened.sheaves[kind] = Sheaf(number[at:end].tolist(), [rows[at:end].tobytes()], written)
    return requests, opened


def _joined(group: Group, blocks: Sequence[ClosingBlock]) -> tuple[NDArray[np.void], list[NDArray[np.uint8]]]:
    """The records of a group's blocks, and for each track the bytes of every closing's symbol; zeros for none."""
    records = np.frombuffer(b"".join(block.closings for block in blocks), CLOSING)
    symbols = []
    for place, track in enumerate(group.tracks):
        width = symbol_bytes(track.randomizer)
        packed = np.zeros((len(records), width), np.uint8)
        written = np.frombuffer(b"".join(block.symbols[place] for block in blocks), np.uint8).reshape(-1, width)
        packed[_node_ends(track, records["period"].astype(np.int64))] = written
        symbols.append(packed)
    return records, symbols


def _numbered(records: NDArray[np.void]) -> tuple[list[LoggedRequest], NDArray[np.int64]]:
    """The requests that closings came in, in the log's order; and of each closing the number of its upload."""
    names = ("arrival", "stream", "position")
    columns = [records[name].astype(np.int64) for name in names]
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    fresh = np.zeros(len(order), bool)
    fresh[:1] = True
    for column in ordered:
        fresh[1:] |= column[1:] != column[:-1]
    request = np.empty(len(order), np.int64)
    request[order] = np.cumsum(fresh) - 1
    firsts = zip(*(column[fresh].tolist() for column in ordered), strict=True)
    requests = [LoggedRequest(UnixMilliseconds(at), stream, position, b"") for at, stream, position in firsts]
    return requests, upload_number(1, 0) * request + records["place"]
