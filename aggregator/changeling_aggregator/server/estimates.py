"""Histograms and their changes over HTTP, as JSON: values, standard errors and covariance in entries, and the nodes
behind them.

A standard error is null where its variance, itself an unbiased estimate, came out below zero. `upper_bound` says that
the covariance is one, as tallies do not identify all of it. `enrolled` and `heard` say how many entries a figure is
about and how many were heard at its last closing; `bounds` hold whatever the silent ones hold. A period that the nodes
do not identify has null values and the node that is missing. &retrospective=true uses every node that has closed.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from math import floor, isnan
from typing import Any, TypeAlias

from changeling_protocol import Node, Survey
from changeling_protocol.quantities import UnixSeconds
from changeling_protocol.wire import JSON, ErrorCode
from changeling_statistics.estimation import Change, Gap, Histogram, UsedNode, change, histogram, series, sliding
from changeling_statistics.instants import format_instant, parse_instant
from changeling_statistics.tallies import Tallies
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import TurnedDown
from ..ingest import PublishedSurvey
from ..store.counted import sealed_period, tallies_of
from .estimating import digest_of
from .publishable import check_closed, publishable_tallies, settled_period
from .requests import service_of, survey_in_path

MOST_BOUNDED_PERIODS = 1200
"""In a longer calendar bounds are left out: each takes a solve of its own."""


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
        tallies, sealed = tallies_of(connection, survey.id), sealed_period(connection, survey.id)
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
        content = {**_as_json(survey, made), "nodes": _nodes_as_json(made.nodes, sealed)}
    else:
        known = _published_nodes(survey, shown)
        if not _retrospective(request):
            known = [each for each in known if made and each.node.end <= _end(made[-1])]
        listed = [_gap_as_json(survey, each) if isinstance(each, Gap) else _as_json(survey, each) for each in made]
        content = {"series": listed, "nodes": _nodes_as_json(known, sealed)}
    return bytes(JSONResponse({**_survey_as_json(published), **content}).body)


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


def _survey_as_json(published: PublishedSurvey) -> dict[str, Any]:
    survey = published.survey
    return {
        "survey": survey.id.hex(),
        "question": survey.question,
        "answers": list(survey.answers),
        "last_period": published.last,
    }


def _as_json(survey: Survey, result: Histogram | Change) -> dict[str, Any]:
    return {
        **_when(survey, result),
        "values": result.estimate.values.tolist(),
        "standard_errors": [None if isnan(e) else e for e in result.estimate.standard_errors.tolist()],
        "covariance": result.estimate.covariance.tolist(),
        "upper_bound": result.estimate.upper_bound,
        "enrolled": result.silence.enrolled,
        "heard": result.silence.heard,
        "bounds": result.silence.bounds().tolist() if survey.calendar.periods <= MOST_BOUNDED_PERIODS else None,
    }


def _gap_as_json(survey: Survey, gap: Gap) -> dict[str, Any]:
    missing = gap.missing and {"track": gap.missing.track, "start": gap.missing.node.start, "end": gap.missing.node.end}
    return {**_when(survey, gap), "values": None, "missing": missing}


def _nodes_as_json(nodes: Sequence[UsedNode], sealed: int) -> list[dict[str, Any]]:
    return [
        {
            "track": used.track,
            "start": used.node.start,
            "end": used.node.end,
            "reports": used.reports,
            "sealed": used.node.end <= sealed,
        }
        for used in nodes
    ]


def _when(survey: Survey, result: Histogram | Change | Gap) -> dict[str, Any]:
    end = _end(result)
    if isinstance(result, Histogram) or (isinstance(result, Gap) and result.span.start == 0):
        return {"period": end, "time": format_instant(survey.calendar.time(end))}
    return {"after": result.span.start, "until": end}
