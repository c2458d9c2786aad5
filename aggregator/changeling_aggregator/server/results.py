"""Results over HTTP: histograms, series and changes, what they rest on, and what to think of them.

An answer depends on the question and on the revision of what is shown, on nothing else; so it is made once for both,
remembered, and its entity tag is known before it is made. A standard error is null where its variance, itself an
unbiased estimate, came out below zero; an interval never is. A period that the nodes do not identify has null values
and the node that is missing.
"""

import asyncio
import contextlib
import csv
import io
from collections.abc import Coroutine, Sequence
from functools import partial
from math import isnan
from typing import Any

import msgspec
import numpy as np
from changeling_protocol import VERSION, Node, Survey
from changeling_protocol.wire import ErrorCode
from changeling_statistics import (
    Figures,
    Gap,
    Smoothing,
    Solution,
    UsedNode,
    diagnosed,
    false_entries,
    format_instant,
    histogram_figures,
    span_figures,
    window_figures,
)
from msgspec import UNSET, UnsetType
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ..errors import TurnedDown
from ..ingest import PublishedSurvey
from ..store import TokenScope
from .comparing import ComparisonAnswer, compared, comparison_rows
from .front_door import network_of
from .openapi import Body, Bounds, Count, Described, HexId, Instant, MissingNode, Period, described
from .questions import (
    MEDIA_TYPES,
    QUERIES,
    FigurePopulation,
    Format,
    Question,
    ResultKind,
    ResultMethod,
    format_of,
    opens_page,
    parse,
)
from .requests import require_reader, service_of, survey_in_path
from .responses import cache_control, is_kept, tag_of
from .shown import ShownSurvey

MOST_COVARIANCES = 4 * 10**6
"""How many figures the covariances of one answer have at most."""


class PublishedNode(MissingNode):
    """A node behind estimates. sealed: whether no late report can change it any more."""

    reports: Count
    sealed: bool


class UnlikelyNode(MissingNode):
    """A node whose tally honest devices hardly send."""

    p_value: float


class Diagnostics(Body):
    """A test of whether the tallies are possible at all."""

    impossible: bool
    p_value: float
    false_alarm_rate: float
    tested_nodes: Count
    untested_nodes: Count
    suspects: list[UnlikelyNode]


class ResultAnswer(Body, kw_only=True):
    """The head of every answer. drift: of smoothed estimates, τ² of each answer."""

    survey: HexId
    question: str
    answers: list[str]
    epsilon: float
    last_period: Period
    revision: Count
    method: ResultMethod
    population: FigurePopulation
    biased: bool
    confidence: float | None
    diagnostics: Diagnostics
    nodes: list[PublishedNode]
    drift: list[float] | UnsetType = UNSET


class ResultEstimate(Body, kw_only=True):
    """An estimate at a period's end, or of the change over a window; where there is none, what is missing."""

    values: list[float] | None
    period: Period | UnsetType = UNSET
    time: Instant | UnsetType = UNSET
    after: Period | UnsetType = UNSET
    until: Period | UnsetType = UNSET
    standard_errors: list[float | None] | UnsetType = UNSET
    upper_bound: bool | UnsetType = UNSET
    provisional: bool | UnsetType = UNSET
    entries: Count | UnsetType = UNSET
    enrolled: Count | UnsetType = UNSET
    heard: Count | UnsetType = UNSET
    response_rate: float | UnsetType = UNSET
    bounds: list[Bounds] | UnsetType = UNSET
    false_entries: Count | UnsetType = UNSET
    intervals: list[Bounds] | UnsetType = UNSET
    simultaneous: list[Bounds] | UnsetType = UNSET
    covariance: list[list[float]] | UnsetType = UNSET
    missing: MissingNode | UnsetType | None = UNSET


_FIELDS = [(each.name, each.type, each.default) for each in msgspec.structs.fields(ResultEstimate) if not each.required]
OneEstimate = msgspec.defstruct(  # a struct has one base only
    "OneEstimate", [("values", list[float] | None), *_FIELDS], bases=(ResultAnswer,), kw_only=True, module=__name__
)
"""A histogram, or a change: the head of an answer, and one estimate."""


class ManyEstimates(ResultAnswer, kw_only=True):
    """A series of histograms, or the changes over all windows."""

    series: list[ResultEstimate]


