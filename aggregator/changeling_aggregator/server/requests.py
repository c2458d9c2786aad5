"""What endpoints ask of a request: its service, a body of bounded size, a signed object in it, a survey's id."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from changeling_protocol import ID_BYTES, BadSignature, MalformedBytes, SurveyId
from changeling_protocol.wire import ErrorCode
from starlette.requests import ClientDisconnect, Request

from ..errors import TurnedDown
from ..ingest import PublishedSurvey
from . import bodies
from .service import Service


def service_of(request: Request) -> Service:
    """The service that the application was made with."""
    service: Service = request.app.state.service
    return service


async def read_body(request: Request, most: int) -> bytes:
    """The body, refused with 413 as soon as it is seen to be longer than `most` bytes, or 408 if it takes too long.

    It is too slow as well where bodies that are on their way leave no room, and it has taken the most of it.
    """
    arriving = service_of(request).bodies
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and int(stated) > most:
        raise _too_large(most)
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(min(bodies.SLOW_SECONDS, bodies.BODY_SECONDS)) as deadline:
            body = arriving.begin(deadline)
            try:
                async for chunk in request.stream():
                    pieces.append(chunk)
                    if chunk:
                        arriving.add(body, len(chunk))
                    if body.size > most:
                        raise _too_large(most)
            finally:
                arriving.end(body)
    except TimeoutError as error:
        sentence = f"a body here arrives within {bodies.BODY_SECONDS:g} seconds, and without long pauses"
        raise TurnedDown(ErrorCode.TOO_SLOW, sentence, {"connection": "close"}) from error
    except ClientDisconnect as error:
        raise TurnedDown(ErrorCode.MALFORMED, "the body broke off") from error  # which nobody is there to hear
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@contextmanager
def reading_signed() -> Iterator[None]:
    """Turns a request down whose body is read within, where that is no signed object, or not the authority's."""
    try:
        yield
    except BadSignature as error:
        raise TurnedDown(ErrorCode.BAD_SIGNATURE, f"{error}") from error
    except MalformedBytes as error:
        raise TurnedDown(ErrorCode.MALFORMED, f"{error}") from error


def _too_large(most: int) -> TurnedDown:
    return TurnedDown(ErrorCode.TOO_LARGE, f"a body here has at most {most} bytes", {"connection": "close"})


def id_in_path(request: Request) -> SurveyId:
    """The survey's id in the path, 16 bytes; 404 where those digits are no id."""
    try:
        id_ = bytes.fromhex(request.path_params["survey"])
    except ValueError:
        id_ = b""
    if len(id_) != ID_BYTES:
        raise TurnedDown(ErrorCode.NOT_FOUND, f"a survey's id is {2 * ID_BYTES} hexadecimal digits")
    return SurveyId(id_)


def survey_in_path(request: Request) -> PublishedSurvey:
    """The survey whose id is in the path: 404 where it is not published here."""
    published = service_of(request).registry.surveys.get(id_in_path(request))
    if published is None:
        raise TurnedDown(ErrorCode.NOT_FOUND, "no survey with this id is published here")
    return published
