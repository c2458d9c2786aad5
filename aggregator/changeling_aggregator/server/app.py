"""The HTTP interface: its routes and its errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changeling_protocol.wire import (
    ALIVE,
    CHANGE,
    CLOCK,
    DOCUMENT,
    END,
    FOLD,
    HISTOGRAM,
    KEYS,
    READY,
    SERIES,
    STATUS,
    SURVEYS,
    UPLOADS,
    WINDOWS,
    survey_path,
)
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from . import early_ends, estimates, keys, openapi, operations, page, surveys
from .front_door import FrontDoor
from .responses import HANDLERS
from .service import Service
from .traffic import Observed
from .uploads import Uploads

_SURVEY = survey_path("{survey}")
ROUTES = [
    Route(SURVEYS, surveys.list_surveys, methods=["GET"]),
    Route(_SURVEY, surveys.fetch_survey, methods=["GET"]),
    Route(_SURVEY, surveys.publish_survey, methods=["PUT"]),
    Route(_SURVEY + END, early_ends.end_survey, methods=["PUT"]),
    Route(_SURVEY + HISTOGRAM, estimates.show_histogram, methods=["GET"]),
    Route(_SURVEY + SERIES, estimates.show_series, methods=["GET"]),
    Route(_SURVEY + WINDOWS, estimates.show_windows, methods=["GET"]),
    Route(_SURVEY + CHANGE, estimates.show_change, methods=["GET"]),
    Route(_SURVEY + STATUS, operations.show_status, methods=["GET"]),
    Route(KEYS, keys.list_keys, methods=["GET"]),
    Route(KEYS, keys.put_key, methods=["PUT"]),
    Route(FOLD, operations.fold_now, methods=["POST"]),
    Route(CLOCK, operations.move_clock, methods=["PUT"]),
    Route(ALIVE, operations.show_alive, methods=["GET"]),
    Route(READY, operations.show_ready, methods=["GET"]),
    Route(DOCUMENT, openapi.show_document, methods=["GET"]),
]


def make_app(service: Service) -> ASGIApp:
    """The application on a service, which starts and closes with it."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            service.close()

    uploads = Uploads(service)
    routes = [Route(UPLOADS, uploads, methods=["POST"]), *ROUTES, *page.ROUTES]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False  # it would name the host that the request named, and plain HTTP at times
    app.state.service = service
    front = FrontDoor(_UploadsFirst(app, uploads), service.clock, service.rates)
    return Observed(front, service.traffic)


class _UploadsFirst:
    """Hands uploads to their endpoint at once, and all else to the application, which has the endpoint as well."""

    def __init__(self, app: ASGIApp, uploads: Uploads) -> None:
        self._app, self._uploads = app, uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == UPLOADS and scope["method"] == "POST":
            scope["app"] = self._app
            await self._uploads(scope, receive, send)
        else:
            await self._app(scope, receive, send)
