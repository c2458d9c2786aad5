"""The log of upload requests: streams without gaps, arrivals that never decrease, a cursor per stream.

What is folded goes in time; what is not has no gaps. An arrival is given out in the transaction that appends, and no
other is given out until that transaction ends. So (arrival, stream, position) is the order of commits, over all streams
and however many append: whatever a reader has not seen comes after everything that it has.

A stream's requests are rows of this database, all of one survey, or lie in segments; what is read is the same. The
catalogue names the segments, the files of ids, and what is to be deleted. A file of the store's own is in it before it
is written, as one to be deleted: so whatever crashes, it is named or goes.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from heapq import merge
from itertools import takewhile
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

from changeling_protocol import Refusal, SurveyId, UnixMilliseconds
from changeling_statistics import Attendance, NodeTally
from sqlalchemy import ColumnElement, Select, Update, and_, bindparam, case, delete, func, insert, select, update

from ..errors import Overtaken, SegmentLost
from ..segments import LoggedRequest, Place, place_at
from .counts import AttendanceKey, TallyKey, WriteCounts
from .database import Bound
from .schema import cursors, files, log, store, streams

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENT_ENDS = ".parquet"
SURVEY_BYTES = 16
RUN_ENDS = "-"
"""Ends the name of a run of a fold beyond this machine, with which the names of all its files begin."""
_CHUNK = _AT_ONCE = 500
_MOST_DELETED = 20_000
"""The most requests of a stream, or of those that came early, that are deleted at once: appending has to wait."""
_ADVANCE = (
    "UPDATE store SET arrival = CASE WHEN arrival + (stream > ?) > ? THEN arrival + (stream > ?) ELSE ? END, stream = ?"
    " RETURNING arrival"
)
"""Does as `WriteLog.advance_arrival`."""
_LENGTHEN = "UPDATE streams SET length = length + ? WHERE id = ? RETURNING length"
_LOST = "the catalogue has no segment with position {} of stream {}"
_INSERT = "INSERT INTO log (stream, position, arrival, envelope) VALUES "
_MOST_ROWS = 64


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


class LogRange(NamedTuple):
    """The requests of a stream at the positions after `after`, up to `until`; segment: where they lie, None in rows."""

    stream: int
    after: int
    until: int
    segment: Segment | None = None

    @property
    def size(self) -> int:
        """How many bytes its segment has."""
        return 0 if self.segment is None else self.segment.size

    def read(self) -> Iterator[LoggedRequest]:
        """Read the requests of one that lies in a segment. Raises SegmentLost where one is missing."""
        return iter(()) if self.segment is None else requests_between(self.segment, self.after, self.until, once=True)


def positions_after(requests: Sequence[LoggedRequest]) -> dict[int, int]:
    """The last position of each stream among these requests."""
    return {each.stream: each.position for each in requests}


def cursors_after(requests: Sequence[LoggedRequest]) -> dict[int, tuple[int, int]]:
    """The cursor of each stream before and after these requests, which `unread` gave."""
    before = {each.stream: each.position - 1 for each in reversed(requests)}
    return {stream: (before[stream], position) for stream, position in positions_after(requests).items()}


class ReadLog(Bound):
    """Reads the log, and the catalogue of files."""

    def unread(
        self,
        most: int,
        most_bytes: int,
        after: Mapping[int, int] | None = None,
        until: UnixMilliseconds | None = None,
    ) -> list[LoggedRequest]:
        """The next requests that the fold has not counted, in the log's order; empty at its end.

        most, most_bytes: it ends with so many requests, or with the one that reaches so many bytes. after: by stream,
        the positions that are being counted already. until: Unix milliseconds; what arrived later is left out.
        """
        requests, size = [], 0
        behind = {stream: position for stream, position, _ in self._behind()} | dict(after or {})
        for logged in merge(*(self._requests_after(*each) for each in behind.items())):
            if until is not None and logged.arrival > until:
                break
            requests.append(logged)
            size += len(logged.body)
            if len(requests) == most or size >= most_bytes:
                break
        return requests

    def unread_ranges(self, until: UnixMilliseconds) -> list[LogRange]:
        """All that `unread` would give by and by, as ranges of positions, stream by stream in order.

        until: Unix milliseconds; what arrived later is left out. Raises SegmentLost.
        """
        ranges: list[LogRange] = []
        for stream, after, length in self._behind():
            if not self._lies_in_files(stream):
                ranges.append(LogRange(stream, after, self._last_until(until, stream, after, length)))
                continue
            for segment in self._segments(files.c.stream == stream, files.c.last > after):
                if segment.first > after + 1:
                    raise SegmentLost(_LOST.format(after + 1, stream))
                last = segment.last
                if segment.latest > until:
                    rows = takewhile(lambda row: row.arrival <= until, rows_of(segment, after))
                    last = max((row.position for row in rows), default=after)
                ranges.append(LogRange(stream, after, last, segment))
                after = segment.last
            if after < length:
                raise SegmentLost(_LOST.format(after + 1, stream))
        return [each for each in ranges if each.until > each.after]

    def requests_in(self, span: LogRange) -> Iterator[LoggedRequest]:
        """The requests of a range, in order. Raises SegmentLost."""
        return takewhile(lambda each: each.position <= span.until, self._requests_after(span.stream, span.after))

    def kept_requests(self, counted: bool = False) -> Iterator[LoggedRequest]:
        """All requests that are not deleted, in the log's order. counted: only what the fold has counted."""
        positions = self.counted_positions()
        return merge(*(self._kept_requests(stream, at if counted else None) for stream, at in positions.items()))

    def counted_positions(self) -> dict[int, int]:
        """The position up to which the fold has counted each stream."""
        return {row.stream: row.position for row in self._connection.execute(select(cursors))}

    def length_of(self, stream: int) -> int:
        """How many requests were appended to a stream."""
        return int(self._connection.execute(select(streams.c.length).where(streams.c.id == stream)).scalar_one())

    def folded(self) -> int:
        """How many requests the fold has counted, since the store was made."""
        return int(self._connection.execute(select(func.coalesce(func.sum(cursors.c.position), 0))).scalar_one())

    def unfolded(self) -> int:
        """How many requests the fold has not counted."""
        query = select(func.coalesce(func.sum(streams.c.length - cursors.c.position), 0))
        return int(self._connection.execute(query.join(cursors, cursors.c.stream == streams.c.id)).scalar_one())

    def first_unfolded(self) -> UnixMilliseconds | None:
        """The arrival of the first request that the fold has not counted, or an earlier one; None at the log's end.

        The earliest arrival of a segment is taken for it, so that no file is read for this.
        """
        return min((self._next_arrival(stream, position) for stream, position, _ in self._behind()), default=None)

    def latest_arrival(self) -> UnixMilliseconds:
        """The latest arrival given out, or the floor of arrivals where that is later; 0 for an empty store."""
        arrival: UnixMilliseconds = self._connection.execute(select(store.c.arrival)).scalar_one()
        return arrival

    def arrival_floor(self) -> UnixMilliseconds:
        """The moment that no arrival is before, as something was sealed then; 0 for an empty store."""
        floor: UnixMilliseconds = self._connection.execute(select(store.c.floor)).scalar_one()
        return floor

    def retention_due(self, now: UnixMilliseconds, graces: Mapping[SurveyId, int], otherwise: int) -> bool:
        """Tell whether `WriteLog.apply_retention` would find anything."""
        early = select(log.c.needed_until).where(log.c.needed_until < now).limit(1)
        return (
            any(True for _ in self._rows_over(now, graces, otherwise, 1))
            or bool(self._segments_over(now, graces, otherwise))
            or self._connection.execute(early).first() is not None
        )

    def segments(self, *, uncounted: bool = False) -> list[Segment]:
        """The segments of the log, stream by stream in order. uncounted: only those with requests to count."""
        return self._segments(files.c.last > cursors.c.position) if uncounted else self._segments()

    def compactable_segments(self, most_bytes: int, together: int) -> list[Segment]:
        """The segments that the fold has counted whole, of streams with so many of at most this size, in bytes."""
        small = _of_kind(FileKind.SEGMENT, files.c.stream).where(files.c.size <= most_bytes)
        many = small.group_by(files.c.stream).having(func.count() >= together)
        return self._segments(files.c.last <= cursors.c.position, files.c.stream.in_(many))

    def segment_count(self) -> int:
        """How many segments there are."""
        return int(self._connection.execute(_of_kind(FileKind.SEGMENT, func.count())).scalar_one())

    def segment_bytes(self) -> int:
        """How many bytes all segments take."""
        size = func.coalesce(func.sum(files.c.size), 0)
        return int(self._connection.execute(_of_kind(FileKind.SEGMENT, size)).scalar_one())

    def places(self) -> list[str]:
        """The places of segments, which the fold may still need."""
        places = _of_kind(FileKind.SEGMENT, files.c.place).distinct().order_by(files.c.place)
        return [*self._connection.execute(places).scalars()]

    def id_files(self) -> list[IdFile]:
        """All files with ids that were counted beyond this machine."""
        query = _of_kind(FileKind.IDS, files.c.place, files.c.name, files.c.surveys, files.c.size)
        return [IdFile(*row) for row in self._connection.execute(query.order_by(files.c.name))]

    def garbage(self, kind: FileKind = FileKind.GARBAGE) -> list[tuple[str, str]]:
        """The places and names of the files to delete, or of runs."""
        return [(row.place, row.name) for row in self._connection.execute(_of_kind(kind, files.c.place, files.c.name))]

    def streams_in_files(self) -> list[tuple[str, str]]:
        """The streams that lie in segments: their places, and how the names of all their files begin."""
        query = select(streams.c.place, streams.c.prefix).where(streams.c.place.is_not(None))
        return [(row.place, row.prefix) for row in self._connection.execute(query)]

    def _segments(self, *where: ColumnElement[bool]) -> list[Segment]:
        """The segments that meet all these conditions on the tables `files`, `streams` and `cursors`, in order."""
        query = (
            _of_kind(FileKind.SEGMENT, *(files.c[name] for name in Segment._fields))
            .join(streams, streams.c.id == files.c.stream)
            .join(cursors, cursors.c.stream == files.c.stream)
            .where(*where)
            .order_by(files.c.stream, files.c.first)
        )
        return [Segment(*row) for row in self._connection.execute(query)]

    def _behind(self) -> list[tuple[int, int, int]]:
        """The streams that the fold has not counted to their end, with its position in each, and their lengths."""
        rows = self._connection.execute(
            select(streams.c.id, cursors.c.position, streams.c.length)
            .join(cursors, cursors.c.stream == streams.c.id)
            .where(cursors.c.position < streams.c.length)
            .order_by(streams.c.id)
        )
        return [(row.id, row.position, row.length) for row in rows]

    def _kept_requests(self, stream: int, until: int | None) -> Iterator[LoggedRequest]:
        """The requests of a stream that are not deleted, in order. until: the last position; None for all."""
        in_segments = (row for each in self._segments(files.c.stream == stream) for row in rows_of(each))
        last = 0
        for each in merge(self._rows_after(stream, 0, _CHUNK), in_segments):
            if until is not None and each.position > until:
                break
            if each.position > last:  # what came early is kept in a row, too
                yield each
            last = each.position

    def _rows_after(self, stream: int, position: int, at_once: int) -> Iterator[LoggedRequest]:
        """The stream's requests after a position that lie in rows, in order; read so many at once."""
        query = (
            select(log.c.arrival, log.c.stream, log.c.position, log.c.envelope)
            .where(log.c.stream == stream, log.c.position > bindparam("after"))
            .order_by(log.c.position)
            .limit(at_once)
        )
        while rows := self._connection.execute(query, {"after": position}).all():
            yield from map(LoggedRequest._make, rows)
            position = rows[-1].position

    def _requests_after(self, stream: int, position: int, at_once: int = _CHUNK) -> Iterator[LoggedRequest]:
        """The stream's requests after a position that the fold has counted, in order; read so many at once.

        Raises SegmentLost where one of them is in no segment.
        """
        for logged in self._rows_after(stream, position, at_once):
            yield logged
            position = logged.position
        for segment in self._segments(files.c.stream == stream, files.c.last > position):
            yield from requests_between(segment, position, segment.last)
            position = segment.last
        if position < self.length_of(stream):
            raise SegmentLost(_LOST.format(position + 1, stream))

    def _lies_in_files(self, stream: int) -> bool:
        place = select(streams.c.place).where(streams.c.id == stream)
        return self._connection.execute(place).scalar_one() is not None

    def _last_until(self, until: UnixMilliseconds, stream: int, after: int, length: int) -> int:
        """The last position in (after, length] of a stream of rows that arrived by a time: arrivals never decrease."""
        of_range = log.c.stream == stream, log.c.position > after, log.c.position <= length
        later = select(func.min(log.c.position)).where(*of_range, log.c.arrival > until)
        first: int | None = self._connection.execute(later).scalar_one()
        return length if first is None else first - 1

    def _next_arrival(self, stream: int, position: int) -> UnixMilliseconds:
        of_segments = files.c.stream == stream, files.c.last > position
        earliest = select(files.c.earliest).where(*of_segments).order_by(files.c.first).limit(1)
        arrival: UnixMilliseconds | None = self._connection.execute(earliest).scalar_one_or_none()
        return next(self._requests_after(stream, position, 1)).arrival if arrival is None else arrival

    def _rows_over(
        self, now: UnixMilliseconds, graces: Mapping[SurveyId, int], otherwise: int, most: int
    ) -> Iterator[tuple[int, int, int]]:
        """Per stream, which positions (after, until] are next to go: folded, and their survey's grace is over."""
        query = select(streams.c.survey, cursors).join(streams, streams.c.id == cursors.c.stream)
        query = query.where(streams.c.place.is_(None), cursors.c.deleted < cursors.c.position)
        for survey, stream, position, deleted in self._connection.execute(query).all():
            until = min(position, deleted + most)
            last = self._last_until(UnixMilliseconds(now - graces.get(survey, otherwise) - 1), stream, deleted, until)
            if (until := min(until, last)) > deleted:
                yield stream, deleted, until

    def _segments_over(self, now: UnixMilliseconds, graces: Mapping[SurveyId, int], otherwise: int) -> list[Segment]:
        """The folded segments in which each request's time is over: those of the survey with the longest grace, too."""
        least = min([otherwise, *graces.values()])
        old = self._segments(files.c.last <= cursors.c.position, files.c.latest < now - least)
        return [
            each
            for each in old
            if each.latest < now - max((graces.get(id_, otherwise) for id_ in each.survey_ids), default=otherwise)
        ]


