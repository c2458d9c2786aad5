"""Files beside the database: segments of the log, ids that were counted beyond this machine, what is to be deleted.

The catalogue names them. A file of the store's own is in it before it is written, as one to be deleted: so whatever
crashes, it is named or goes.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

from changeling_protocol import SurveyId, UnixMilliseconds
from sqlalchemy import ColumnElement, Select, Update, bindparam, delete, func, insert, select, update

from ..errors import Overtaken, SegmentLost
from ..segments import LoggedRequest, Place, place_at
from .database import Bound
from .schema import cursors, files

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENT_ENDS = ".parquet"
SURVEY_BYTES = 16
RUN_ENDS = "-"
"""Ends the name of a run of a fold beyond this machine, with which the names of all its files begin."""
_AT_ONCE = 500


class FileKind(StrEnum):
    """The kinds of files in the catalogue."""

    SEGMENT = "segment"
    """Requests of a stream."""
    IDS = "ids"
    """Ids that were counted."""
    GARBAGE = "garbage"
    """A file of no use any more, or not yet: whoever has the turn to fold deletes it."""
    RUN = "run"
    """All files whose names begin so: they are this store's, to be deleted but for those with ids that count."""


class Segment(NamedTuple):
    """A file with the requests of one stream from position `first` to `last`.

    earliest, latest: Unix milliseconds; an arrival in the file counts as no earlier and no later. place, name: where
    it is. size: bytes. surveys: the ids of the surveys that its requests are of, end to end; none where nobody knows.
    """

    stream: int
    first: int
    last: int
    earliest: UnixMilliseconds
    latest: UnixMilliseconds
    place: str
    name: str
    size: int
    surveys: bytes = b""

    @property
    def survey_ids(self) -> list[SurveyId]:
        """The surveys that its requests are of; none where nobody knows."""
        return [SurveyId(self.surveys[at : at + SURVEY_BYTES]) for at in range(0, len(self.surveys), SURVEY_BYTES)]


class IdFile(NamedTuple):
    """A file with ids of a survey. place, name: where it lies. size: how many ids are in it."""

    place: str
    name: str
    survey: SurveyId
    size: int


class ReadFiles(Bound):
    """Reads the catalogue of files."""

    def segments(self) -> list[Segment]:
        """The segments of the log, stream by stream in order."""
        return self._segments()

    def id_files(self) -> list[IdFile]:
        """All files with ids that were counted beyond this machine."""
        query = _of_kind(FileKind.IDS, files.c.place, files.c.name, files.c.surveys, files.c.size)
        return [IdFile(*row) for row in self._connection.execute(query.order_by(files.c.name))]

    def _segments(self, *where: ColumnElement[bool]) -> list[Segment]:
        """The segments that meet all these conditions on the tables `files` and `cursors`, in order."""
        query = (
            _of_kind(FileKind.SEGMENT, *(files.c[name] for name in Segment._fields))
            .join(cursors, cursors.c.stream == files.c.stream)
            .where(*where)
            .order_by(files.c.stream, files.c.first)
        )
        return [Segment(*row) for row in self._connection.execute(query)]

    def _compactable(self, most_bytes: int, together: int) -> list[Segment]:
        """The segments that the fold has counted whole, of streams with so many of at most this size, in bytes."""
        small = _of_kind(FileKind.SEGMENT, files.c.stream).where(files.c.size <= most_bytes)
        many = small.group_by(files.c.stream).having(func.count() >= together)
        return self._segments(files.c.last <= cursors.c.position, files.c.stream.in_(many))

    def _named(self, *kinds: FileKind) -> list[tuple[str, str]]:
        """The places and names of all that is of these kinds."""
        query = select(files.c.place, files.c.name).where(files.c.kind.in_(kinds))
        return [(row.place, row.name) for row in self._connection.execute(query)]


