"""Accepting uploads: checked from outside, appended to the log, acknowledged when on disk.

The checks are those that need no private key: on an envelope's head, the dates and its length. What another process
publishes on the same store is seen at the next refresh of the registry.

One thread appends to the log, or several where that is far away, as in an object store. An upload is acknowledged when
its commit is on disk, never before. While a commit is in hand the next uploads gather: who waits at the same time
shares one. What waits is bounded in bytes, and what the fold has not counted in number: beyond that uploads are turned
away. Where each commit has a price, the next begins a little later, so that more share it; how much later is the
writer's `Pace`. A writer puts uploads into rows of the store, or into segments at a place.
"""

import asyncio
import logging
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, PriorityQueue
from secrets import token_hex
from threading import Condition, Lock, Thread
from time import monotonic, perf_counter
from typing import ClassVar, NamedTuple, TypeAlias

from changeling_protocol import (
    CLOSING_BYTES,
    HEAD_BYTES,
    ID_BYTES,
    MOST_SPANNED_PERIODS,
    SEAL_BYTES,
    VERSION,
    Refusal,
    RefusalCounts,
    ReleasePlan,
    SurveyId,
    UnixMilliseconds,
    UnixSeconds,
    symbol_bytes,
)
from changeling_protocol.wire import MOST_BODY_BYTES, encode_upload_request, envelopes_in
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from prometheus_client import Histogram

from .errors import Overloaded, StoreError, Unwritable
from .logs import LoggedOutage
from .segments import Folder, Place, place_at
from .store import (
    LoggedRequest,
    PublishedKey,
    Segment,
    Store,
    StoredSurvey,
    Token,
    published,
    readable,
    segment_name,
    written_segment,
)

Refused: TypeAlias = tuple[SurveyId | None, Refusal]
"""The id of the survey to count a refusal for, None if there is none, and the reason."""
LEAST_ENVELOPE_BYTES = HEAD_BYTES + SEAL_BYTES + 1
"""The length of one that holds a single byte."""
_PACKING_BYTES = 5
"""The most that MessagePack needs for the head of an array or of a column, or for one of the numbers before them."""


@dataclass(slots=True)
class Registry:
    """Published surveys, keys and tokens of a store, by id, or by hash.

    surveys: those that this version can read. most_bytes: the length that no envelope of one exceeds.
    keys: those whose private half is there: nothing is offered, or taken, that nobody could open.
    private: these halves, by key id; none where the store key is another by now.
    unreadable: the published surveys that this version cannot read, and does not run.
    """

    store: Store
    surveys: Mapping[SurveyId, StoredSurvey] = field(default_factory=dict)
    most_bytes: Mapping[SurveyId, int] = field(default_factory=dict)
    keys: Mapping[bytes, PublishedKey] = field(default_factory=dict)
    tokens: Mapping[bytes, Token] = field(default_factory=dict)
    private: Mapping[bytes, X25519PrivateKey] = field(default_factory=dict, repr=False)
    unreadable: Collection[SurveyId] = ()
    _refreshing: Lock = field(default_factory=Lock, repr=False)

    def refresh(self) -> None:
        """Read the store again."""
        with self._refreshing:  # so that an older reading never replaces a newer one
            with self.store.view() as view:
                stored, keys, tokens = view.surveys(), published(view.sealing_keys()), view.tokens()
                private: Mapping[bytes, X25519PrivateKey] = {}
                with suppress(StoreError):
                    private = view.private_keys()
            surveys = readable(stored)
            self.most_bytes = {
                id_: self.most_bytes.get(id_) or most_envelope_bytes(each.survey.plan) for id_, each in surveys.items()
            }
            self.surveys = surveys
            self.unreadable = stored.keys() - self.surveys.keys()
            self.keys, self.tokens, self.private = keys, tokens, private

    def offered(self, now: UnixSeconds) -> PublishedKey | None:
        """The one key that uploads are to be sealed to now. now: Unix seconds."""
        valid = (each for each in self.keys.values() if each.key.valid_at(now))
        return max(valid, key=lambda each: each.key.begins, default=None)


