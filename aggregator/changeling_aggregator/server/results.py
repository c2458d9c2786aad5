"""Results over HTTP: histograms, series and changes, what they rest on, and what to think of them.

An answer depends on the question and on the revision of what is shown, on nothing else; so it is made once for both,
remembered, and its entity tag is known before it is made.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from changeling_protocol import VERSION, Node
from changeling_protocol.wire import JSON, MSGPACK, ErrorCode
from changeling_statistics import (
    NotEstimable,
    ShownAs,
    csv_shown,
    freezing_shown,
    head_shown,
    histogram_figures,
    many_shown,
    rows_shown,
    span_figures,
    window_figures,
)
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ..errors import TurnedDown
from ..ingest import PublishedSurvey
from ..store import TokenScope
from .answers import (
    ComparisonAnswer,
    ManyEstimates,
    NumbersAnswer,
    OneEstimate,
    compared,
    comparison_rows,
    number_rows,
    numbered,
)
from .http import OPEN_TO_ALL, answer_file, cache_control, is_kept, network_of, tag_of
from .openapi import Described, Signed
from .questions import (
    MEDIA_TYPES,
    QUERIES,
    Format,
    ResultKind,
    ResultMethod,
    ResultsQuery,
    format_of,
    opens_page,
    parse,
)
from .requests import require_reader, service_of, survey_in_path
from .shown import ShownSurvey

MOST_COVARIANCES = 4 * 10**6
"""How many figures the covariances of one answer have at most."""
LATEST = "latest"
"""The name in a path that stands for the newest edition."""
_IMMUTABLE = "public, max-age=31536000, immutable"
_AT_ONCE = "public, max-age=1"


def _described(kind: ResultKind) -> Described:
    answer: type = ManyEstimates if kind in (ResultKind.SERIES, ResultKind.WINDOWS) else OneEstimate
    answer = {ResultKind.COMPARISON: ComparisonAnswer, ResultKind.NUMBERS: NumbersAnswer}.get(kind, answer)
    return Described(
        gives={200: {MEDIA_TYPES[form]: str if form is Format.CSV else answer for form in Format}, 304: {}},
        query=QUERIES[kind],
        refuses=(ErrorCode.INVALID, ErrorCode.NOT_ESTIMABLE),
        scope=TokenScope.READ,
        open_too=True,
    )


def _endpoint(kind: ResultKind, said: str) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        return await _answer(request, kind)

    show.__name__, show.__doc__ = f"show_{kind}", said
    return _described(kind)(show)


ENDPOINTS = {
    kind: _endpoint(kind, f"GET …/{kind}{said}")
    for kind, said in {
        ResultKind.HISTOGRAM: "?period=t or ?time=ISO 8601: by default the last period of which anything is shown.",
        ResultKind.SERIES: "?until=t: the histograms of the periods 1 to t; the nodes are listed once for all of them.",
        ResultKind.NUMBERS: "?quantile=0.5&above=60&until=t: a number's mean, quantiles and shares at or above values.",
        ResultKind.WINDOWS: "?width=w&until=t: the changes over all windows of w periods that end by t.",
        ResultKind.CHANGE: "?after=l&until=r: the change of the histogram over the window (l, r].",
        ResultKind.COMPARISON: "?stratum=…&against=…&after=l&until=t: the differences between two arms, or two times, "
        "or both.",
    }.items()
}
"""What answers a question of each kind, below a survey's path."""


async def _answer(request: Request, kind: ResultKind) -> Response:
    service, published = service_of(request), survey_in_path(request)
    require_reader(request, published)
    shown = await run_in_threadpool(service.showing.of, published)
    try:
        question, asked = parse(kind, request.query_params, published, shown.last, service.clock())
    except ValueError as error:
        raise TurnedDown(ErrorCode.INVALID, f"{error}") from error
    form = format_of(request, asked)
    key = published.survey.id, shown.revision, published.last, question, form
    kept = cache_control(published, shown.looked, service.clock())
    headers = {"etag": tag_of(repr((VERSION, key)).encode()), "cache-control": kept, "vary": "accept"}
    headers |= OPEN_TO_ALL if published.public else {}
    if is_kept(request, headers["etag"]):
        return Response(status_code=304, headers=headers)
    content = service.estimating.kept(key)
    if content is None:
        make = partial(_made, question, published, shown, form)
        network = None if request.client is None else network_of(request.client.host)
        opening = published.survey.id if opens_page(question, form, shown.last) else None
        content = await _while_there(request, service.estimating.answer(key, make, network, opening))
    return Response(content, headers=headers, media_type=MEDIA_TYPES[form])


async def _while_there(request: Request, answering: Coroutine[Any, Any, bytes]) -> bytes:
    """The answer, unless the client goes before. Raises TurnedDown then, which nobody hears."""
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


