"""A relay: it keeps envelopes that come, serves copies of surveys and keys, and forwards; at the end, its HTTP.

Envelopes are checked from outside, kept in a spool, and acknowledged when they are on disk. The answer depends on the
envelope, the relay's clock and its copies, the same for all devices; never on what the server said of others, nor on
who sends, but that a network may have its share of the room already. Requests that come at the same time share a write
to the disk.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

from changeling_protocol import VERSION, MalformedBytes, Refusal, SurveyId, UnixSeconds, head_of
from changeling_protocol.wire import (
    ALIVE,
    KEYS,
    MOST_BODY_BYTES,
    READY,
    UPLOADS,
    ErrorCode,
    decode_upload_request,
    encode_acknowledgement,
    survey_path,
)
from prometheus_client import CollectorRegistry, Gauge
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..errors import Overloaded, TurnedDown, UpstreamTrouble
from ..server import (
    HANDLERS,
    Bodies,
    FrontDoor,
    Rates,
    Traffic,
    id_in_path,
    network_of,
    packed,
    read_body,
    registry_with,
    show_alive,
)
from .files import Batching, Copies, PlacedEnvelopes, RelaySettings
from .forwarding import Forwarding, Upstream

MOST_PENDING_BYTES = 64 * 2**20
"""The most bytes of envelopes that wait for the disk."""
_log = logging.getLogger(__name__)


def refusal_of(envelope: bytes, copies: Copies, now: UnixSeconds) -> Refusal | None:
    """Give the reason not to take an envelope; None where it is to be kept. now: Unix seconds."""
    try:
        head = head_of(envelope)
    except MalformedBytes:
        return Refusal.MALFORMED
    if head.version != VERSION:
        return Refusal.MALFORMED
    copy = copies.surveys.get(head.survey)
    if copy is None:
        return Refusal.UNKNOWN_SURVEY
    if not copy.is_open(now):
        return Refusal.CLOSED
    if head.key != copies.key_at(now):
        return Refusal.UNKNOWN_KEY
    return Refusal.TOO_LARGE if len(envelope) > copy.most_bytes else None


class Intake:
    """Keeps envelopes. clock: Unix seconds."""

    def __init__(self, copies: Copies, batching: Batching, clock: Callable[[], UnixSeconds]) -> None:
        self._copies, self._batching, self._clock = copies, batching, clock
        self._pending: list[tuple[list[PlacedEnvelopes], asyncio.Future[None]]] = []
        self._pending_bytes = 0
        self._writing: asyncio.Task[None] | None = None

    async def take(self, envelopes: Sequence[bytes], network: str | None = None) -> Mapping[int, Refusal]:
        """Keep the envelopes of one request; returns why any were refused, by place, when all others are on disk.

        network: that they came from, as `network_of` names it; None for one that may have all the room.
        Raises Overloaded where there is no room or the disk fails; then any of them may have been kept.
        """
        now, refused = self._clock(), {}
        accepted: dict[SurveyId, list[bytes]] = defaultdict(list)
        for index, envelope in enumerate(envelopes):
            if (refusal := refusal_of(envelope, self._copies, now)) is not None:
                refused[index] = refusal
            else:
                accepted[head_of(envelope).survey].append(envelope)
        if accepted:
            await self._keep(accepted, network)
        return refused

    async def close(self) -> None:
        """Finish what is being written."""
        if self._writing is not None:
            await self._writing

    async def _keep(self, accepted: Mapping[SurveyId, list[bytes]], network: str | None) -> None:
        size = sum(len(envelope) for envelopes in accepted.values() for envelope in envelopes)
        if self._pending_bytes + size > MOST_PENDING_BYTES:
            raise Overloaded("more envelopes wait for the disk than this relay keeps: come again later")
        placed, round_ = list[PlacedEnvelopes](), self._batching.round_at(self._clock())
        try:
            for id_, envelopes in accepted.items():
                placed.append(self._copies.surveys[id_].spool.place(envelopes, network, round_))
        except Overloaded:
            for each in placed:
                each.spool.give_back(each)
            raise
        kept = asyncio.get_running_loop().create_future()
        self._pending.append((placed, kept))
        self._pending_bytes += size
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        try:
            await asyncio.shield(kept)
        finally:
            self._pending_bytes -= size

    async def _write(self) -> None:
        while self._pending:
            together, self._pending = self._pending, []
            try:
                await run_in_threadpool(self._put, [each for placed, _ in together for each in placed])
            except Exception:  # the disk fails: each sender hears it, and the next are tried again
                _log.exception("what came could not be kept")
                for placed, kept in together:
                    for each in placed:
                        each.spool.give_back(each)
                    kept.set_exception(Overloaded("the disk of this relay fails: come again later"))
                    kept.exception()  # whether or not its sender is still there to hear it
            else:
                for _, kept in together:
                    kept.set_result(None)

    def _put(self, placed: Sequence[PlacedEnvelopes]) -> None:
        round_ = self._batching.round_at(self._clock())
        for each in placed:
            each.spool.write(each, round_)
        for spool in {each.spool for each in placed}:
            spool.flush()
        for each in placed:
            each.spool.admit(each, round_)


REFRESH_SECONDS = 60.0
"""The pause between two times that the server is asked for surveys and keys."""
MOST_AGE_SECONDS = 86_400
"""The copies of keys are served so long after the server last told them."""


class Relay:
    """A relay on a folder, before a server. Raises what `Copies` raises."""

    def __init__(self, folder: Path, upstream: Upstream, settings: RelaySettings) -> None:
        self.settings, self.clock = settings, settings.clock
        self.copies = Copies(folder, settings)
        self.intake = Intake(self.copies, settings.batching, self.clock)
        self.bodies = Bodies()
        self.traffic = Traffic()
        self._upstream = upstream
        self._forwarding: dict[SurveyId, Forwarding] = {}
        self._tasks: dict[SurveyId | None, asyncio.Task[None]] = {}  # that forward a survey; None: that asks the server
        self._surveys_asked = bool(self.copies.surveys)
        self._is_denied = False

    @property
    def is_ready(self) -> bool:
        """True if there are copies to serve, not too old, from now or from before a restart."""
        asked = self.copies.asked
        return self._surveys_asked and asked is not None and self.clock() - asked <= MOST_AGE_SECONDS

    @property
    def trouble(self) -> str | None:
        """Give the reason why this relay cannot do its work; None where it can."""
        if any(task.done() for task in self._tasks.values()):
            return "a task has died: the log says why"
        if not self.is_ready:
            return "the server could not be asked for surveys and keys"
        if self.copies.key_at(self.clock()) is None:
            return "the server offers no sealing key that can be served"
        return None

    @property
    def notice(self) -> str:
        """The state of a relay that is in no trouble, in words."""
        if self._is_denied:
            return "the server takes nothing with this relay's token: what comes is kept"
        failing = any(forwarding.failures for forwarding in self._forwarding.values())
        return "forwarding fails at present: what comes is kept" if failing else "ok"

    def start(self) -> None:
        """Begin to forward what waits, and to ask the server."""
        self._forward_all()
        self._begin(None, self._refresh_for_ever())

    async def close(self) -> None:
        """Finish what is being written, stop forwarding; what waits stays on disk. Stopping forwards nothing early."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.intake.close()
        await self._upstream.close()
        self.copies.close()

    async def refresh(self) -> None:
        """Ask the server for surveys and keys, and go by what it says; or by what it said before, if it is away."""
        now, keys = self.clock(), None
        try:
            await self._fetch_surveys(now)
            keys = await self._upstream.keys()
        except UpstreamTrouble as trouble:
            _log.warning("surveys and keys are the last that were good: %s", trouble)
        try:
            await run_in_threadpool(self.copies.take_keys, keys, now)
            self._end_over()
        except OSError as error:
            _log.warning("what the server tells cannot be kept: %s", error)
        self._forward_all()

    async def _fetch_surveys(self, now: UnixSeconds) -> None:
        named = self.settings.surveys
        for id_ in await self._upstream.surveys() if named is None else sorted(named):
            if self.copies.wants(id_):
                try:
                    signed = await self._upstream.survey(id_)
                    await run_in_threadpool(self.copies.take_survey, id_, signed, now)
                except (UpstreamTrouble, OSError) as error:  # the others, and the keys, are none the worse for it
                    _log.warning("survey %s is not relayed yet: %s", id_.hex(), error)
        self._surveys_asked = True

    async def try_token(self) -> None:
        """See at the start whether the server takes uploads with this relay's token, or without where it has none.

        An empty upload is sent, before anything came; else that would be noticed hours later, when a batch goes.
        """
        before = self._is_denied
        try:
            await self._upstream.upload([])
            self._is_denied = False
        except UpstreamTrouble as trouble:
            self._is_denied = trouble.status in (401, 403)
            if self._is_denied and not before:
                _log.warning("%s to this relay: give it a token that uploads may be sent with, --token-file", trouble)

    async def _refresh_for_ever(self) -> None:
        await self.try_token()
        while True:
            await self.refresh()
            if self._is_denied:
                await self.try_token()
            await asyncio.sleep(REFRESH_SECONDS)

    def _forward_all(self) -> None:
        for id_, copy in self.copies.surveys.items():
            if id_ not in self._forwarding:
                forwarding = self._forwarding[id_] = Forwarding(copy, self._upstream, self.settings)
                self._begin(id_, forwarding.run())

    def _begin(self, name: SurveyId | None, work: Coroutine[None, None, None]) -> None:
        self._tasks[name] = asyncio.create_task(work)
        self._tasks[name].add_done_callback(_tell)

    def _end_over(self) -> None:
        self.copies.drop_ended(self.clock())
        for id_ in self._forwarding.keys() - self.copies.surveys.keys():
            del self._forwarding[id_]
            self._tasks.pop(id_).cancel()


