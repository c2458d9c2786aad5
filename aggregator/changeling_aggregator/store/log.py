"""The log of upload requests: streams without gaps, arrivals that never decrease, a cursor per stream.

What is folded goes in time; what is not has no gaps. An arrival is given out in the transaction that appends, and no
other is given out until that transaction ends. So (arrival, stream, position) is the order of commits, over all streams
and however many append: whatever a reader has not seen comes after everything that it has.

A stream's requests are rows of this database, all of one survey, or lie in segments; what is read is the same.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import takewhile
from typing import Any, NamedTuple

from changeling_protocol import Refusal, SurveyId, UnixMilliseconds
from changeling_statistics import Attendance, NodeTally
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    select,
    true,
    update,
)

from ..errors import Overtaken, SegmentLost
from ..segments import LoggedRequest
from .counts import AttendanceKey, TallyKey, WriteCounts
from .files import FileKind, ReadFiles, Segment, WriteFiles, requests_between, rows_of
from .registry import expired
from .schema import cursors, files, keys, log, runs, store, streams, surveys, tallies

_AT_ONCE = 500
_MOST_DELETED = 20_000
"""The most requests of a stream, or of those that came early, that are deleted at once: appending has to wait."""
_ADVANCE = (
    "UPDATE store SET arrival = CASE WHEN arrival + (stream > ?) > ? THEN arrival + (stream > ?) ELSE ? END, stream = ?"
    " RETURNING arrival"
)
"""Does as `WriteLog._advance_arrival`."""
_LENGTHEN = "UPDATE streams SET length = length + ? WHERE id = ? RETURNING length"
_LOST = "the catalogue has no segment with position {} of stream {}"
_INSERT = "INSERT INTO log (stream, position, arrival, envelope) VALUES "
_MOST_ROWS = 64


class Stream(NamedTuple):
    """The requests that one process appends, without gaps.

    survey: whose alone; None for any. place, prefix: of one that lies in segments, where they are and how the names of
    all of them begin. length: how many were appended. counted, deleted: up to which position the fold has counted them,
    and up to which their time is over.
    """

    survey: SurveyId | None
    place: str | None
    prefix: str | None
    length: int
    counted: int
    deleted: int


class LogState(NamedTuple):
    """The log at one moment.

    arrival: the latest that was given out, or `floor` where that is later. floor: no arrival is before it, as something
    was sealed then. Both in Unix milliseconds, 0 for an empty store.
    folded, unfolded: how many requests the fold has counted since the store was made, and has not counted.
    first_unfolded: the arrival of the first that it has not counted, or an earlier one, as no file is read for this;
    None at the log's end.
    segments, segment_bytes: how many there are, and what all of them take.
    """

    arrival: UnixMilliseconds
    floor: UnixMilliseconds
    folded: int
    unfolded: int
    first_unfolded: UnixMilliseconds | None
    segments: int
    segment_bytes: int


_OF_STREAM = cursors.c.stream == streams.c.id
_STREAM = streams.c.survey, streams.c.place, streams.c.prefix, streams.c.length, cursors.c.position, cursors.c.deleted


def _asked_of_log() -> Select[Any]:
    """Asks for what a `LogState` has."""
    next_segment = (
        select(files.c.earliest)
        .where(files.c.stream == streams.c.id, files.c.first <= cursors.c.position + 1)
        .where(files.c.last > cursors.c.position)
        .order_by(files.c.first.desc())
    )
    next_row = (
        select(log.c.arrival)
        .where(log.c.stream == streams.c.id, log.c.position > cursors.c.position)
        .order_by(log.c.position)
    )
    arrivals = (each.limit(1).correlate(streams, cursors).scalar_subquery() for each in (next_segment, next_row))
    is_behind = cursors.c.position < streams.c.length
    counts = (
        func.coalesce(func.sum(cursors.c.position), 0),
        func.coalesce(func.sum(streams.c.length - cursors.c.position), 0),
        func.min(case((is_behind, func.coalesce(*arrivals, 0)))),  # 0 of a request that the catalogue has lost
    )
    sizes = func.count(), func.coalesce(func.sum(files.c.size), 0)
    in_streams = select(*(cast(each, BigInteger) for each in counts)).select_from(streams.join(cursors, _OF_STREAM))
    in_files = select(*(cast(each, BigInteger) for each in sizes)).where(files.c.kind == FileKind.SEGMENT)
    first, second = in_streams.subquery(), in_files.subquery()  # of one row each, as the store's is
    asked = select(store.c.arrival, store.c.floor, *first.c, *second.c)
    return asked.select_from(store.join(first, true()).join(second, true()))


_STATE = _asked_of_log()


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


class ReadLog(ReadFiles):
    """Reads the log."""

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
        counted = after or {}
        behind = ((number, counted.get(number, each.counted), each.length) for number, each in self._behind().items())
        for logged in merge(*(self._requests_after(*each) for each in behind)):
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
        for stream, each in self._behind().items():
            after = each.counted
            if each.place is None:
                ranges.append(LogRange(stream, after, self._last_until(until, stream, after, each.length)))
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
            if after < each.length:
                raise SegmentLost(_LOST.format(after + 1, stream))
        return [each for each in ranges if each.until > each.after]

    def kept_requests(self, ranges: Iterable[LogRange] | None = None) -> Iterator[LoggedRequest]:
        """The requests of these ranges of the log that are not deleted, in its order; None for the whole log."""
        if ranges is None:
            ranges = [LogRange(number, 0, each.length) for number, each in self.streams().items()]
        return merge(*map(self._kept_requests, ranges))

    def streams(self) -> dict[int, Stream]:
        """All streams, by number."""
        return self._streams()

    def log_state(self) -> LogState:
        """How much the log holds, and how far it is counted; by one statement."""
        return LogState(*self._connection.execute(_STATE).one())

    def anything_taken(self, survey: SurveyId) -> bool:
        """Tell whether anything of a survey is counted, shown or not, or waits to be.

        For operators alone: it is a bit of a count that may be below the survey's minimum.
        """
        counted = select(tallies.c.survey).where(tallies.c.survey == survey).limit(1)
        waiting = self._segments(files.c.last > cursors.c.position)
        return (
            self._connection.execute(counted).first() is not None
            or any(each.survey == survey for each in self._behind().values())
            or any(survey in (each.survey_ids or [survey]) for each in waiting)
        )

    def anything_overdue(self, now: UnixMilliseconds, graces: Mapping[SurveyId, int], longest: int) -> bool:
        """Tell whether `Transaction.delete_overdue` would find anything."""
        early = select(log.c.position).where(log.c.needed_until < now).limit(1)
        ended = select(keys.c.id).where(expired(now - longest)).limit(1)
        return (
            any(self._connection.execute(query).first() for query in (ended, early))
            or any(True for _ in self._rows_over(now, graces, longest, 1))
            or bool(self._segments_over(now, graces, longest))
        )

    def _streams(self, *where: ColumnElement[bool]) -> dict[int, Stream]:
        """The streams that meet these conditions on the tables `streams` and `cursors`, in order."""
        rows = self._connection.execute(
            select(streams.c.id, *_STREAM).join(cursors, _OF_STREAM).where(*where).order_by(streams.c.id)
        )
        return {number: Stream(*row) for number, *row in rows}

    def _behind(self) -> dict[int, Stream]:
        """The streams that the fold has not counted to their end."""
        return self._streams(cursors.c.position < streams.c.length)

    def _kept_requests(self, span: LogRange) -> Iterator[LoggedRequest]:
        """The requests of a range that are not deleted, in order."""
        segments = self._segments(files.c.stream == span.stream, files.c.last > span.after)
        last = span.after
        in_segments = (row for each in segments for row in rows_of(each, span.after))
        for each in merge(self._rows_after(span.stream, span.after), in_segments):
            if each.position > span.until:
                break
            if each.position > last:  # what came early is kept in a row, too
                yield each
            last = each.position

    def _rows_after(self, stream: int, position: int) -> Iterator[LoggedRequest]:
        """The stream's requests after a position that lie in rows, in order."""
        query = (
            select(log.c.arrival, log.c.stream, log.c.position, log.c.envelope)
            .where(log.c.stream == stream, log.c.position > bindparam("after"))
            .order_by(log.c.position)
            .limit(_AT_ONCE)
        )
        while rows := self._connection.execute(query, {"after": position}).all():
            yield from map(LoggedRequest._make, rows)
            position = rows[-1].position

    def _requests_after(self, stream: int, position: int, length: int) -> Iterator[LoggedRequest]:
        """The requests of a stream of this length after a position that the fold has counted, in order.

        Raises SegmentLost where one of them is in no segment.
        """
        for logged in self._rows_after(stream, position):
            yield logged
            position = logged.position
        for segment in self._segments(files.c.stream == stream, files.c.last > position):
            yield from requests_between(segment, position, segment.last)
            position = segment.last
        if position < length:
            raise SegmentLost(_LOST.format(position + 1, stream))

    def _last_until(self, until: UnixMilliseconds, stream: int, after: int, length: int) -> int:
        """The last position in (after, length] of a stream of rows that arrived by a time: arrivals never decrease."""
        of_range = log.c.stream == stream, log.c.position > after, log.c.position <= length
        later = select(func.min(log.c.position)).where(*of_range, log.c.arrival > until)
        first: int | None = self._connection.execute(later).scalar_one()
        return length if first is None else first - 1

    def _rows_over(
        self, now: UnixMilliseconds, graces: Mapping[SurveyId, int], otherwise: int, most: int
    ) -> Iterator[tuple[int, int, int]]:
        """Per stream, which positions (after, until] are next to go: folded, and their survey's grace is over."""
        for stream, each in self._streams(streams.c.place.is_(None), cursors.c.deleted < cursors.c.position).items():
            until = min(each.counted, each.deleted + most)
            grace = otherwise if each.survey is None else graces.get(each.survey, otherwise)
            until = self._last_until(UnixMilliseconds(now - grace - 1), stream, each.deleted, until)
            if until > each.deleted:
                yield stream, each.deleted, until

    def _segments_over(self, now: UnixMilliseconds, graces: Mapping[SurveyId, int], otherwise: int) -> list[Segment]:
        """The folded segments in which each request's time is over: those of the survey with the longest grace, too."""
        least = min([otherwise, *graces.values()])
        old = self._segments(files.c.last <= cursors.c.position, files.c.latest < now - least)
        return [
            each
            for each in old
            if each.latest < now - max((graces.get(id_, otherwise) for id_ in each.survey_ids), default=otherwise)
        ]


