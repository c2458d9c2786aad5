"""Who may: what a request must show before anything is done for it."""

import logging
from asyncio import timeout
from collections.abc import Mapping

from changeling_protocol.wire import ErrorCode, is_loopback
from starlette.requests import Request

from ..errors import Overloaded, TurnedDown
from ..ingest import PublishedSurvey, Registry
from ..store.tokens import Token, TokenScope, hash_of
from .requests import service_of
from .service import Admission

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
ADMISSION_SECONDS = 10.0
"""So long the operator's rule for uploads may think about one."""
_log = logging.getLogger("changeling")


def require(request: Request, scope: TokenScope) -> None:
    """Let only those pass who show a token for this: 401, or 403 where it is for other things."""
    _check(_token(request), scope)


def _check(token: Token | None, scope: TokenScope) -> None:
    if token is None:
        sentence = f"this needs a token with the scope {scope.value}"
        raise TurnedDown(ErrorCode.UNAUTHORIZED, sentence, {"www-authenticate": "Bearer"})
    if scope not in token.scopes:
        raise TurnedDown(ErrorCode.FORBIDDEN, f"this token has not the scope {scope.value}")


def may(request: Request, scope: TokenScope) -> bool:
    """Whether a token for this is shown, or was when signing in; 401 for one that the server does not know."""
    token = _token(request)
    if token is None and "authorization" in request.headers:
        require(request, scope)
    token = token or signed_in(request)
    return token is not None and scope in token.scopes


def require_reader(request: Request, published: PublishedSurvey) -> None:
    """Let everybody read the results of a public survey, and only those with a token for it those of another."""
    if not published.public:
        _check(_token(request) or signed_in(request), TokenScope.READ)


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
    """Whether the cookie is for TLS alone: always, but for a browser on this machine."""
    named = request.headers.get("host", "")  # with a port, or not
    host = named[1:].partition("]")[0] if named.startswith("[") else named.partition(":")[0]
    return request.scope["scheme"] != "http" or not is_loopback(host)


def require_app(request: Request) -> None:
    """Let uploads pass, on a server that asks for it only those of an app that shows a token for it."""
    if service_of(request).settings.uploads_need_token:
        require(request, TokenScope.UPLOAD)


async def require_admission(request: Request, body: bytes) -> None:
    """Let an upload pass that the operator's own rule admits, if there is one: else 403, with its sentence.

    The rule is given the request's headers without those that tell an address.
    Raises Overloaded, for 503, where the rule fails, takes longer than ADMISSION_SECONDS, or says what it should not.
    """
    admission = service_of(request).settings.admission
    if admission is None:
        return
    headers = {name: value for name, value in request.headers.items() if name not in TELL_ADDRESSES}
    if (refusal := await _said_of(admission, headers, body)) is not None:
        raise TurnedDown(ErrorCode.FORBIDDEN, refusal)


async def _said_of(admission: Admission, headers: Mapping[str, str], body: bytes) -> str | None:
    """What the rule says. Of what it raises only the kind is logged: its words may hold what was shown to it."""
    try:
        async with timeout(ADMISSION_SECONDS):
            said: object = await admission(headers, body)
    except Exception as error:
        failed = f"raised {type(error).__name__}"
    else:
        if said is None or isinstance(said, str):
            return said
        failed = f"returned {type(said).__name__}"
    _log.error("the rule for admission %s: an upload was turned away", failed)
    raise Overloaded("whether this upload is admitted cannot be told at the moment")


def token_of(registry: Registry, authorization: str) -> Token | None:
    """The token that this header shows; None where it shows none that is known."""
    scheme, _, shown = authorization.partition(" ")
    return registry.tokens.get(hash_of(shown.strip())) if scheme.lower() == "bearer" else None


def _token(request: Request) -> Token | None:
    return token_of(service_of(request).registry, request.headers.get("authorization", ""))
