"""The forms of an answer: canonical MessagePack, JSON, or a problem document, which holds no trace; and who keeps it.

**Results.** Only snapshots change what is shown, and the next is not taken before the next closing is due, unless late
reports may still change one that is shown. So open results stand for a while in any cache; those that ask a token in
none but the reader's own, which asks each time whether they still hold.

**Sealing keys.** The list is the same for every device. A cache may give it out for a minute, and never beyond the
expiry of the key in it, which is harmless in every state of a key:

- pending: nobody is given it yet. The key before it is good until the second in which this one begins.
- active: it is what the server itself would give. A device keeps a key for its whole life, far longer than a cache.
- expired: no cache gives it out any more. Devices check its dates themselves, and a server goes on taking what was
  sealed to it for the skew of clocks.
- destroyed: that is a grace after it expired, so no cache can have it. Only a restored store may lack a key that is
  still active. Whoever seals to that one is refused, keeps the report, and asks for the key again: for a minute a cache
  may answer with the same.

An empty list is kept by no cache, so the first key reaches devices at once. Ending or withdrawing a survey changes no
key. Devices ask caches not to answer them, for the sake of the time of day in an answer; a cache that answers all the
same has to say the answer's `Age`, by which they know not to go by that time.
"""

import gzip
import logging
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from math import floor
from typing import Any, Self

import msgspec
from changeling_protocol import SealingKey, UnixSeconds
from changeling_protocol.wire import HTTP_STATUS, JSON, MSGPACK, PROBLEM, ErrorAnswer, ErrorCode
from changeling_statistics import NotEstimable
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from ..errors import Overloaded, StoreError, TurnedDown, Unwritable
from ..ingest import PublishedSurvey
from ..store import NO_ANSWER, SnapshotProgress

RETRY_AFTER_SECONDS = 5
UNKEPT = "no-store"
"""For errors, and whatever else holds for one moment."""
OWN = "private, no-cache"
MOST_SECONDS = 3600
"""However far off the next closing is, as a survey may be ended early."""
PROVISIONAL_SECONDS = 60
"""While late reports may still change what is shown."""
OPEN_TO_ALL = {"access-control-allow-origin": "*", "access-control-expose-headers": "content-location, etag"}
"""For answers that hang on no token and no cookie: scripts of any page may read them."""
_COMPRESSION = 6
FOR_GOOD_SECONDS = 86_400
"""When all is shown for good."""
KEYS_SECONDS = 60
"""The list of sealing keys: a cache asks a server for it once in that time, however many devices ask the cache."""
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that is being answered, which is on the answer and in the log."""
turned_down_so_far: Counter[ErrorCode] = Counter()
"""How often this process turned a request down, by reason. Refused reports are counted in the store, by survey."""
_log = logging.getLogger("changeling")
_ROUTER_CODES = {404: ErrorCode.NOT_FOUND, 405: ErrorCode.METHOD_NOT_ALLOWED}
"""Codes for the errors that Starlette itself answers, by status."""


def json(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON: of a struct, or of what msgspec encodes. Not a number is null."""
    return Response(msgspec.json.encode(content), status, headers, media_type=JSON)


@dataclass(frozen=True, slots=True)
class PackedFile:
    """Bytes that are given to many as they are, with the same compressed by gzip, and their entity tag."""

    plain: bytes
    packed: bytes
    tag: str
    media_type: str

    @classmethod
    def of(cls, plain: bytes, media_type: str, packed: bytes | None = None) -> Self:
        """A file. packed: the same bytes compressed, where that is done already."""
        return cls(plain, packed or gzip.compress(plain, _COMPRESSION, mtime=0), tag_of(plain), media_type)


def answer_file(request: Request, file: PackedFile, headers: Mapping[str, str]) -> Response:
    """The answer with a file that any page's scripts may read: compressed, or 304, where the sender takes that."""
    headers = {**OPEN_TO_ALL, **headers, "etag": file.tag, "vary": "accept-encoding"}
    if is_kept(request, file.tag):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        return Response(file.packed, headers=headers, media_type=file.media_type)
    return Response(file.plain, headers=headers, media_type=file.media_type)


def packed(body: bytes) -> Response:
    """An answer of MessagePack or of signed bytes."""
    return Response(body, media_type=MSGPACK)


def turned_down(code: ErrorCode, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that is turned down, which is counted; no cache keeps it."""
    turned_down_so_far[code] += 1
    unkept = {**(headers or {}), "cache-control": UNKEPT}
    return Response(ErrorAnswer(code, detail).encode(), HTTP_STATUS[code], unkept, media_type=PROBLEM)


def tag_of(content: bytes) -> str:
    """The entity tag of this content, or of what determines it, with its quotation marks as `ETag` has it."""
    return f'"{blake2b(content, digest_size=16).hexdigest()}"'


def is_kept(request: Request, tag: str) -> bool:
    """True if the sender says, in `If-None-Match`, that it has the content with this tag, so that 304 is enough."""
    asked = request.headers.get("if-none-match", "")
    return asked.strip() == "*" or tag in (each.strip().removeprefix("W/") for each in asked.split(","))


def cache_control(published: PublishedSurvey, looked: SnapshotProgress, now: UnixSeconds) -> str:
    """The header of an answer that is made of what is shown of a survey. now: Unix seconds."""
    if not published.public:
        return OWN
    survey = published.survey
    if looked.final >= published.last:
        seconds = FOR_GOOD_SECONDS
    else:
        seconds = PROVISIONAL_SECONDS if looked.final < looked.due else MOST_SECONDS
        coming = min(looked.due + 1, published.last)
        if coming != looked.due:
            due = survey.calendar.time(coming) + survey.skew + survey.spread
            seconds = max(0, min(seconds, floor(due - now)))
    return f"public, max-age={seconds}"


def cache_control_of_keys(offered: SealingKey | None, now: UnixSeconds) -> str:
    """The header of the list of sealing keys. offered: the key in it, None where it is empty. now: Unix seconds."""
    if offered is None:
        return UNKEPT
    return f"public, max-age={max(0, min(KEYS_SECONDS, floor(offered.expires - now)))}"


def _turned_down(_: Request, error: Exception) -> Response:
    assert isinstance(error, TurnedDown)  # noqa: S101
    return turned_down(error.code, error.detail, error.headers)


def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    code = _ROUTER_CODES.get(error.status_code, ErrorCode.MALFORMED)
    headers = {**(error.headers or {})}
    if code is ErrorCode.METHOD_NOT_ALLOWED:  # Starlette names the methods of the first of the path's routes alone
        there = (each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE)
        headers["allow"] = ", ".join(sorted({method for route in there for method in route.methods or ()}))
    return turned_down(code, error.detail, headers)


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
    **dict.fromkeys(NO_ANSWER, _come_again),
    Exception: _failed,
}
"""By the exception that an endpoint raises."""


def answer_to(error: Exception) -> Response:
    """The answer to a request whose endpoint raised this."""
    handler = next(HANDLERS[kind] for kind in type(error).__mro__ if kind in HANDLERS)
    answer: Response = handler(None, error)
    return answer