def most_envelope_bytes(plan: ReleasePlan) -> int:
    """A length in bytes that no envelope exceeds, as an upload spans at most MOST_SPANNED_PERIODS periods."""
    counts = {track: min(-(-MOST_SPANNED_PERIODS // track.width), track.count) for track in plan.tracks}
    most_closings = min(MOST_SPANNED_PERIODS, sum(counts.values()))
    most_symbols = max(
        sum(counts[track] * symbol_bytes(track.randomizer) + _PACKING_BYTES for track in group.tracks)
        for group in plan.groups
    )
    return HEAD_BYTES + SEAL_BYTES + 5 * _PACKING_BYTES + most_closings * CLOSING_BYTES + most_symbols


def survey_of(envelope: bytes) -> SurveyId:
    """The survey that an envelope, or the head of one, names."""
    return SurveyId(envelope[1 : 1 + ID_BYTES])


def heads_of(envelopes: Collection[bytes]) -> set[bytes]:
    """The heads of these envelopes, each once: a relay's batch of thousands has few."""
    return {envelope[:HEAD_BYTES] for envelope in envelopes}


def refusals_of(
    envelopes: Sequence[bytes], heads: Collection[bytes], registry: Registry, now: UnixSeconds
) -> dict[int, Refused]:
    """Why some of these envelopes are refused, by their places; the others are to be appended.

    heads: theirs, as `heads_of` gives them. now: Unix seconds. A key is taken for the survey's skew beyond its expiry,
    as clocks differ. They are judged one by one only where one of them is refused.
    """
    lengths = set(map(len, envelopes)) or {0}
    if min(lengths) >= LEAST_ENVELOPE_BYTES and not any(_refusal(each, max(lengths), registry, now) for each in heads):
        return {}
    judged = {at: _refusal(each[:HEAD_BYTES], len(each), registry, now) for at, each in enumerate(envelopes)}
    return {at: why for at, why in judged.items() if why}


def _refusal(head: bytes, length: int, registry: Registry, now: UnixSeconds) -> Refused | None:
    if length < LEAST_ENVELOPE_BYTES or head[0] != VERSION:
        return None, Refusal.MALFORMED
    id_ = survey_of(head)
    if (published := registry.surveys.get(id_)) is None:
        return None, Refusal.UNKNOWN_SURVEY
    survey = published.survey
    if not survey.calendar.start <= now <= survey.calendar.time(published.last) + survey.grace:
        return id_, Refusal.CLOSED
    if (key := registry.keys.get(head[1 + ID_BYTES :])) is None:
        return id_, Refusal.UNKNOWN_KEY
    if now > key.key.expires + survey.skew:
        return id_, Refusal.EXPIRED_KEY
    return (id_, Refusal.TOO_LARGE) if length > registry.most_bytes[id_] else None


# Appending

LogRequest: TypeAlias = tuple[SurveyId, bytes]
"""A request of the log: the one survey of its envelopes, and what `wire.encode_upload_request` makes of them."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How commits follow each other.

    at_once: so many may be in hand. apart: seconds from the beginning of one to that of the next, or less where
    `enough` uploads wait, or the bytes that one commit takes. A commit to a disk costs as much as ten uploads.
    """

    at_once: int = 1
    apart: float = 0.0025
    enough: int = 1000


class LogWriter(ABC):
    """Writes to streams of its own. pace: how many threads may write at the same time, and how often."""

    pace: ClassVar[Pace] = Pace()

    @abstractmethod
    def write(self, requests: Sequence[LogRequest], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        """Append requests, which are durable when this returns, and count refusals. Raises what keeps it from that.

        now: Unix milliseconds. Where both are empty it tries whether it could write.
        """

    def trouble(self) -> str | None:
        """Why nothing should be written, as far as can be told at once; None where all is well."""
        return None

    @abstractmethod
    def free_bytes(self) -> int | None:
        """How much is free on the disk that this writes to; None where that cannot be seen from here."""


def writer_for(store: Store, segments: str | None) -> LogWriter:
    """The writer to a store. segments: the place where requests lie, as `checked_place` gives it; None for the store's
    own rows. Raises StoreError, Unwritable, or OSError where the place cannot be used."""
    if segments is None:
        return RowWriter(store)
    place = place_at(segments)
    return SegmentWriter(store, Folder(Path(segments), make=True) if isinstance(place, Folder) else place)


def by_survey(body: bytes, surveys: Collection[SurveyId]) -> list[LogRequest]:
    """An upload as requests of one survey each: most are that already. surveys: those of its envelopes, or more."""
    if len(surveys) == 1:
        return [(survey, body) for survey in surveys]
    envelopes: dict[SurveyId, list[bytes]] = {}
    for envelope in envelopes_in(body):
        envelopes.setdefault(survey_of(envelope), []).append(envelope)
    return [(survey, encode_upload_request(some)) for survey, some in envelopes.items()]


class RowWriter(LogWriter):
    """Each write is a transaction of the store. Each survey has a stream, from its first upload on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._streams: dict[SurveyId, int] = {}

    def write(self, requests: Sequence[LogRequest], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        """Append rows."""
        appended: dict[int, list[bytes]] = {}
        for survey, request in requests:
            if survey not in self._streams:
                self._streams[survey] = self._store.open_stream(survey)
            appended.setdefault(self._streams[survey], []).append(request)
        self._store.append(appended, now, refused)

    def free_bytes(self) -> int | None:
        """Ask the store."""
        return self._store.free_bytes()


@dataclass(order=True, slots=True)
class _Lane:
    """A stream. prefix: how the names of its files begin. length: of what the catalogue has; None where that is to be
    asked, as a transaction failed that may have been kept all the same."""

    stream: int
    prefix: str
    length: int | None = 0


class SegmentWriter(LogWriter):
    """Each write is a file, then a line of the catalogue, and then the acknowledgement: so nothing that counts is only
    at the place.

    Several files may be on their way at a time, each for a stream of its own. So one that fails or hangs refuses its
    own uploads, and holds nobody else up: in a stream the next file follows only when the one before is in the
    catalogue.

    Requests arrive when the catalogue has them, which a slow store may put off for seconds. Sealing does not wait for
    them: in the last seconds of a grace an upload may be acknowledged and late. To have it wait would take a second
    transaction for each file, and somebody to end the waiting for a server that was killed.
    """

    pace = Pace(at_once=4, apart=0.05, enough=32)
    """Objects are paid for one by one: 20 a second, and one for 32 uploads beyond."""

    def __init__(self, store: Store, place: Place) -> None:
        self._store, self._place = store, place
        self._idle: PriorityQueue[_Lane] = PriorityQueue()
        self._idle.put(self._new_lane())

    def write(self, requests: Sequence[LogRequest], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        """Write one file for all; several threads may write at the same time."""
        lane = self._taken()
        try:
            segment = self._written(lane, requests, now) if requests else None
            if segment is None and not refused:
                self._place.put(f"{lane.prefix}-probe", b"")
                self._place.delete(f"{lane.prefix}-probe")
            with self._store.transaction() as writing:
                if segment is not None and not writing.add_segment(segment):
                    raise Unwritable("another process writes to this server's stream")
                if segment is None and not refused:
                    writing.stop_appending()  # which changes nothing, and is written all the same
                writing.add(refused=refused)
            if segment is not None:
                lane.length = segment.last
        finally:
            self._idle.put(lane)

    def trouble(self) -> str | None:
        """Ask the place."""
        return self._place.trouble()

    def free_bytes(self) -> int | None:
        """Ask the file system of a folder."""
        return shutil.disk_usage(self._place.name).free if isinstance(self._place, Folder) else None

    def _taken(self) -> _Lane:
        """The first lane that is idle: so that little traffic makes one stream, whose segments are joined soon."""
        with suppress(Empty):
            return self._idle.get_nowait()
        return self._new_lane()

    def _new_lane(self) -> _Lane:
        prefix = token_hex(8)
        return _Lane(self._store.open_stream(None, self._place.name, prefix), prefix)

    def _written(self, lane: _Lane, requests: Sequence[LogRequest], now: UnixMilliseconds) -> Segment:
        if lane.length is None:
            with self._store.view() as view:
                lane.length = view.streams()[lane.stream].length
        first = lane.length + 1
        lane.length = None
        rows = [LoggedRequest(now, lane.stream, position, body) for position, (_, body) in enumerate(requests, first)]
        name = segment_name(lane.prefix, first)
        return written_segment(self._place, name, rows, [survey for survey, _ in requests])


LOOK_SECONDS = 1.0
"""How often, while all is well, it looks whether the log is full; whether disk and file are as they were, each time."""
USUAL_STORE_BYTES = 64 * 2**30
"""The most that a store takes whose disk cannot be seen from here, as PostgreSQL's or an object store's."""
SPARE_PART = 10
"""Such a part of the disk that is free at the start is left for the fold."""
BYTES_A_REQUEST = 1024
"""For each so many bytes that a store may take, one request may wait to be counted."""
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_log = logging.getLogger("changeling")
_UNWRITTEN = "uploads cannot be written to the store, and are turned away"
MOST_WAITING_BYTES = 64 * 2**20
MOST_COMMIT_BYTES = 16 * 2**20
"""A commit takes no more uploads once it has so much."""
RETRY_SECONDS = 1.0
"""After a commit that failed another one is tried, so long after that one began, even if nobody sends anything."""
REFUSALS_WAIT_SECONDS = 1.0
"""Where nothing but refusals waits it is written no more often than that. A crash loses so much of their counts."""


class WaitingUpload(NamedTuple):
    """An upload. size: in bytes. acknowledged: what its sender waits for."""

    requests: Sequence[LogRequest]
    size: int
    acknowledged: "asyncio.Future[None]"


class Committer:
    """Gathers uploads that wait, and appends them to streams of its own. One event loop appends at a time.

    clock: Unix seconds, for the stamp of arrival. most_store_bytes: a store that holds more takes no uploads; None for
    what its disk has room for now. most_unfolded: with more requests in the log that the fold has not counted it takes
    none either; None for as many as such a store holds. segments: the place of segments, as `checked_place` gives it;
    None for rows of the store.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], UnixSeconds],
        most_store_bytes: int | None = None,
        most_unfolded: int | None = None,
        segments: str | None = None,
    ) -> None:
        self._store, self._clock = store, clock
        self._writer = writer_for(store, segments)
        self.most_store_bytes = self._room() if most_store_bytes is None else most_store_bytes
        self.most_unfolded = self.most_store_bytes // BYTES_A_REQUEST if most_unfolded is None else most_unfolded
        self._changed = Condition()
        self._waiting: list[WaitingUpload] = []
        self._bytes = 0
        self._refused: RefusalCounts = Counter()
        self._in_hand = 0
        self._begun = self._looked = 0.0
        self._closing = False
        self._failed: str | None = None
        self._full: str | None = None
        self._outage = LoggedOutage(_log, "uploads are turned away", "uploads are taken again")
        self.commits = Histogram("changeling_commit_seconds", "Commits of uploads.", buckets=BUCKETS, registry=None)
        threads = range(self._writer.pace.at_once)
        self._threads = [Thread(target=self._run, name=f"committer-{each}", daemon=True) for each in threads]

    def start(self) -> None:
        """Begin to commit what waits and what comes."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Take in nothing more, commit what waits, then end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    @property
    def running(self) -> bool:
        """Tell whether its threads live."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def trouble(self) -> str | None:
        """Why an upload that came now would be turned away; None where it would be taken."""
        if not self.running:
            return "a thread that writes uploads to disk has died"
        if trouble := self._full or self._failed:
            return trouble
        if self._bytes > MOST_WAITING_BYTES - MOST_BODY_BYTES:
            return "more uploads wait for the disk than are kept in memory, and are turned away"
        return None

    async def append(self, body: bytes, surveys: Collection[SurveyId]) -> None:
        """Append an upload request, as `wire.encode_upload_request` makes it; returns when it is on disk.

        surveys: those of its envelopes, or more.
        Raises Overloaded where too much waits already, or the error that kept it from the disk.
        """
        if self._full:
            raise Overloaded(self._full)
        upload = WaitingUpload(by_survey(body, surveys), len(body), asyncio.get_running_loop().create_future())
        with self._changed:
            if self._closing or self._bytes + upload.size > MOST_WAITING_BYTES:
                raise Overloaded("more uploads wait for the disk than this server keeps: come again later")
            self._waiting.append(upload)
            self._bytes += upload.size
            if len(self._waiting) in (1, self._writer.pace.enough) or self._bytes >= MOST_COMMIT_BYTES:
                self._changed.notify()
        await upload.acknowledged

    def count_refused(self, refused: Mapping[tuple[SurveyId, Refusal], int]) -> None:
        """Count refusals along with the next commit, or a little later."""
        with self._changed:
            self._refused.update(refused)
            self._changed.notify()

    def free_bytes(self) -> int | None:
        """How much is free on the disk that uploads are written to; None where that cannot be seen from here."""
        return self._writer.free_bytes()

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            uploads, refused = taken
            error = None
            try:
                self._commit(uploads, refused)
            except Exception as raised:  # whatever the database says, the thread lives and the sender hears it
                error, self._looked = raised, 0.0
            self._failed = None if error is None else _UNWRITTEN if not isinstance(error, Unwritable) else f"{error}"
            with self._changed:
                if error is not None or self._full:
                    self._outage.failed(error or Overloaded(self._full))
                elif self._outage.lasts:
                    self._outage.succeeded()
                self._in_hand -= 1
                if error is not None and not self._closing:
                    self._refused.update(refused)
            if uploads:
                with suppress(RuntimeError):  # a loop that has ended, with whoever waited in it
                    uploads[0].acknowledged.get_loop().call_soon_threadsafe(_acknowledge, uploads, error)

    def _take(self) -> tuple[list[WaitingUpload], RefusalCounts] | None:
        """The next commit, once it is due; None where no other will come.

        Both are empty where a commit is only tried, to see whether it succeeds again.
        """
        with self._changed:
            while (pause := self._pause()) is None or pause > 0:
                self._changed.wait(pause)
            if self._closing and not self._waiting and not self._refused:
                return None
            refused, self._refused = self._refused, Counter()
            self._in_hand += 1
            self._begun = monotonic()
            count = size = 0
            while count < len(self._waiting) and size < MOST_COMMIT_BYTES:
                size += self._waiting[count].size
                count += 1
            uploads, self._waiting = self._waiting[:count], self._waiting[count:]
            self._bytes -= size
            if self._waiting:
                self._changed.notify()
            return uploads, refused

    def _pause(self) -> float | None:
        """For how many seconds the next commit should wait, and 0 where it is due; None until something changes."""
        if self._closing:
            return 0.0
        since = monotonic() - self._begun
        if self._waiting:
            is_enough = len(self._waiting) >= self._writer.pace.enough or self._bytes >= MOST_COMMIT_BYTES
            return 0.0 if is_enough else max(0.0, self._writer.pace.apart - since)
        if self._in_hand:  # whoever has it in hand looks again after
            return None
        if self._refused:
            return max(0.0, REFUSALS_WAIT_SECONDS - since)
        return max(0.0, RETRY_SECONDS - since) if self._failed or self._full or self._outage.lasts else None

    def _commit(self, uploads: Sequence[WaitingUpload], refused: RefusalCounts) -> None:
        if trouble := self._store.trouble() or self._writer.trouble():  # SQLite writes on into a file without a name
            raise Unwritable(trouble)
        if monotonic() >= self._looked + LOOK_SECONDS:
            self._full = self._fullness()
            self._looked = monotonic()
        if self._full and uploads:
            raise Overloaded(self._full)
        began = perf_counter()
        if uploads or refused or self._failed or self._full:
            requests = [each for waiting in uploads for each in waiting.requests]
            self._writer.write(requests, refused, UnixMilliseconds(int(self._clock() * 1000)))
        self.commits.observe(perf_counter() - began)

    def _room(self) -> int:
        free = self.free_bytes()
        if free is None:
            return USUAL_STORE_BYTES
        with self._store.view() as view:
            return self._store.bytes_kept(view.log_state()) + free - free // SPARE_PART

    def _fullness(self) -> str | None:
        """Why the store takes no more uploads; None where it does."""
        with self._store.view() as view:
            log = view.log_state()
        if log.unfolded > self.most_unfolded:
            return "more uploads wait to be counted than this server keeps: come again later"
        if self._store.bytes_kept(log) > self.most_store_bytes:
            return "this server keeps no more uploads until some of them are due to go: come again later"
        return None


def _acknowledge(uploads: Sequence[WaitingUpload], error: Exception | None) -> None:
    for each in uploads:
        if each.acknowledged.done():  # its sender has gone away
            continue
        if error is None:
            each.acknowledged.set_result(None)
        else:
            each.acknowledged.set_exception(error)
