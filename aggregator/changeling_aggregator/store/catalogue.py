"""The catalogue of segments: which files hold which requests of a stream, and up to when all of them are in it.

A segment is read once the catalogue has it, and each request once, whatever other files lie beside it. A stream that
acknowledges before the catalogue knows has a frontier: nothing is folded or sealed beyond the least of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from changeling_protocol import UnixMilliseconds
from sqlalchemy import ColumnElement, Connection, Table, bindparam, case, delete, exists, func, insert, select, update

from ..errors import SegmentLost
from .inserting import insert_missing, inserted
from .schema import cursors, doomed, dropped, held, segments, store, streams

if TYPE_CHECKING:
    import pyarrow as pa

    from ..segments.form import Row

RUN_ENDS = "-"
"""Ends a name in the table `doomed` that stands for all files of a run on Spark, and not for one file."""


class Segment(NamedTuple):
    """A file with the requests of one stream from position `first` to `last`.

    earliest, latest: Unix milliseconds; an arrival in the file counts as no earlier and no later. place, name: where
    it is. size: bytes. cut: whether only what is held of it is wanted.
    """

    stream: int
    first: int
    last: int
    earliest: UnixMilliseconds
    latest: UnixMilliseconds
    place: str
    name: str
    size: int
    cut: bool = False


_COLUMNS = (
    segments.c.stream,
    segments.c.first,
    segments.c.last,
    segments.c.earliest,
    segments.c.latest,
    streams.c.place,
    segments.c.name,
    segments.c.bytes,
    segments.c.cut,
)


def segments_of(connection: Connection, *where: ColumnElement[bool]) -> list[Segment]:
    """The segments that meet all these conditions on the tables `segments`, `streams` and `cursors`, in order."""
    query = (
        select(*_COLUMNS)
        .join(streams, streams.c.id == segments.c.stream)
        .join(cursors, cursors.c.stream == segments.c.stream)
        .where(*where)
        .order_by(segments.c.stream, segments.c.first)
    )
    return [Segment(*row) for row in connection.execute(query)]


def segments_after(connection: Connection, after: Mapping[int, int]) -> list[Segment]:
    """The segments with requests that the fold has not counted, stream by stream, in order.

    after: positions by stream, for those where counting has gone on beyond the stream's cursor. Of a segment in which
    such a position lies only what comes after it is to be counted; of each, what arrived before `frontier_of_all`.
    """
    uncounted = segments_of(connection, segments.c.last > cursors.c.position)
    return [each for each in uncounted if each.last > after.get(each.stream, 0)]


def frontier_of_all(connection: Connection) -> UnixMilliseconds | None:
    """What arrived before this time, in Unix milliseconds, can be counted, and nothing before it comes any more.

    None where all that was acknowledged can be.
    """
    frontier: UnixMilliseconds | None = connection.execute(select(func.min(streams.c.frontier))).scalar_one()
    return frontier


def wake(connection: Connection, stream: int, now: UnixMilliseconds) -> UnixMilliseconds:
    """Give a stream a frontier, before it acknowledges what the catalogue does not have; returns it, or the one it has.

    No arrival of the stream may be before its frontier. now: Unix milliseconds.
    """
    frontier: UnixMilliseconds | None = connection.execute(
        select(streams.c.frontier).where(streams.c.id == stream)
    ).scalar_one()
    if frontier is None:
        next_free = store.c.arrival + 1
        frontier = connection.execute(
            update(store)
            .values(arrival=case((next_free > now, next_free), else_=now), stream=0)
            .returning(store.c.arrival)
        ).scalar_one()
        _set_frontier(connection, stream, frontier)
    return frontier


def move_frontier(connection: Connection, stream: int, frontier: UnixMilliseconds | None) -> None:
    """Say that the catalogue has all of a stream that arrived before its frontier, and that nothing earlier will come.

    frontier: Unix milliseconds; None where the catalogue has all of the stream.
    """
    if frontier is not None:
        connection.execute(update(store).where(store.c.arrival < frontier).values(arrival=frontier, stream=0))
    _set_frontier(connection, stream, frontier)


def frontier_of(connection: Connection, stream: int) -> UnixMilliseconds | None:
    """A stream's own frontier; None where the catalogue has all of it. Until the transaction ends it stays as it is."""
    connection.execute(update(store).values(arrival=store.c.arrival))
    frontier: UnixMilliseconds | None = connection.execute(
        select(streams.c.frontier).where(streams.c.id == stream)
    ).scalar_one()
    return frontier


