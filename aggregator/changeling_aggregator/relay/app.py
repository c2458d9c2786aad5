"""The relay over HTTP: a server's paths for devices, answered from its own copies and by its own clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from changeling_protocol import MalformedBytes
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
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..errors import Overloaded, TurnedDown
from ..server import HANDLERS, FrontDoor, Rates, id_in_path, network_of, packed, read_body, show_alive
from .relay import Relay


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
    return FrontDoor(app, relay.clock, Rates(most, monotonic) if most else None)


def _relay_of(request: Request) -> Relay:
    relay: Relay = request.app.state.service
    return relay


def _ready(request: Request) -> Relay:
    relay = _relay_of(request)
    if not relay.is_ready:
        raise Overloaded("this relay has no surveys and keys to serve: come again later")
    return relay