class WriteLog(ReadLog, WriteFiles, WriteCounts):
    """Writes the log, and what counting adds."""

    def _open_stream(self, survey: SurveyId | None, place: str | None, prefix: str | None) -> int:
        """As `Store.open_stream`."""
        row = {"survey": survey, "length": 0, "place": place, "prefix": prefix}
        number: int = self._connection.execute(insert(streams).values(row).returning(streams.c.id)).scalar_one()
        self._connection.execute(insert(cursors).values(stream=number, position=0, deleted=0))
        return number

    def _append(self, stream: int, bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
        """As `Store.append`, to one stream."""
        if self._connection.dialect.name == "postgresql":
            from .postgresql import append_at_once  # whose driver is not installed everywhere

            append_at_once(self._connection, stream, bodies, now)
        else:
            self._append_to_sqlite(stream, bodies, now)

    def _advance_arrival(self, stream: int, now: UnixMilliseconds) -> UnixMilliseconds:
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

    def seal(self, periods: Mapping[SurveyId, int], now: UnixMilliseconds) -> None:
        """Seal all closings up to a period: their ids go, and nothing more is added to nodes that end there.

        periods: by survey. now: Unix milliseconds. From here on no arrival is before it, also where arrivals are set
        back: so what else comes for a sealed closing is late.
        """
        self._connection.execute(update(store).where(store.c.floor < now).values(floor=now))
        self._connection.execute(update(store).where(store.c.arrival < now).values(arrival=now, stream=0))
        for survey, period in periods.items():
            self._connection.execute(delete(runs).where(runs.c.survey == survey, runs.c.period <= period))
            rising = update(surveys).where(surveys.c.id == survey, surveys.c.sealed < period)
            self._connection.execute(rising.values(sealed=period))

    def set_back_arrivals(self, now: UnixMilliseconds) -> None:
        """Give out arrivals from `now` on again, or from their floor, where a clock that was ahead gave out later ones.

        now: Unix milliseconds. What is not folded arrived now, too; what is folded keeps its arrival. Nothing is
        appended until this transaction ends.
        """
        self.stop_appending()
        back = max(now, self.log_state().floor)
        for stream, each_stream in self._behind().items():
            position = each_stream.counted
            ahead = log.c.stream == stream, log.c.position > position, log.c.arrival > back
            self._connection.execute(update(log).where(*ahead).values(arrival=back))
            for each in (files.c.earliest, files.c.latest):
                of_segments = files.c.stream == stream, files.c.last > position, each > back
                self._connection.execute(update(files).where(*of_segments).values({each.name: back}))
        last = select(func.coalesce(func.max(streams.c.id), 0)).scalar_subquery()  # so that the next is after these
        self._connection.execute(update(store).where(store.c.arrival > back).values(arrival=back, stream=last))

    def add(
        self,
        moves: Mapping[int, tuple[int, int]] | None = None,
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
        for stream, (before, after) in sorted((moves or {}).items()):
            at = cursors.c.stream == stream, cursors.c.position == before
            if self._connection.execute(update(cursors).where(*at).values(position=after)).rowcount != 1:
                raise Overtaken(f"another folder has counted stream {stream} beyond {before}")
        self._add_tallies(tallies or {}, attendance or {})
        self._add_refusals(refused or {})
        if needed_until:
            self._keep(needed_until)
        if rows := [{"of": stream, "at": at} for stream, at in rubbish]:
            self._connection.execute(delete(log).where(_NAMED), rows)

    def delete_overdue(self, now: UnixMilliseconds, graces: Mapping[SurveyId, int], longest: int) -> int:
        """Delete folded requests that no open closing needs, and destroy private keys; returns how many keys.

        Requests go a survey's grace after they arrived, or once the last early closing in them is sealed; a segment
        goes as a whole, by the longest grace of the surveys in it. Where there are many, some are left for the next
        time. Keys go `longest` after they expired.
        now: Unix milliseconds. graces: of surveys, in milliseconds. longest: for keys, and for requests of other
        surveys, in milliseconds.
        """
        for stream, after, until in list(self._rows_over(now, graces, longest, _MOST_DELETED)):
            of_range = log.c.stream == stream, log.c.position > after, log.c.position <= until
            self._connection.execute(delete(log).where(*of_range, log.c.needed_until.is_(None)))
            self._connection.execute(update(cursors).where(cursors.c.stream == stream).values(deleted=until))
        early = select(log.c.stream.label("of"), log.c.position.label("at")).where(log.c.needed_until < now)
        if rows := [dict(row) for row in self._connection.execute(early.limit(_MOST_DELETED)).mappings()]:
            self._connection.execute(delete(log).where(_NAMED), rows)
        self._replace_segments(self._segments_over(now, graces, longest))
        return self._connection.execute(update(keys).where(expired(now - longest)).values(private=None)).rowcount

    def add_segment(self, segment: Segment) -> bool:
        """Let a stream go on with a segment that is durable; False where it has gone on: then nothing of this may stay.

        Its requests all arrive at `segment.latest`, or later where that is past.
        """
        arrival = self._advance_arrival(segment.stream, segment.latest)
        longer = (
            update(streams)
            .where(streams.c.id == segment.stream, streams.c.length == segment.first - 1)
            .values(length=segment.last)
        )
        if self._connection.execute(longer).rowcount != 1:
            return False
        arrived = segment._replace(earliest=arrival, latest=arrival)
        self._connection.execute(insert(files).values(kind=FileKind.SEGMENT, **arrived._asdict()))
        return True

    def _keep(self, needed_until: Mapping[tuple[int, int], UnixMilliseconds]) -> None:
        """Keep requests until a time, those in segments as rows: so no file is kept for one of them."""
        rows = [{"of": stream, "at": position, "end": end} for (stream, position), end in needed_until.items()]
        self._connection.execute(update(log).where(_NAMED).values(needed_until=bindparam("end")), rows)
        copies = []
        for stream in self._streams(streams.c.id.in_({row["of"] for row in rows}), streams.c.place.is_not(None)):
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