def _described(kind: ResultKind) -> Described:
    answer: type = ManyEstimates if kind in (ResultKind.SERIES, ResultKind.WINDOWS) else OneEstimate
    if kind is ResultKind.COMPARISON:
        answer = ComparisonAnswer
    return Described(
        gives={200: {MEDIA_TYPES[form]: str if form is Format.CSV else answer for form in Format}, 304: {}},
        query=QUERIES[kind],
        refuses=(ErrorCode.INVALID, ErrorCode.NOT_ESTIMABLE),
        scope=TokenScope.READ,
        open_too=True,
    )


@described(_described(ResultKind.HISTOGRAM))
async def show_histogram(request: Request) -> Response:
    """GET …/histogram?period=t or ?time=ISO 8601: by default the last period of which anything is shown."""
    return await _answer(request, ResultKind.HISTOGRAM)


@described(_described(ResultKind.SERIES))
async def show_series(request: Request) -> Response:
    """GET …/series?until=t: the histograms of the periods 1 to t; the nodes are listed once for all of them."""
    return await _answer(request, ResultKind.SERIES)


@described(_described(ResultKind.WINDOWS))
async def show_windows(request: Request) -> Response:
    """GET …/windows?width=w&until=t: the changes over all windows of w periods that end by t."""
    return await _answer(request, ResultKind.WINDOWS)


@described(_described(ResultKind.CHANGE))
async def show_change(request: Request) -> Response:
    """GET …/change?after=l&until=r: the change of the histogram over the window (l, r]."""
    return await _answer(request, ResultKind.CHANGE)


@described(_described(ResultKind.COMPARISON))
async def show_comparison(request: Request) -> Response:
    """GET …/comparison?stratum=…&against=…&after=l&until=t: the differences between two arms, or two times, or both."""
    return await _answer(request, ResultKind.COMPARISON)


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


def _made(question: Question, published: PublishedSurvey, shown: ShownSurvey, form: Format) -> bytes:
    try:
        compares = question.kind is ResultKind.COMPARISON
        content = (compared if compares else answered)(question, published, shown)
    except ValueError as error:
        raise TurnedDown(ErrorCode.INVALID, f"{error}") from error
    if form is Format.JSON:
        return msgspec.json.encode(content)
    if form is Format.MSGPACK:
        return msgspec.msgpack.encode(content)
    return (comparison_rows(content) if isinstance(content, ComparisonAnswer) else _rows(content)).encode()


def answered(question: Question, published: PublishedSurvey, shown: ShownSurvey) -> ResultAnswer:
    """The answer to a question. Raises NotEstimable, ValueError, or TurnedDown where it would be too large."""
    survey = published.survey
    solution = shown.solution(question.strata, question.method)
    nodes: Sequence[UsedNode]
    if question.kind in (ResultKind.HISTOGRAM, ResultKind.CHANGE):
        figures, nodes = span_figures(solution, Node(question.after, question.until))
        (estimate,) = _estimates(question, survey, solution, figures, shown)
        head = _head(published, question, shown, solution, nodes)
        answer: ResultAnswer = OneEstimate(**head, **msgspec.structs.asdict(estimate))  # type: ignore[assignment]
        return answer
    if question.kind is ResultKind.SERIES:
        figures, gaps = histogram_figures(solution, question.until)
    else:
        figures, gaps = window_figures(solution, question.width, question.until)
    series = _estimates(question, survey, solution, figures, shown) + [_gap(survey, question, gap) for gap in gaps]
    series.sort(key=lambda each: each.until or each.period or 0)
    nodes = list(solution.releases.nodes) if series else []
    if not solution.retrospective:
        nodes = [used for used in nodes if used.node.end <= question.until]
    return ManyEstimates(**_head(published, question, shown, solution, nodes), series=series)


def _head(
    published: PublishedSurvey, question: Question, shown: ShownSurvey, solution: Solution, nodes: Sequence[UsedNode]
) -> dict[str, Any]:
    survey = published.survey
    return {
        "survey": survey.id.hex(),
        "question": survey.question,
        "answers": list(survey.answers),
        "epsilon": float(survey.epsilon),
        "last_period": published.last,
        "revision": shown.revision,
        "method": question.method,
        "population": question.population,
        "biased": question.method is ResultMethod.SMOOTHED,
        "confidence": question.confidence,
        "drift": solution.drifts.tolist() if isinstance(solution, Smoothing) else UNSET,
        "diagnostics": msgspec.convert(diagnosed(solution.releases).as_dict(), Diagnostics),
        "nodes": [
            PublishedNode(
                track=used.track,
                start=used.node.start,
                end=used.node.end,
                reports=used.reports,
                sealed=used.node.end <= shown.final,
            )
            for used in nodes
        ],
    }


