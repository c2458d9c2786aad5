"""Histograms and their changes over HTTP, as JSON: values, standard errors and covariance in entries, and the nodes
behind them.

A standard error is null where its variance, itself an unbiased estimate, came out below zero. `upper_bound` says that
the covariance is one, as tallies do not identify all of it. `enrolled` and `heard` say how many entries a figure is
about and how many were heard at its last closing; `bounds` hold whatever the silent ones hold. A period that the nodes
do not identify has null values and the node that is missing. What late reports may still change is `provisional`.
&retrospective=true uses every node that has closed; &stratum=NAME:VALUE, once or more, looks at those entries alone.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from math import floor
from typing import TypeAlias

from changeling_protocol import Node, Survey
from changeling_protocol.quantities import UnixSeconds
from changeling_protocol.wire import JSON, ErrorCode
from changeling_statistics.estimation import Change, Gap, Histogram, UsedNode, change, histogram, series, sliding
from changeling_statistics.instants import parse_instant
from changeling_statistics.strata import select
from changeling_statistics.tallies import Tallies
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import TurnedDown
from ..ingest import PublishedSurvey
from ..store.counted import sealed_period, stratified_tallies_of, tallies_of
from .estimates_json import estimate_as_json, gap_as_json, nodes_as_json, survey_as_json
from .estimating import digest_of
from .publishable import check_closed, publishable_tallies, settled_period
from .requests import service_of, survey_in_path


async def show_histogram(request: Request) -> Response:
    """GET …/histogram?period=t or ?time=ISO 8601: by default the last period whose answers were due."""

    def estimated(published: PublishedSurvey, tallies: Tallies, now: UnixSeconds) -> Histogram:
        period = _period(request, "period", published, now)
        return histogram(published.survey, tallies, period, retrospective=_retrospective(request))

    return await _answer(request, estimated)


async def show_series(request: Request) -> Response:
    """GET …/series?until=t: the histograms of the periods 1 to t; with &window=w their changes over w periods.

    The nodes are listed once for all of them: those published that end by the last, or all if retrospective.
    """

    def estimated(published: PublishedSurvey, tallies: Tallies, now: UnixSeconds) -> Sequence[Histogram | Change | Gap]:
        until = _period(request, "until", published, now)
        if "window" in request.query_params:
            width = _number(request, "window")
            return sliding(published.survey, tallies, width, until, retrospective=_retrospective(request))
        return series(published.survey, tallies, until, retrospective=_retrospective(request))

    return await _answer(request, estimated)


async def show_change(request: Request) -> Response:
    """GET …/change?after=l&until=r: the change of the histogram over the window (l, r]."""

    def estimated(published: PublishedSurvey, tallies: Tallies, now: UnixSeconds) -> Change:
        window = Node(_number(request, "after"), _period(request, "until", published, now))
        return change(published.survey, tallies, window, retrospective=_retrospective(request))

    return await _answer(request, estimated)


_Result: TypeAlias = Histogram | Change | Sequence[Histogram | Change | Gap]
_Estimated: TypeAlias = Callable[[PublishedSurvey, Tallies, UnixSeconds], _Result]


async def _answer(request: Request, estimated: _Estimated) -> Response:
    published = survey_in_path(request)
    content = service_of(request).estimating.submit(partial(_content, request, published, estimated))
    return Response(await asyncio.wrap_future(content), media_type=JSON)


def _content(request: Request, published: PublishedSurvey, estimated: _Estimated) -> bytes:
    """The answer, made once for each question as long as its tallies, and what is closed and sealed, stay the same."""
    service, survey = service_of(request), published.survey
    now = service.clock()
    with service.store.reading() as connection:
        tallies, sealed = _tallies(connection, request, survey), sealed_period(connection, survey.id)
    shown = publishable_tallies(published, tallies, now)
    question = request.url.path, tuple(sorted(request.query_params.multi_items()))
    closed = published.last, published.closed(now), published.closed(UnixSeconds(now - survey.skew - survey.spread))
    made_of = digest_of(shown), sealed, closed
    return service.estimating.once(
        (question, made_of),
        partial(_made, request, published, shown, sealed, lambda: estimated(published, shown, now)),
    )


def _made(
    request: Request,
    published: PublishedSurvey,
    shown: Tallies,
    sealed: int,
    estimated: Callable[[], _Result],
) -> bytes:
    survey = published.survey
    try:
        made = estimated()
    except ValueError as error:
        raise TurnedDown(ErrorCode.INVALID, f"{error}") from error
    if isinstance(made, Histogram | Change):
        content = {**estimate_as_json(survey, made, sealed=sealed), "nodes": nodes_as_json(made.nodes, sealed)}
    else:
        known = _published_nodes(survey, shown)
        if not _retrospective(request):
            known = [each for each in known if made and each.node.end <= _end(made[-1])]
        window = "window" in request.query_params
        listed = [
            gap_as_json(survey, each, window=window)
            if isinstance(each, Gap)
            else estimate_as_json(survey, each, sealed=sealed)
            for each in made
        ]
        content = {"series": listed, "nodes": nodes_as_json(known, sealed)}
    return bytes(JSONResponse({**survey_as_json(published), **content}).body)


def _tallies(connection: Connection, request: Request, survey: Survey) -> Tallies:
    """Of everybody, or of the strata asked for, as far as nothing published is about too few."""
    if not (asked := request.query_params.getlist("stratum")):
        return tallies_of(connection, survey.id)
    told: dict[str, set[str]] = {}
    for name, _, value in (each.partition(":") for each in asked):
        told.setdefault(name, set()).add(value)
    try:
        strata = select(survey.breakdowns, told)
    except ValueError as error:
        raise TurnedDown(ErrorCode.INVALID, f"{error}") from error
    return stratified_tallies_of(connection, survey.id, survey.minimum).union(strata)


def _published_nodes(survey: Survey, shown: Tallies) -> list[UsedNode]:
    """The nodes that may be shown, in the order of their ends."""
    tracks = survey.plan.tracks
    nodes = [UsedNode(track, number, tracks[track].node(number), o.reports) for (track, number), o in shown.items()]
    return sorted(nodes, key=lambda each: (each.node.end, each.node.start, each.track))


def _end(result: Histogram | Change | Gap) -> int:
    return result.period if isinstance(result, Histogram) else result.span.end


def _number(request: Request, name: str) -> int:
    asked = request.query_params.get(name, "")
    if not (asked.isascii() and asked.isdigit()):
        raise ValueError(f"{name} is a number of periods, got {asked!r}")
    return int(asked)


def _retrospective(request: Request) -> bool:
    """Whether to use every node that has closed, rather than those that had by the period in question."""
    asked = request.query_params.get("retrospective", "false")
    if asked not in ("true", "false"):
        raise ValueError(f"retrospective is true or false, got {asked!r}")
    return asked == "true"


def _period(request: Request, name: str, published: PublishedSurvey, now: UnixSeconds) -> int:
    asked = request.query_params
    if name in asked:
        return check_closed(published, _number(request, name), now)
    if "time" in asked:
        calendar = published.survey.calendar
        elapsed = parse_instant(asked["time"]) - calendar.start
        return check_closed(published, floor(elapsed / calendar.period), now)
    return settled_period(published, now)
