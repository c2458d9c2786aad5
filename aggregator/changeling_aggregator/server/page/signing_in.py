"""Signing in at the page with a token for reading, and out. No token gets into a cookie, or into an address."""

from urllib.parse import parse_qs

from changeling_protocol.wire import ErrorCode
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...errors import TurnedDown
from ...store.tokens import TokenScope, hash_of
from ..admission import needs_secure, session_cookie, signed_in
from ..caching import UNKEPT
from ..requests import read_body, service_of
from ..sessions import LIFE_SECONDS

MOST_FORM_BYTES = 1024
_OWN_SITE = {"same-origin", "none"}
_UNKEPT = {"cache-control": UNKEPT}


async def who_is_signed_in(request: Request) -> Response:
    """GET the name and the scopes of the token that this browser signed in with; null if it did not."""
    token = signed_in(request)
    shown = None if token is None else {"name": token.name, "scopes": sorted(token.scopes)}
    return JSONResponse({"signed_in": shown}, headers=_UNKEPT)


async def sign_in(request: Request) -> Response:
    """POST a form with `token`: begins a session; 401 for none that this server knows, 403 where it is not to read."""
    _require_own_site(request)
    form = parse_qs((await read_body(request, MOST_FORM_BYTES)).decode(errors="replace"))
    service = service_of(request)
    hashed = hash_of(form.get("token", [""])[0].strip())
    token = service.registry.tokens.get(hashed)
    if token is None:
        sentence = "this server knows no such token, or no longer"
        raise TurnedDown(ErrorCode.UNAUTHORIZED, sentence, {"www-authenticate": "Bearer"})
    if TokenScope.READ not in token.scopes:
        raise TurnedDown(ErrorCode.FORBIDDEN, f"this token has not the scope {TokenScope.READ.value}")
    _end(request)
    response = Response(status_code=204, headers=_UNKEPT)
    response.set_cookie(
        session_cookie(request),
        service.sessions.begin(hashed),
        max_age=LIFE_SECONDS,
        secure=needs_secure(request),
        httponly=True,
        samesite="strict",
    )
    return response


async def sign_out(request: Request) -> Response:
    """DELETE: ends the session, in the browser and here."""
    _require_own_site(request)
    _end(request)
    response = Response(status_code=204, headers=_UNKEPT)
    response.delete_cookie(session_cookie(request), secure=needs_secure(request), httponly=True, samesite="strict")
    return response


def _end(request: Request) -> None:
    session = request.cookies.get(session_cookie(request))
    if session is not None:
        service_of(request).sessions.end(session)


def _require_own_site(request: Request) -> None:
    """Turn down what another site's page sends: browsers say so, by one header, or older ones by another."""
    site, origin = (request.headers.get(name) for name in ("sec-fetch-site", "origin"))
    own = site in _OWN_SITE if site else origin is None or origin.partition("://")[2] == request.headers.get("host")
    if not own:
        raise TurnedDown(ErrorCode.FORBIDDEN, "only this server's own page signs in and out")
