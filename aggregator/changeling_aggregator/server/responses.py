"""The forms of an answer: canonical MessagePack, JSON, or a problem document, which holds no trace."""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from changeling_protocol.wire import HTTP_STATUS, MSGPACK, PROBLEM, ErrorAnswer, ErrorCode
from changeling_statistics import NotEstimable
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from ..errors import Overloaded, StoreError, TurnedDown, Unwritable
from .caching import UNKEPT
from .refusals import count_refused

RETRY_AFTER_SECONDS = 5
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that is being answered, which is on the answer and in the log."""
_log = logging.getLogger("changeling")
_OF_THE_ROUTER = {404: ErrorCode.NOT_FOUND, 405: ErrorCode.METHOD_NOT_ALLOWED}
"""What Starlette itself answers with an error, by status."""


def packed(body: bytes) -> Response:
    """An answer of MessagePack or of signed bytes."""
    return Response(body, media_type=MSGPACK)


def turned_down(code: ErrorCode, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that is turned down, which is counted; no cache keeps it."""
    count_refused(code)
    unkept = {**(headers or {}), "cache-control": UNKEPT}
    return Response(ErrorAnswer(code, detail).encode(), HTTP_STATUS[code], unkept, media_type=PROBLEM)


def _turned_down(_: Request, error: Exception) -> Response:
    assert isinstance(error, TurnedDown)  # noqa: S101
    return turned_down(error.code, error.detail, error.headers)


def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    code = _OF_THE_ROUTER.get(error.status_code, ErrorCode.MALFORMED)
    headers = {**(error.headers or {})}
    if code is ErrorCode.METHOD_NOT_ALLOWED:
        headers["allow"] = ", ".join(sorted(_methods_at(request)))
    return turned_down(code, error.detail, headers)


def _methods_at(request: Request) -> set[str]:
    """All that the path takes: Starlette names those of the first of its routes alone."""
    there = (each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE)
    return {method for route in there for method in route.methods or ()}


def _not_estimable(_: Request, error: Exception) -> Response:
    return turned_down(ErrorCode.NOT_ESTIMABLE, str(error))


def _come_again(_: Request, error: Exception) -> Response:
    sentence = str(error) if isinstance(error, Overloaded) else "the store cannot be used at the moment"
    return turned_down(ErrorCode.OVERLOADED, sentence, {"retry-after": str(RETRY_AFTER_SECONDS)})


def _failed(_: Request, __: Exception) -> Response:
    _log.error("request %s failed", request_id.get())  # the trace follows
    # uvicorn closes the connection after an exception; who keeps it for the next request must know.
    return turned_down(ErrorCode.FAILED, "the server failed; its log says why", {"connection": "close"})


HANDLERS: dict[Any, Any] = {
    TurnedDown: _turned_down,
    HTTPException: _no_route,
    NotEstimable: _not_estimable,
    Overloaded: _come_again,
    Unwritable: _come_again,
    StoreError: _come_again,
    DBAPIError: _come_again,
    NoConnection: _come_again,
    Exception: _failed,
}
"""By the exception that an endpoint raises."""


def answer_to(error: Exception) -> Response:
    """The answer to a request whose endpoint raised this."""
    handler = next(HANDLERS[kind] for kind in type(error).__mro__ if kind in HANDLERS)
    answer: Response = handler(None, error)
    return answer