def add_segment(connection: Connection, segment: Segment) -> bool:
    """Let a stream go on with a segment that is durable; False, and nothing is changed, where it is there already."""
    longer = (
        update(streams)
        .where(streams.c.id == segment.stream, streams.c.length == segment.first - 1)
        .values(length=segment.last)
    )
    if connection.execute(longer).rowcount != 1:
        return False
    _insert(connection, segment)
    return True


def replace_segments(connection: Connection, old: Iterable[Segment], new: Segment | None) -> None:
    """Put one segment, or none, in the place of some that lie behind one another. Their files are then doomed."""
    for each in old:
        of_range = dropped.c.stream == each.stream, dropped.c.position.between(each.first, each.last)
        connection.execute(delete(dropped).where(*of_range))
        connection.execute(delete(segments).where(segments.c.stream == each.stream, segments.c.first == each.first))
        inserted(connection, doomed, place=each.place, name=each.name)
    if new is not None:
        connection.execute(delete(doomed).where(doomed.c.place == new.place, doomed.c.name == new.name))
        _insert(connection, new)


def drop(connection: Connection, requests: Iterable[tuple[int, int]]) -> None:
    """Have requests in segments count as deleted. requests: the stream and the position of each."""
    insert_missing(connection, dropped, [{"stream": stream, "position": position} for stream, position in requests])


def places_of(connection: Connection) -> list[str]:
    """The places of streams of which the fold may still need something."""
    needed = (streams.c.frontier.is_not(None)) | exists().where(segments.c.stream == streams.c.id)
    query = select(streams.c.place).where(streams.c.place.is_not(None), needed).distinct().order_by(streams.c.place)
    return [*connection.execute(query).scalars()]


def in_segments(connection: Connection) -> set[int]:
    """The streams that lie in segments."""
    return {*connection.execute(select(streams.c.id).where(streams.c.place.is_not(None))).scalars()}


def kept_rows(connection: Connection, segment: Segment, after: int = 0) -> "Iterator[Row]":
    """What is still wanted of a segment after a position, in order. Raises SegmentLost."""
    named = positions_in(connection, held if segment.cut else dropped, segment)
    for row in rows_of(segment, after):
        if (row.position in named) == segment.cut:
            yield row


def rows_of(segment: Segment, after: int = 0) -> "Iterator[Row]":
    """All of a segment's rows after a position, in order, with the arrivals that count. Raises SegmentLost."""
    from ..segments.form import rows_after  # its libraries are not installed everywhere

    table = _table(segment.place, segment.name, segment.stream, segment.first, segment.last)
    return rows_after(table, after, (segment.earliest, segment.latest))


@lru_cache(maxsize=8)
def _table(place: str, name: str, stream: int, first: int, last: int) -> "pa.Table":
    """A file's content, which never changes: a batch of the fold goes on in the middle of it."""
    from ..segments import place_at
    from ..segments.form import check_rows, decoded

    try:
        table = decoded(place_at(place).get(name))
        check_rows(table, stream, first, last)
    except ValueError as error:
        raise SegmentLost(f"segment {name} of {place}: {error}") from error
    return table


def segment_bytes(connection: Connection) -> int:
    """How many bytes all segments in the catalogue take."""
    return int(connection.execute(select(func.coalesce(func.sum(segments.c.bytes), 0))).scalar_one())


def doom(connection: Connection, place: str, name: str) -> None:
    """Have a file deleted, unless the catalogue comes to name it."""
    inserted(connection, doomed, place=place, name=name)


def doomed_files(connection: Connection) -> list[tuple[str, str]]:
    """The places and names of the files to delete; without runs, of which `store.run_files` knows."""
    files = select(doomed).where(~doomed.c.name.endswith(RUN_ENDS, autoescape=True))
    return [(row.place, row.name) for row in connection.execute(files)]


def forget_doomed(connection: Connection, files: Iterable[tuple[str, str]]) -> None:
    """These files are deleted."""
    rows = [{"at": place, "of": name} for place, name in files]
    if rows:
        named = doomed.c.place == bindparam("at"), doomed.c.name == bindparam("of")
        connection.execute(delete(doomed).where(*named), rows)


def positions_in(connection: Connection, table: Table, segment: Segment) -> set[int]:
    """The positions of a segment that stand in a table."""
    of_segment = table.c.stream == segment.stream, table.c.position.between(segment.first, segment.last)
    return {*connection.execute(select(table.c.position).where(*of_segment)).scalars()}


def _set_frontier(connection: Connection, stream: int, frontier: UnixMilliseconds | None) -> None:
    connection.execute(update(streams).where(streams.c.id == stream).values(frontier=frontier))


def _insert(connection: Connection, segment: Segment) -> None:
    columns = {name: value for name, value in segment._asdict().items() if name not in ("place", "size")}
    connection.execute(insert(segments).values(**columns, bytes=segment.size))
