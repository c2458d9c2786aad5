"""Histograms over HTTP, as JSON: values, standard errors and covariance in entries, and the nodes behind them.

A standard error is null where its variance, itself an unbiased estimate, came out below zero.
"""

from math import floor, isnan
from typing import Any

from changeling_protocol import Survey
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..estimation import Histogram, histogram, series
from ..instants import format_instant, parse_instant
from ..store.counted import sealed_nodes, tallies_of
from ..tallies import NodeTally
from .publishable import check_closed, publishable_tallies, settled_period
from .requests import service_of, survey_in_path


def show_histogram(request: Request) -> Response:
    """GET …/histogram?period=t or ?time=ISO 8601: by default the last period whose answers were due."""
    survey = survey_in_path(request).survey
    now = service_of(request).clock()
    try:
        period = _period(request, "period", survey, now)
        tallies, sealed = _tallies(request, survey, now)
        found = histogram(survey, tallies, period)
    except ValueError as error:
        raise HTTPException(422, f"{error}") from error
    return JSONResponse({**_survey_as_json(survey), **_as_json(survey, found, sealed)})


def show_series(request: Request) -> Response:
    """GET …/series?until=t: the histograms of the periods 1 to t."""
    survey = survey_in_path(request).survey
    now = service_of(request).clock()
    try:
        until = _period(request, "until", survey, now)
        tallies, sealed = _tallies(request, survey, now)
        found = series(survey, tallies, until)
    except ValueError as error:
        raise HTTPException(422, f"{error}") from error
    return JSONResponse({**_survey_as_json(survey), "series": [_as_json(survey, at, sealed) for at in found]})


def _period(request: Request, name: str, survey: Survey, now: float) -> int:
    asked = request.query_params
    if name in asked:
        if not (asked[name].isascii() and asked[name].isdigit()):
            raise ValueError(f"{name} is the number of a period, got {asked[name]!r}")
        return check_closed(survey, int(asked[name]), now)
    if "time" in asked:
        elapsed = parse_instant(asked["time"]) - survey.calendar.start
        return check_closed(survey, floor(elapsed / survey.calendar.period), now)
    return settled_period(survey, now)


def _tallies(request: Request, survey: Survey, now: float) -> tuple[dict[tuple[int, int], NodeTally], dict[int, int]]:
    with service_of(request).store.reading() as connection:
        tallies, sealed = tallies_of(connection, survey.id), sealed_nodes(connection, survey.id)
    return publishable_tallies(survey, tallies, now), sealed


def _survey_as_json(survey: Survey) -> dict[str, Any]:
    return {"survey": survey.id.hex(), "question": survey.question, "answers": list(survey.answers)}


def _as_json(survey: Survey, found: Histogram, sealed: dict[int, int]) -> dict[str, Any]:
    return {
        "period": found.period,
        "time": format_instant(survey.calendar.time(found.period)),
        "values": found.estimate.values.tolist(),
        "standard_errors": [None if isnan(e) else e for e in found.estimate.standard_errors.tolist()],
        "covariance": found.estimate.covariance.tolist(),
        "nodes": [
            {
                "track": used.track,
                "start": used.node.start,
                "end": used.node.end,
                "reports": used.reports,
                "sealed": used.number <= sealed.get(used.track, 0),
            }
            for used in found.nodes
        ],
    }