class WriteFiles(ReadFiles):
    """Writes the catalogue of files."""

    def replace_id_files(self, before: Sequence[IdFile], after: Iterable[IdFile]) -> None:
        """Put files of ids in the place of others. Raises Overtaken where one of these is not registered any more."""
        gone = 0
        for at in range(0, len(before), _AT_ONCE):
            names = files.c.name.in_([each.name for each in before[at : at + _AT_ONCE]])
            gone += self._connection.execute(delete(files).where(files.c.kind == FileKind.IDS, names)).rowcount
        if gone != len(before):
            raise Overtaken("another folder has put other files of ids in the place of these")
        if rows := [
            {"place": each.place, "name": each.name, "kind": FileKind.IDS, "surveys": each.survey, "size": each.size}
            for each in after
        ]:
            self._connection.execute(insert(files), rows)

    def _replace_segments(self, old: Iterable[Segment], new: Segment | None = None) -> None:
        """Put one segment, or none, in the place of some that lie behind one another. Their files are then garbage.

        new: its file is garbage until then.
        """
        nothing = dict.fromkeys(("stream", "first", "last", "earliest", "latest", "size", "surveys"))
        for each in old:
            self._connection.execute(_of_file(each).values(kind=FileKind.GARBAGE, **nothing))
        if new is not None:
            self._connection.execute(_of_file(new).values(kind=FileKind.SEGMENT, **new._asdict()))

    def _register(self, place: str, name: str, kind: FileKind = FileKind.GARBAGE) -> None:
        """Have a file deleted, unless the catalogue comes to name it; or all files of a run."""
        self._inserted(files, place=place, name=name, kind=kind)

    def _forget(self, deleted: Iterable[tuple[str, str]]) -> None:
        """Take files that are deleted, or runs that have none, out of the catalogue. deleted: places and names."""
        if rows := [{"at": place, "of": name} for place, name in deleted]:
            named = files.c.place == bindparam("at"), files.c.name == bindparam("of")
            self._connection.execute(delete(files).where(*named), rows)


def _of_kind(kind: FileKind, *columns: ColumnElement[Any]) -> Select[Any]:
    return select(*columns).select_from(files).where(files.c.kind == kind)


def _of_file(segment: Segment) -> Update:
    return update(files).where(files.c.place == segment.place, files.c.name == segment.name)


def segment_name(prefix: str, first: int) -> str:
    """A name for a segment that begins with the position `first`, which nothing else has.

    prefix: how the names of the stream's files begin.
    """
    return f"{prefix}-{first:016d}-{token_hex(8)}{SEGMENT_ENDS}"


def written_segment(
    place: Place, name: str, rows: Sequence[LoggedRequest], surveys: Iterable[SurveyId] = ()
) -> Segment:
    """Write requests of a stream to a file of their own; durable when this returns. Raises Unwritable.

    rows: in order of position. surveys: those that the requests are of; none where nobody knows.
    """
    from ..segments.parquet import encoded  # its libraries are not installed everywhere

    content = encoded(rows)
    place.put(name, content)
    arrivals = [row.arrival for row in rows]
    span = rows[0].stream, rows[0].position, rows[-1].position, min(arrivals), max(arrivals)
    return Segment(*span, place.name, name, len(content), b"".join(sorted({*surveys})))


def rows_of(segment: Segment, after: int = 0, *, once: bool = False) -> Iterator[LoggedRequest]:
    """All of a segment's requests after a position, in order, with the arrivals that count. Raises SegmentLost.

    once: whether nobody will go on in the middle of it, so that its content is not kept in memory.
    """
    from ..segments.parquet import rows_after

    read = _table.__wrapped__ if once else _table
    table = read(segment.place, segment.name, segment.stream, segment.first, segment.last)
    return rows_after(table, after, (segment.earliest, segment.latest))


def requests_between(segment: Segment, after: int, until: int, *, once: bool = False) -> Iterator[LoggedRequest]:
    """The requests of a segment at the positions after `after`, up to `until`, as by `rows_of`.

    Raises SegmentLost where one of them is missing: of what is not counted a segment has all, or was changed.
    """
    for row in rows_of(segment, after, once=once):
        if row.position > until or row.position != after + 1:
            break
        after = row.position
        yield row
    if after != until:
        _table.cache_clear()  # so that it is read anew once the right file is back
        raise SegmentLost(f"segment {segment.name} of {segment.place} lacks position {after + 1} of its stream")


@lru_cache(maxsize=8)
def _table(place: str, name: str, stream: int, first: int, last: int) -> "pa.Table":
    """A file's content, which never changes: a batch of the fold goes on in the middle of it."""
    from ..segments.parquet import check_rows, decoded

    try:
        table = decoded(place_at(place).get(name))
        check_rows(table, stream, first, last)
    except ValueError as error:
        raise SegmentLost(f"segment {name} of {place}: {error}") from error
    return table