def _tell(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a task of the relay has died", exc_info=error)


async def upload(request: Request) -> Response:
    """POST envelopes; answers when those that are not refused are on the relay's disk."""
    relay = _ready(request)
    try:
        envelopes = decode_upload_request(await read_body(request, MOST_BODY_BYTES))
    except MalformedBytes as error:
        raise TurnedDown(ErrorCode.MALFORMED, f"the body is no upload: {error}") from error
    network = None if request.client is None else network_of(request.client.host)
    return packed(encode_acknowledgement(await relay.intake.take(envelopes, network)))


async def list_keys(request: Request) -> Response:
    """GET the one sealing key that this relay serves, or none."""
    relay = _ready(request)
    return packed(relay.copies.key_list_at(relay.clock()))


async def fetch_survey(request: Request) -> Response:
    """GET a relayed survey's signed bytes."""
    copy = _ready(request).copies.surveys.get(id_in_path(request))
    if copy is None:
        raise TurnedDown(ErrorCode.NOT_FOUND, "no survey with this id is relayed here")
    return packed(copy.signed)


async def show_ready(request: Request) -> Response:
    """GET: 200 and how it stands, or 503 and what is wrong; nothing of what waits, which would tell who came when."""
    relay = _relay_of(request)
    return JSONResponse({"status": relay.trouble or relay.notice}, 503 if relay.trouble else 200)


def make_app(relay: Relay) -> ASGIApp:
    """The application on a relay, which starts and closes with it."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        relay.start()
        try:
            yield
        finally:
            await relay.close()

    routes = [
        Route(UPLOADS, upload, methods=["POST"]),
        Route(KEYS, list_keys, methods=["GET"]),
        Route(survey_path("{survey}"), fetch_survey, methods=["GET"]),
        Route(ALIVE, show_alive, methods=["GET"]),
        Route(READY, show_ready, methods=["GET"]),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    app.state.service = relay  # read_body finds on it the bodies that are on their way
    most = relay.settings.requests_a_second
    return FrontDoor(app, relay.clock, Rates(most, monotonic) if most else None, relay.traffic)


def registry_of(relay: Relay) -> CollectorRegistry:
    """All that a relay tells Prometheus: the process, requests by route and status, and how it stands.

    How much waits is told to nobody: it would tell who came when.
    """
    registry = registry_with(*relay.traffic.collectors)
    trouble = Gauge("changeling_relay_trouble", "1 while /readyz answers 503.", registry=registry)
    trouble.set_function(lambda: relay.trouble is not None)
    failing = Gauge("changeling_relay_failing", "1 while forwarding fails.", registry=registry)
    failing.set_function(lambda: relay.notice != "ok")
    return registry


def _relay_of(request: Request) -> Relay:
    relay: Relay = request.app.state.service
    return relay


def _ready(request: Request) -> Relay:
    relay = _relay_of(request)
    if not relay.is_ready:
        raise Overloaded("this relay has no surveys and keys to serve: come again later")
    return relay
