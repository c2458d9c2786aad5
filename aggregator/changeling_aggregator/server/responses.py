"""The forms of an answer: canonical MessagePack, or JSON; an error is one clear sentence, never a trace."""

from typing import Any

from changeling_protocol import canonical
from changeling_statistics.errors import NotEstimable
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import Overloaded

MEDIA_TYPE = "application/msgpack"
RETRY_AFTER_SECONDS = 5


def packed(value: Any) -> Response:
    return Response(canonical.encode(value), media_type=MEDIA_TYPE)


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def _not_estimable(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": "not_estimable", "detail": str(error)}, 409)


def _come_again(_: Request, error: Exception) -> Response:
    sentence = str(error) if isinstance(error, Overloaded) else "the store cannot be used at the moment"
    return JSONResponse({"error": sentence}, 503, {"retry-after": str(RETRY_AFTER_SECONDS)})


def _broken(_: Request, __: Exception) -> Response:
    # uvicorn closes the connection after an exception; who keeps it for the next request must know.
    return JSONResponse({"error": "the server failed; its log says why"}, 500, {"connection": "close"})


HANDLERS: dict[Any, Any] = {
    HTTPException: _refused,
    NotEstimable: _not_estimable,
    Overloaded: _come_again,
    DBAPIError: _come_again,
    Exception: _broken,
}
"""By the exception that an endpoint raises."""