def _made(question: ResultsQuery, published: PublishedSurvey, shown: ShownSurvey, form: Format) -> bytes:
    answer = {ResultKind.COMPARISON: compared, ResultKind.NUMBERS: numbered}.get(question.kind, answered)
    try:
        content: Any = answer(question, published, shown)
    except ValueError as error:
        raise TurnedDown(ErrorCode.INVALID, f"{error}") from error
    if form is Format.JSON:
        return msgspec.json.encode(content)
    if form is Format.MSGPACK:
        return msgspec.msgpack.encode(content)
    tables = {ResultKind.COMPARISON: comparison_rows, ResultKind.NUMBERS: number_rows}
    table: Callable[[Any], str] = tables.get(question.kind, csv_shown)  # type: ignore[assignment]
    return table(content).encode()


def answered(question: ResultsQuery, published: PublishedSurvey, shown: ShownSurvey) -> dict[str, Any]:
    """The answer to a question. Raises NotEstimable, ValueError, or TurnedDown where it would be too large."""
    solution = shown.solution(question.strata, question.method, question.about)
    showing = ShownAs(
        question.method, question.population, question.confidence, published.last, shown.revision, shown.final
    )
    showing = replace(showing, freezing=_freezing(question, shown, showing))
    kind, windows = question.kind, question.kind in (ResultKind.WINDOWS, ResultKind.CHANGE)
    if kind in (ResultKind.HISTOGRAM, ResultKind.CHANGE):
        figures, used = span_figures(solution, Node(question.after, question.until))
        (row,) = rows_shown(solution, figures, showing, windows=windows, covariance=question.covariance)
        return {**head_shown(solution, used, showing), **row}
    if kind is ResultKind.SERIES:
        figures, gaps = histogram_figures(solution, question.until)
    else:
        figures, gaps = window_figures(solution, question.width, question.until)
    k, z = figures.values.shape
    if question.covariance and k * z * z > MOST_COVARIANCES:
        raise TurnedDown(ErrorCode.INVALID, "these are more covariances than fit an answer: ask for fewer periods")
    return many_shown(solution, question.until, figures, gaps, showing, windows=windows, covariance=question.covariance)


def _freezing(question: ResultsQuery, shown: ShownSurvey, showing: ShownAs) -> Mapping[int, dict[str, Any]] | None:
    """How far freezing moves the values at most, unsmoothed; None where the survey does not ask."""
    if (other := shown.survey.freezing[question.about]) is None:
        return None
    online = question.method is ResultMethod.ONLINE
    solution = shown.solution(question.strata, ResultMethod.ONLINE if online else ResultMethod.RETROSPECTIVE, other)
    if question.kind in (ResultKind.SERIES, ResultKind.WINDOWS):
        return freezing_shown(histogram_figures(solution, question.until)[0], showing)
    try:
        return freezing_shown(span_figures(solution, Node(0, question.until))[0], showing)
    except NotEstimable:
        return {}


@Described(
    gives={200: {JSON: ManyEstimates, MEDIA_TYPES[Format.CSV]: str, MSGPACK: Signed}, 304: {}},
    scope=TokenScope.READ,
    open_too=True,
)
async def show_edition_file(request: Request) -> Response:
    """GET a file of an edition of an open survey, by the edition's name, or of the `latest`.

    Under a name it never changes, and any cache may keep it. The files are `series` and `retrospective`, each as
    `.json` and `.csv`, `edition.signed` with the tallies that they are made of and their hashes, and `key.signed`, the
    authority's certificate of the key that signed, where it has given one.
    """
    service, published = service_of(request), survey_in_path(request)
    require_reader(request, published)
    survey, named, name = published.survey.id, request.path_params["edition"], request.path_params["file"]
    headers: dict[str, str] = {}
    if not published.public:
        raise TurnedDown(ErrorCode.NOT_FOUND, "there are editions of surveys that are open to all alone")
    if named == LATEST:
        newest = service.editions.newest(survey)
        files, kept = None, ""
        if newest is not None:
            files, kept = newest.files, cache_control(published, newest.looked, service.clock())
            headers["content-location"] = f"../{newest.id.hex()}/{name}"
            if not newest.is_latest:
                kept = _AT_ONCE
    else:
        files, kept = await run_in_threadpool(service.editions.files, survey, _id(named)), _IMMUTABLE
    if files is None or name not in files:
        raise TurnedDown(ErrorCode.NOT_FOUND, "there is no such edition of the survey, or no such file in it")
    return answer_file(request, files[name], {"cache-control": kept, **headers})


def _id(named: str) -> bytes:
    try:
        return bytes.fromhex(named)
    except ValueError:
        return b""
