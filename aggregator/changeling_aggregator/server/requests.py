"""Requests: a bounded body, a signed object, a survey, who it is that asks; and the endpoint that takes uploads.

An upload is appended to the log and acknowledged when it is on disk. The acknowledgement names the envelopes that were
not appended, and why; whatever it does not name is durable. A request of which nothing is refused is appended as it was
sent. Uploads are what many devices send, so their endpoint is a plain ASGI application: it makes no objects of the
framework for an upload that is taken.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import choice, randbelow
from typing import Annotated

from changeling_protocol import ID_BYTES, BadSignature, MalformedBytes, Survey, SurveyId
from changeling_protocol.wire import (
    MOST_BODY_BYTES,
    MOST_ENVELOPES_TAKEN,
    MSGPACK,
    ErrorCode,
    decode_upload_request,
    encode_acknowledgement,
    encode_upload_request,
    is_loopback,
)
from msgspec import Meta
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ..errors import Overloaded, TurnedDown
from ..ingest import Registry, heads_of, refusals_of, survey_of
from ..opening import opens
from ..store import StoredSurvey, Token, TokenScope, hash_of
from .http import FROM_ONE_NETWORK, NETWORK, RETRY_AFTER_SECONDS, Bodies, answer_to, retry_after
from .openapi import Binary, Body, Count, Described
from .service import Admission, Service

LOOPBACK_COOKIE = "changeling"
SECURE_COOKIE = "__Host-changeling"
"""Browsers take a cookie of such a name over TLS alone, and from the very host that it is for."""
TELL_ADDRESSES = frozenset(
    {
        *("cf-connecting-ip", "cf-connecting-ipv6", "cf-pseudo-ipv4", "client-ip", "fastly-client-ip", "fly-client-ip"),
        *("forwarded", "true-client-ip", "x-appengine-user-ip", "x-azure-clientip", "x-azure-socketip", "x-client-ip"),
        *("x-cluster-client-ip", "x-envoy-external-address", "x-forwarded", "x-forwarded-for"),
        *("x-original-forwarded-for", "x-real-ip"),
    }
)
"""The headers by which proxies tell the address of whom they speak for."""
BODY_SECONDS = 60.0
"""A body that takes longer is refused: what has arrived of it is in memory meanwhile."""
MOST_BODIES_BYTES = 128 * 2**20
"""The most bytes in memory of all bodies that have not arrived whole."""
CHARGED_BYTES = 1024
"""So many bytes of an upload count as a request: some nine small envelopes, each a key agreement to open."""
ONE_IN = 64
"""One of so many envelopes that come without a token is opened on arrival, to see whether it opens."""
ADMISSION_SECONDS = 10.0
"""So long the operator's rule for uploads may think about one."""
_ALL_TAKEN = encode_acknowledgement({})
_log = logging.getLogger("changeling")


def service_of(request: Request) -> Service:
    """The service that the application was made with."""
    service: Service = request.app.state.service
    return service


def asked_by(survey: Survey) -> str:
    """The texts of all questions of a survey, on one line."""
    return " · ".join(each.text for each in survey.asked)


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request, as `read_from` reads it."""
    bodies: Bodies = request.app.state.service.bodies
    return await read_from(request.receive, request.headers.get("content-length", "").encode(), bodies, most)


async def read_from(receive: Receive, stated: bytes, bodies: Bodies, most: int) -> bytes:
    """A body: refused with 413 as soon as it is seen to be longer than `most` bytes, with 408 if it takes too long, and
    with 503 where all bodies on their way leave no room.

    stated: the header `content-length`, or nothing.
    """
    if stated.isdigit() and int(stated) > most:
        raise _too_large(most)
    pieces: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise TurnedDown(ErrorCode.MALFORMED, "the body broke off")  # which nobody is there to hear
                piece, more = message.get("body", b""), message.get("more_body", False)
                if size + len(piece) > most:
                    raise _too_large(most)
                pieces.append(piece)
                size += len(piece)
                bodies.size += len(piece)
                if bodies.size > MOST_BODIES_BYTES:
                    raise _too_many()
    except TimeoutError as error:
        sentence = f"a body here arrives within {BODY_SECONDS:g} seconds"
        raise TurnedDown(ErrorCode.TOO_SLOW, sentence, {"connection": "close"}) from error
    finally:
        bodies.size -= size
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(most: int) -> TurnedDown:
    return TurnedDown(ErrorCode.TOO_LARGE, f"a body here has at most {most} bytes", {"connection": "close"})


def _too_many() -> TurnedDown:
    """The connection ends, as the rest of the body is not read."""
    headers = {"connection": "close", "retry-after": str(RETRY_AFTER_SECONDS)}
    return TurnedDown(ErrorCode.OVERLOADED, "more bodies are on their way than are kept in memory", headers)


@contextmanager
def reading_signed() -> Iterator[None]:
    """Turns a request down whose body is read within, where that is no signed object, or not the authority's."""
    try:
        yield
    except BadSignature as error:
        raise TurnedDown(ErrorCode.BAD_SIGNATURE, f"{error}") from error
    except MalformedBytes as error:
        raise TurnedDown(ErrorCode.MALFORMED, f"{error}") from error


