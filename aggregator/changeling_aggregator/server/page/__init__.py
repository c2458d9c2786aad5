"""The page at `/`: what people come to look at. It shows what the API answers, to whom the API answers it.

Its routes are not in the OpenAPI document, which is a promise to programs: they are between the page and the server of
one version, and change with both. What they show, programs have from the API. Nothing comes from another address, no
script and no style stands in the page itself, and a browser is told to hold to that. No token gets into a cookie, or
into an address.
"""

import importlib.util
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from changeling_protocol import AtMost, Constraint, Hybrid, Survey, TimeBounded, upwards
from changeling_protocol.wire import ErrorCode
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...errors import TurnedDown
from ...store import StoredSurvey, TokenScope, hash_of
from ..http import UNKEPT, PackedFile, answer_file, json
from ..requests import check_scope, needs_secure, read_body, service_of, session_cookie, signed_in, survey_in_path
from ..service import LIFE_SECONDS

_STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
CHARTS = "plotly.js"
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",  # plotly draws its patterns as pictures in place
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


async def show_file(request: Request) -> Response:
    """GET a script or a style sheet of the page, or the page itself; what that shows it asks for itself."""
    name = request.path_params.get("file", INDEX)
    if name != CHARTS and name not in _own_files():
        raise TurnedDown(ErrorCode.NOT_FOUND, "the page has no such file")
    file = await run_in_threadpool(_file, name)
    return answer_file(request, file, {"content-security-policy": CONTENT_POLICY, "cache-control": "no-cache"})


@cache
def _own_files() -> frozenset[str]:
    return frozenset(path.name for path in _STATIC.iterdir() if path.suffix in MEDIA_TYPES)


@cache
def _file(name: str) -> PackedFile:
    plain = (_charts() if name == CHARTS else _STATIC / name).read_bytes()
    return PackedFile.of(plain, MEDIA_TYPES[Path(name).suffix])


def _charts() -> Path:
    """Plotly's script. Its package is found, and not imported: that would take half a second."""
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise TurnedDown(ErrorCode.NOT_FOUND, "plotly is not installed, so that the page has no charts")
    return Path(found.origin).parent / "package_data" / "plotly.min.js"


_UNITS = ((604_800, "week"), (86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_TELLING = Decimal(20)
"""Up to this epsilon the factor on odds is told: beyond it is so large that it bounds nothing."""


async def show_in_words(request: Request) -> Response:
    """GET what a survey asks, when, under which plan, and what it can cost whoever takes part."""
    return json(_in_words(survey_in_path(request)), headers={"cache-control": "no-cache"})


def _in_words(published: StoredSurvey) -> dict[str, Any]:
    survey, calendar = published.survey, published.survey.calendar
    return {
        "id": survey.id.hex(),
        "public": published.public,
        "questions": [
            {"name": each.name, "question": each.text, "answers": list(each.answers), "is_number": each.is_number}
            for each in survey.questions
        ],
        "start": calendar.start,
        "period_seconds": calendar.period,
        "periods": calendar.periods,
        "period_words": _duration(calendar.period),
        "breakdowns": [{"name": each.name, "values": list(each.values)} for each in survey.breakdowns],
        "tracks": list(_tracks(survey)),
        "epsilon": _plain(survey.epsilon),
        "ledger": list(_ledger(survey)),
    }


def _tracks(survey: Survey) -> Iterator[dict[str, Any]]:
    for track in survey.plan.tracks:
        reports = "changes" if track.reports_changes else "states"
        yield {"reports": reports, "width": track.width, "first": track.first, "last": track.last}


def _ledger(survey: Survey) -> Iterator[str]:
    """The cost of taking part, and what that rests on, in sentences."""
    epsilon = survey.epsilon
    yield f"Whoever takes part loses at most ε = {_plain(epsilon)}, over the whole survey and whatever they answer."
    if epsilon <= _TELLING:
        with upwards():
            factor = int(epsilon.exp()) + 1
        yield (
            "That means: to whoever sees everything that a device ever sends, one history of answers becomes at most "
            f"{factor:,} times likelier, against any other, than it was before."
        )
    if survey.per_week < epsilon:
        yield f"On average that is ε = {_plain(_three_digits(survey.per_week))} a week."
    yield "It bounds a whole life in this survey, and no single week: one report alone may tell more than the average."
    several = len(survey.asked) > 1
    allowed = [
        f"{f'{each.text}: the' if several else 'The'} answer may {_bound(each.constraint)}." for each in survey.asked
    ]
    frozen = " How many entries that happens to is asked too." if len(survey.asked) < len(survey.questions) else ""
    yield (
        f"{' '.join(allowed)} Devices see to that themselves; what goes beyond is not reported. The results "
        "then show the last answer that was: they are of what devices report, and their bands do not hold that bias."
        f"{frozen}"
    )
    if any(group.joint is not None for group in survey.plan.groups):
        yield "All reports of a device are drawn together, on one budget."
    most = max(sum(track.reports for track in group.tracks) for group in survey.plan.groups)
    yield f"A device sends at most {most:,} report{'s' * (most > 1)}, at times that do not depend on its answers."
    if survey.breakdowns:
        named = ", ".join(each.name for each in survey.breakdowns)
        yield f"What results are broken down by is sent in the open, and costs nothing of that: {named}."
    yield (
        "A relay stands between devices and this server, which sees no device's address."
        if survey.relay
        else "No relay is declared: this server sees the addresses of devices while they are connected."
    )
    if survey.follows:
        yield "It goes on from another survey; whoever took part in both has lost the sum of both."
    yield (
        "A device whose backup is put back once, unnoticed, may lose up to three times that in all. Other surveys add "
        "to it, and so does a second device, or installing the app anew."
    )


def _bound(constraint: Constraint) -> str:
    match constraint:
        case AtMost(k):
            return f"be given and changed {k:,} time{'s' * (k > 1)} in all, the first time included"
        case TimeBounded(seconds):
            return f"change for {_duration(seconds)} after it was first given"
        case Hybrid(classes):
            return ", or ".join(_bound(each) for each in classes)
    return f"change as the survey bounds it ({constraint})"


def _duration(seconds: int) -> str:
    """In the largest unit that divides it: "1 day", "6 hours"."""
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return f"{seconds // size:,} {unit}{'s' * (seconds > size)}"


def _three_digits(amount: Decimal) -> Decimal:
    """Rounded up."""
    with upwards():
        return round(amount, 2 - amount.adjusted())


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():,f}"


MOST_FORM_BYTES = 1024
_OWN_SITE = {"same-origin", "none"}
_UNKEPT = {"cache-control": UNKEPT}


async def who_is_signed_in(request: Request) -> Response:
    """GET the name and the scopes of the token that this browser signed in with; null if it did not."""
    token = signed_in(request)
    shown = None if token is None else {"name": token.name, "scopes": sorted(token.scopes)}
    return json({"signed_in": shown}, headers=_UNKEPT)


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
    check_scope(token, TokenScope.READ)
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


ROUTES = [
    Route("/", show_file, methods=["GET"]),
    Route("/page/session", who_is_signed_in, methods=["GET"]),
    Route("/page/session", sign_in, methods=["POST"]),
    Route("/page/session", sign_out, methods=["DELETE"]),
    Route("/page/surveys/{survey}", show_in_words, methods=["GET"]),
    Route("/page/{file}", show_file, methods=["GET"]),
]

__all__ = ["ROUTES"]