class WriteLog(ReadLog, WriteCounts):
    """Writes the log, the catalogue, and what counting adds."""

    def open_stream(self, survey: SurveyId | None = None, place: str | None = None, prefix: str | None = None) -> int:
        """The number of a new, empty stream, which no other process gets.

        survey: whose requests alone it has; None for any. place, prefix: of one that lies in segments, where they are
        and how the names of all of them begin.
        """
        row = {"survey": survey, "length": 0, "place": place, "prefix": prefix}
        number: int = self._connection.execute(insert(streams).values(row).returning(streams.c.id)).scalar_one()
        self._connection.execute(insert(cursors).values(stream=number, position=0, deleted=0))
        return number

    def append(self, stream: int, bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
        """Put requests at a stream's end. Of several streams, those with smaller numbers come first.

        stream: from `open_stream`. now: Unix milliseconds; they all arrive then, or later where that is past.
        """
        if self._connection.dialect.name == "postgresql":
            from .postgresql import append_at_once  # whose driver is not installed everywhere

            append_at_once(self._connection, stream, bodies, now)
        else:
            self._append_to_sqlite(stream, bodies, now)

    def advance_arrival(self, stream: int, now: UnixMilliseconds) -> UnixMilliseconds:
        """The arrival for what this transaction appends to the stream: `now`, or later where that is past.

        now: Unix milliseconds. On a tie a stream with a smaller number moves on, to keep the order of commits. One
        statement reads and writes, so that of transactions at once each waits for the one before to end.
        """
        next_free = store.c.arrival + case((store.c.stream > stream, 1), else_=0)
        arrival: UnixMilliseconds = self._connection.execute(
            update(store)
            .values(arrival=case((next_free > now, next_free), else_=now), stream=stream)
            .returning(store.c.arrival)
        ).scalar_one()
        return arrival

    def stop_appending(self) -> None:
        """Have nothing appended until this transaction ends: what is now the log's end stays its end."""
        self._connection.execute(update(store).values(arrival=store.c.arrival))

    def stop_folding(self) -> None:
        """Have nothing folded until this transaction ends: it reads what is counted by now, and no part of a batch."""
        self._connection.execute(select(cursors.c.stream).order_by(cursors.c.stream).with_for_update()).all()

    def raise_arrival_floor(self, now: UnixMilliseconds) -> None:
        """Let no arrival be before `now`, in Unix milliseconds, from here on, also where arrivals are set back."""
        self._connection.execute(update(store).where(store.c.floor < now).values(floor=now))
        self._connection.execute(update(store).where(store.c.arrival < now).values(arrival=now, stream=0))

    def set_back_arrivals(self, now: UnixMilliseconds) -> None:
        """Give out arrivals from `now` on again, or from their floor, where a clock that was ahead gave out later ones.

        now: Unix milliseconds. What is not folded arrived now, too; what is folded keeps its arrival. Call
        `stop_appending` before, in the same transaction.
        """
        back = max(now, self.arrival_floor())
        for stream, position, _ in self._behind():
            ahead = log.c.stream == stream, log.c.position > position, log.c.arrival > back
            self._connection.execute(update(log).where(*ahead).values(arrival=back))
            for each in (files.c.earliest, files.c.latest):
                of_segments = files.c.stream == stream, files.c.last > position, each > back
                self._connection.execute(update(files).where(*of_segments).values({each.name: back}))
        last = select(func.coalesce(func.max(streams.c.id), 0)).scalar_subquery()  # so that the next is after these
        self._connection.execute(update(store).where(store.c.arrival > back).values(arrival=back, stream=last))

    def add(
        self,
        moves: Mapping[int, tuple[int, int]],
        *,
        tallies: Mapping[TallyKey, NodeTally] | None = None,
        attendance: Mapping[AttendanceKey, Attendance] | None = None,
        refused: Mapping[tuple[SurveyId, Refusal], int] | None = None,
        needed_until: Mapping[tuple[int, int], UnixMilliseconds] | None = None,
        rubbish: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Move the cursors over requests, and add what was counted in them.

        moves: by stream, the cursor before and after. needed_until: Unix milliseconds by stream and position, for
        requests with a closing that came early, which are kept until it is sealed. rubbish: by stream and position, the
        requests that no fold can ever count, which are deleted where they lie in rows.
        Raises Overtaken where another process moved a cursor meanwhile: then nothing of this transaction may stay.
        """
        # Of two folders that read at once one waits here for the other, as both have read the first unread request.
        for stream, (before, after) in sorted(moves.items()):
            at = cursors.c.stream == stream, cursors.c.position == before
            if self._connection.execute(update(cursors).where(*at).values(position=after)).rowcount != 1:
                raise Overtaken(f"another folder has counted stream {stream} beyond {before}")
        self._add_tallies(tallies or {})
        self._add_attendance(attendance or {})
        self.add_refusals(refused or {})
        if needed_until:
            self._keep(needed_until)
        if rows := [{"of": stream, "at": at} for stream, at in rubbish]:
            self._connection.execute(delete(log).where(_NAMED), rows)

    def apply_retention(self, now: UnixMilliseconds, graces: Mapping[SurveyId, int], otherwise: int) -> None:
        """Delete folded requests that no open closing needs: a survey's grace after they arrived, or once the last
        early closing in them is sealed. Where there are many, some are left for the next time.

        A segment goes as a whole, by the longest grace of the surveys in it.

        now: Unix milliseconds. graces: of surveys, in milliseconds. otherwise: for other surveys.
        """
        for stream, after, until in list(self._rows_over(now, graces, otherwise, _MOST_DELETED)):
            of_range = log.c.stream == stream, log.c.position > after, log.c.position <= until
            self._connection.execute(delete(log).where(*of_range, log.c.needed_until.is_(None)))
            self._connection.execute(update(cursors).where(cursors.c.stream == stream).values(deleted=until))
        early = select(log.c.stream.label("of"), log.c.position.label("at")).where(log.c.needed_until < now)
        if rows := [dict(row) for row in self._connection.execute(early.limit(_MOST_DELETED)).mappings()]:
            self._connection.execute(delete(log).where(_NAMED), rows)
        self.replace_segments(self._segments_over(now, graces, otherwise), None)

    def add_segment(self, segment: Segment) -> bool:
        """Let a stream go on with a segment that is durable; False, and nothing is changed, where it has gone on."""
        longer = (
            update(streams)
            .where(streams.c.id == segment.stream, streams.c.length == segment.first - 1)
            .values(length=segment.last)
        )
        if self._connection.execute(longer).rowcount != 1:
            return False
        self._connection.execute(insert(files).values(kind=FileKind.SEGMENT, **segment._asdict()))
        return True

    def replace_segments(self, old: Iterable[Segment], new: Segment | None) -> None:
        """Put one segment, or none, in the place of some that lie behind one another. Their files are then garbage.

        new: its file is garbage until then.
        """
        nothing = dict.fromkeys(("stream", "first", "last", "earliest", "latest", "size", "surveys"))
        for each in old:
            self._connection.execute(_of_file(each).values(kind=FileKind.GARBAGE, **nothing))
        if new is not None:
            self._connection.execute(_of_file(new).values(kind=FileKind.SEGMENT, **new._asdict()))

    def mark_garbage(self, place: str, name: str, kind: FileKind = FileKind.GARBAGE) -> None:
        """Have a file deleted, unless the catalogue comes to name it."""
        self._inserted(files, place=place, name=name, kind=kind)

    def begin_run(self, place: str, run: str) -> None:
        """Have all files at a place whose names begin with this run's, which no other has, be the store's."""
        self.mark_garbage(place, f"{run}{RUN_ENDS}", FileKind.RUN)

    def forget_files(self, deleted: Iterable[tuple[str, str]]) -> None:
        """Take files that are deleted, or runs that have none, out of the catalogue. deleted: places and names."""
        if rows := [{"at": place, "of": name} for place, name in deleted]:
            named = files.c.place == bindparam("at"), files.c.name == bindparam("of")
            self._connection.execute(delete(files).where(*named), rows)

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

    def _keep(self, needed_until: Mapping[tuple[int, int], UnixMilliseconds]) -> None:
        """Keep requests until a time, those in segments as rows: so no file is kept for one of them."""
        rows = [{"of": stream, "at": position, "end": end} for (stream, position), end in needed_until.items()]
        self._connection.execute(update(log).where(_NAMED).values(needed_until=bindparam("end")), rows)
        found = select(streams.c.id).where(streams.c.id.in_({row["of"] for row in rows}), streams.c.place.is_not(None))
        copies = []
        for stream in self._connection.execute(found).scalars().all():
            wanted = {position: end for (of, position), end in needed_until.items() if of == stream}
            reach = files.c.last >= min(wanted), files.c.first <= max(wanted)
            for segment in self._segments(files.c.stream == stream, *reach):
                copies += [
                    {**row._asdict(), "needed_until": wanted[row.position]}
                    for row in rows_of(segment, min(wanted) - 1)
                    if row.position in wanted
                ]
        if copies:
            self._connection.execute(insert(log), [{"envelope": each.pop("body"), **each} for each in copies])

    def _append_to_sqlite(self, stream: int, bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
        """As `append`, on SQLite, in the driver's own words and on its own connection: half the time of a commit.

        One statement for many rows: the driver lets go of the interpreter for each statement, and then waits to get it
        back from whatever else the process is doing.
        """
        driver = self._connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)  # noqa: S101
        ((arrival,),) = driver.execute(_ADVANCE, (stream, now, stream, now, stream)).fetchall()
        ((length,),) = driver.execute(_LENGTHEN, (len(bodies), stream)).fetchall()
        rows = [*enumerate(bodies, length - len(bodies) + 1)]
        while rows:  # by powers of two, as the driver keeps few statements prepared
            count = min(1 << len(rows).bit_length() - 1, _MOST_ROWS)
            values = [value for position, body in rows[:count] for value in (stream, position, arrival, body)]
            driver.execute(_INSERT + ", ".join(["(?, ?, ?, ?)"] * count), values).close()
            rows = rows[count:]


_NAMED = and_(log.c.stream == bindparam("of"), log.c.position == bindparam("at"))


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


def _of_kind(kind: FileKind, *columns: ColumnElement[Any]) -> Select[Any]:
    return select(*columns).select_from(files).where(files.c.kind == kind)


def _of_file(segment: Segment) -> Update:
    return update(files).where(files.c.place == segment.place, files.c.name == segment.name)
