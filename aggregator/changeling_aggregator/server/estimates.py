"""What readers are answered over HTTP: `answers` says what is in it.

An answer hangs on the question and on the revision of what is shown, on nothing else; so it is made once for both,
remembered, and its entity tag is known before it is made.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from functools import partial
from typing import Any

from changeling_protocol import VERSION
from changeling_protocol.wire import ErrorCode
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ..errors import TurnedDown
from ..ingest import PublishedSurvey
from .admission import require_reader
from .answers import answered
from .caching import cache_control
from .described import described
from .entity_tags import is_kept, tag_of
from .estimate_schemas import described_as
from .formats import MEDIA_TYPES, Format, encoded, format_of
from .questions import Kind, Question, parse
from .requests import service_of, survey_in_path
from .shown import Shown


@described(described_as(Kind.HISTOGRAM))
async def show_histogram(request: Request) -> Response:
    """GET …/histogram?period=t or ?time=ISO 8601: by default the last period of which anything is shown."""
    return await _answer(request, Kind.HISTOGRAM)


@described(described_as(Kind.SERIES))
async def show_series(request: Request) -> Response:
    """GET …/series?until=t: the histograms of the periods 1 to t; the nodes are listed once for all of them."""
    return await _answer(request, Kind.SERIES)


@described(described_as(Kind.WINDOWS))
async def show_windows(request: Request) -> Response:
    """GET …/windows?width=w&until=t: the changes over all windows of w periods that end by t."""
    return await _answer(request, Kind.WINDOWS)


@described(described_as(Kind.CHANGE))
async def show_change(request: Request) -> Response:
    """GET …/change?after=l&until=r: the change of the histogram over the window (l, r]."""
    return await _answer(request, Kind.CHANGE)


async def _answer(request: Request, kind: Kind) -> Response:
    service, published = service_of(request), survey_in_path(request)
    require_reader(request, published)
    shown = await run_in_threadpool(service.showing.of, published)
    try:
        question = parse(kind, request.query_params, published, shown.last, service.clock())
        form = format_of(request)
    except ValueError as error:
        raise TurnedDown(ErrorCode.INVALID, f"{error}") from error
    key = published.survey.id, shown.revision, published.last, question, form
    kept = cache_control(published, shown.looked, service.clock())
    headers = {"etag": tag_of(repr((VERSION, key)).encode()), "cache-control": kept, "vary": "accept"}
    if is_kept(request, headers["etag"]):
        return Response(status_code=304, headers=headers)
    content = service.estimating.kept(key)
    if content is None:
        make = partial(_made, question, published, shown, form)
        content = await _while_there(request, service.estimating.answer(key, make))
    return Response(content, headers=headers, media_type=MEDIA_TYPES[form])


def _made(question: Question, published: PublishedSurvey, shown: Shown, form: Format) -> bytes:
    try:
        return encoded(answered(question, published, shown), form)
    except ValueError as error:
        raise TurnedDown(ErrorCode.INVALID, f"{error}") from error


async def _while_there(request: Request, answering: Coroutine[Any, Any, bytes]) -> bytes:
    """What is answered, unless the client goes before. Raises TurnedDown then, which nobody hears."""
    answer, gone = asyncio.ensure_future(answering), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise TurnedDown(ErrorCode.MALFORMED, "the client has gone")
        return answer.result()
    finally:
        for each in (answer, gone):
            each.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await each


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