def id_in_path(request: Request) -> SurveyId:
    """The survey's id in the path, 16 bytes; 404 where those digits are no id."""
    try:
        id_ = bytes.fromhex(request.path_params["survey"])
    except ValueError:
        id_ = b""
    if len(id_) != ID_BYTES:
        raise TurnedDown(ErrorCode.NOT_FOUND, f"a survey's id is {2 * ID_BYTES} hexadecimal digits")
    return SurveyId(id_)


def survey_in_path(request: Request) -> StoredSurvey:
    """The survey whose id is in the path: 404 where it is not published here."""
    published = service_of(request).registry.surveys.get(id_in_path(request))
    if published is None:
        raise TurnedDown(ErrorCode.NOT_FOUND, "no survey with this id is published here")
    return published


def require(request: Request, scope: TokenScope) -> None:
    """Let only those pass who show a token for this: 401, or 403 where it is for other things."""
    check_scope(_token(request), scope)


def check_scope(token: Token | None, scope: TokenScope) -> None:
    """Turn down what shows no token, or one for other things."""
    if token is None:
        sentence = (
            f"this needs a token with the scope {scope.value}; none is shown that is known here: a new one is within a "
            "second, a revoked one is no more"
        )
        raise TurnedDown(ErrorCode.UNAUTHORIZED, sentence, {"www-authenticate": "Bearer"})
    if scope not in token.scopes:
        raise TurnedDown(ErrorCode.FORBIDDEN, f"this token has not the scope {scope.value}")


def may(request: Request, scope: TokenScope) -> bool:
    """True if a token for this is shown, or was when signing in; 401 for one that the server does not know."""
    token = _token(request)
    if token is None and "authorization" in request.headers:
        require(request, scope)
    token = token or signed_in(request)
    return token is not None and scope in token.scopes


def require_reader(request: Request, published: StoredSurvey) -> None:
    """Let everybody read the results of a public survey, and only those with a token for it those of another."""
    if not published.public:
        check_scope(_token(request) or signed_in(request), TokenScope.READ)


def signed_in(request: Request) -> Token | None:
    """The token that a browser's session was begun with. It is good for looking at things alone: a request that changes
    anything shows a token itself.
    """
    service = service_of(request)
    session = request.cookies.get(session_cookie(request))
    looks = request.method in ("GET", "HEAD")
    shown = service.sessions.token_of(session) if looks and session is not None else None
    return None if shown is None else service.registry.tokens.get(shown)


def session_cookie(request: Request) -> str:
    """The name of the cookie that a session is kept in."""
    return SECURE_COOKIE if needs_secure(request) else LOOPBACK_COOKIE


def needs_secure(request: Request) -> bool:
    """True if the cookie is for TLS alone: always, but for a browser on this machine."""
    named = request.headers.get("host", "")  # with a port, or not
    host = named[1:].partition("]")[0] if named.startswith("[") else named.partition(":")[0]
    return request.scope["scheme"] != "http" or not is_loopback(host)


def token_in(registry: Registry, authorization: str) -> Token | None:
    """The token that this header shows; None where it shows none that is known."""
    scheme, _, shown = authorization.partition(" ")
    return registry.tokens.get(hash_of(shown.strip())) if scheme.lower() == "bearer" else None


def _token(request: Request) -> Token | None:
    return token_in(service_of(request).registry, request.headers.get("authorization", ""))


async def require_admission(admission: Admission, headers: Mapping[str, str], body: bytes) -> None:
    """Let an upload pass that the operator's own rule admits: else 403, with its sentence.

    The rule is given the request's headers without those that tell an address. Of what it raises only the kind is
    logged: its words may hold what was shown to it.
    Raises Overloaded, for 503, where the rule fails, takes longer than ADMISSION_SECONDS, or says what it should not.
    """
    passed = {name: value for name, value in headers.items() if name not in TELL_ADDRESSES}
    try:
        async with asyncio.timeout(ADMISSION_SECONDS):
            refusal: object = await admission(passed, body)
    except Exception as error:
        failed = f"raised {type(error).__name__}"
    else:
        if refusal is None:
            return
        if isinstance(refusal, str):
            raise TurnedDown(ErrorCode.FORBIDDEN, refusal)
        failed = f"returned {type(refusal).__name__}"
    _log.error("the rule for admission %s: an upload was turned away", failed)
    raise Overloaded("whether this upload is admitted cannot be told at the moment")