def _estimates(
    question: Question, survey: Survey, solution: Solution, figures: Figures, shown: ShownSurvey
) -> list[ResultEstimate]:
    if of_heard := question.population is FigurePopulation.HEARD:
        summed, figures = figures.summed, figures.of_heard()
    k, z = figures.values.shape
    if question.covariance and k * z * z > MOST_COVARIANCES:
        raise TurnedDown(ErrorCode.INVALID, "these are more covariances than fit an answer: ask for fewer periods")
    errors, needed = figures.standard_errors, false_entries(figures.influence, figures.entries)
    ends: dict[str, Any] = {}
    if question.confidence is not None:
        ends["intervals"] = figures.intervals(question.confidence).tolist()
        ends["simultaneous"] = figures.intervals(question.confidence, together=True).tolist()
    values, standard, bounds = figures.values.tolist(), _known_figures(errors), _known_figures(figures.bounds)
    listed = []
    for at, span in enumerate(figures.spans):
        enrolled, heard = int(figures.enrolled[at]), int(figures.heard[at])
        estimate = ResultEstimate(
            **_when(survey, question, span),
            values=values[at],
            standard_errors=standard[at],
            upper_bound=bool(figures.upper_bound[at]),
            provisional=bool(figures.known_until[at] > shown.final),
            entries=int(figures.entries[at]),
            enrolled=enrolled,
            heard=heard,
            response_rate=heard / enrolled if enrolled else 1.0,
            bounds=bounds[at],
            false_entries=int(needed[at]),
            **{name: each[at] for name, each in ends.items()},
        )
        if question.covariance:
            factor = float(figures.heard[at] / summed[at]) if of_heard else 1.0
            estimate.covariance = (solution.estimate(span.end, span.start).covariance * factor**2).tolist()
        listed.append(estimate)
    return listed


def _gap(survey: Survey, question: Question, gap: Gap) -> ResultEstimate:
    missing = gap.missing and MissingNode(
        track=gap.missing.track, start=gap.missing.node.start, end=gap.missing.node.end
    )
    return ResultEstimate(**_when(survey, question, gap.span), values=None, missing=missing)


def _when(survey: Survey, question: Question, span: Node) -> dict[str, Any]:
    if question.kind in (ResultKind.CHANGE, ResultKind.WINDOWS):
        return {"after": span.start, "until": span.end}
    return {"period": span.end, "time": format_instant(survey.calendar.time(span.end))}


def _known_figures(figures: Any) -> Any:
    """Nested lists, with null for nan."""
    return _nulls(figures.tolist()) if np.isnan(figures).any() else figures.tolist()


def _nulls(nested: Any) -> Any:
    if isinstance(nested, list):
        return [_nulls(each) for each in nested]
    return None if isnan(nested) else nested


_COLUMNS = ("upper_bound", "provisional", "entries", "enrolled", "heard", "false_entries")


def _rows(answer: ResultAnswer) -> str:
    """CSV: a row for each estimate and answer, without the nodes and covariances."""
    content = msgspec.to_builtins(answer)
    estimates = content.get("series", [content])
    when = ("after", "until") if any("after" in each for each in estimates) else ("period", "time")
    ends = [name for name in ("intervals", "simultaneous", "bounds") if any(name in each for each in estimates)]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(
        [*when, "answer", "population", "estimate", "standard_error"]
        + [f"{name}_{side}" for name in ends for side in ("low", "high")]
        + [*_COLUMNS, "epsilon"]
    )
    for each in estimates:
        for at, name in enumerate(content["answers"]):
            figures = [each["values"] and each["values"][at], (each.get("standard_errors") or {at: None})[at]]
            sides = [side for end in ends for side in (each[end][at] if end in each else (None, None))]
            rest = [each.get(column) for column in _COLUMNS]
            writer.writerow(
                [
                    *(each[column] for column in when),
                    name,
                    content["population"],
                    *figures,
                    *sides,
                    *rest,
                    content["epsilon"],
                ]
            )
    return written.getvalue()