def _charge(service: Service, scope: Scope, requests: int, envelopes: int = 0) -> None:
    """Count requests and envelopes of the sender's network: 429 for too many."""
    network = scope.get(NETWORK)
    if service.rates is None or network is None:
        return
    if wait := service.rates.wait_of(network, requests, envelopes):
        raise TurnedDown(ErrorCode.TOO_MANY_REQUESTS, FROM_ONE_NETWORK, retry_after(wait))


def _fine_for_garbage(service: Service, scope: Scope, envelopes: Sequence[bytes]) -> None:
    """Fine the sender's network where an envelope that is drawn of these does not open. The answer stays what it is.

    The more there are the likelier is one drawn. Their heads were taken: what is sealed to a key that is unknown, or
    gone, was refused before and costs nothing.
    """
    network = scope.get(NETWORK)
    if service.rates is None or network is None or randbelow(ONE_IN) >= len(envelopes):
        return
    if not opens(choice(envelopes), service.registry.private):
        service.rates.fine(network)


class Envelopes(Body):
    """An upload."""

    envelopes: Annotated[list[Binary], Meta(max_length=MOST_ENVELOPES_TAKEN)]


class RefusedEnvelopes(Body):
    """For each envelope that was refused its place and the reason; all others are on disk."""

    refused: list[list[Count | str]]


@Described(
    gives={200: {MSGPACK: RefusedEnvelopes}},
    takes={MSGPACK: Envelopes},
    scope=TokenScope.UPLOAD,
    open_too=True,
)
class Uploads:
    """The endpoint of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST envelopes; answers when those that are not refused are on disk."""
        try:
            taken = await self._taken(scope, receive)
        except Exception as error:
            answer = answer_to(error)
            await answer(scope, receive, send)
            if answer.status_code == 500:
                raise  # a defect: the server's log says where
        else:
            headers = [(b"content-length", b"%d" % len(taken)), (b"content-type", MSGPACK.encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": taken})

    async def _taken(self, scope: Scope, receive: Receive) -> bytes:
        """Appends what a request brings; returns the acknowledgement."""
        service = self._service
        body, stranger = await self._admitted(scope, receive)
        try:
            envelopes = decode_upload_request(body)
        except MalformedBytes as error:
            raise TurnedDown(ErrorCode.MALFORMED, f"the body is no upload: {error}") from error
        if stranger:
            _charge(service, scope, 0, len(envelopes))
        heads = heads_of(envelopes)
        refused = refusals_of(envelopes, heads, service.registry, service.clock())
        if refused:
            service.committer.count_refused(Counter((survey, why) for survey, why in refused.values() if survey))
            envelopes = [each for place, each in enumerate(envelopes) if place not in refused]
            body = encode_upload_request(envelopes)
        if envelopes:
            if stranger:
                _fine_for_garbage(service, scope, envelopes)
            await service.committer.append(body, set(map(survey_of, heads)))
        return _ALL_TAKEN if not refused else encode_acknowledgement({at: why for at, (_, why) in refused.items()})

    async def _admitted(self, scope: Scope, receive: Receive) -> tuple[bytes, bool]:
        """The body of a request that may be taken, and whether its sender shows no token for uploads.

        Who shows one, as a relay or a backend with many entries does, is counted by requests alone.
        """
        service, settings = self._service, self._service.settings
        headers: dict[bytes, bytes] = dict(scope["headers"])
        shown = headers.get(b"authorization", b"").decode("latin-1")
        token = token_in(service.registry, shown) if shown else None
        if settings.uploads_need_token:
            check_scope(token, TokenScope.UPLOAD)
        body = await read_from(receive, headers.get(b"content-length", b""), service.bodies, MOST_BODY_BYTES)
        service.traffic.upload_bytes.inc(len(body))
        stranger = token is None or TokenScope.UPLOAD not in token.scopes
        if stranger:
            _charge(service, scope, len(body) // CHARGED_BYTES)
        if settings.admission is not None:
            await require_admission(settings.admission, Headers(scope=scope), body)
        return body, stranger
