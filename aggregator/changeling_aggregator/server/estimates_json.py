"""Estimates as JSON."""

from collections.abc import Sequence
from math import isnan
from typing import Any

from changeling_protocol import Node, Survey
from changeling_statistics.estimation import Change, Gap, Histogram, UsedNode
from changeling_statistics.instants import format_instant

from ..ingest import PublishedSurvey

MOST_BOUNDED_PERIODS = 1200
"""In a longer calendar bounds are left out: each takes a solve of its own."""


def survey_as_json(published: PublishedSurvey) -> dict[str, Any]:
    """What stands above every answer."""
    survey = published.survey
    return {
        "survey": survey.id.hex(),
        "question": survey.question,
        "answers": list(survey.answers),
        "last_period": published.last,
    }


def estimate_as_json(survey: Survey, result: Histogram | Change, *, sealed: int) -> dict[str, Any]:
    """A histogram or a change.

    sealed: the period up to which all closings are sealed. What hangs on a later one is provisional: late reports may
    still change it.
    """
    return {
        **(_moment(survey, result.period) if isinstance(result, Histogram) else _window(result.span)),
        "values": result.estimate.values.tolist(),
        "standard_errors": _known(result.estimate.standard_errors.tolist()),
        "covariance": result.estimate.covariance.tolist(),
        "upper_bound": result.estimate.upper_bound,
        "provisional": result.silence.known_until > sealed,
        "enrolled": result.silence.enrolled,
        "heard": result.silence.heard,
        "bounds": _bounds(survey, result),
    }


def _bounds(survey: Survey, result: Histogram | Change) -> list[list[float | None]] | None:
    if survey.calendar.periods > MOST_BOUNDED_PERIODS:
        return None
    return [_known(ends) for ends in result.silence.bounds().tolist()]


def _known(figures: Sequence[float]) -> list[float | None]:
    return [None if isnan(figure) else figure for figure in figures]


def gap_as_json(survey: Survey, gap: Gap, *, window: bool) -> dict[str, Any]:
    """A gap, with the node that is missing.

    window: whether a change was asked for, and not a histogram.
    """
    missing = gap.missing and {"track": gap.missing.track, "start": gap.missing.node.start, "end": gap.missing.node.end}
    when = _window(gap.span) if window else _moment(survey, gap.span.end)
    return {**when, "values": None, "missing": missing}


def nodes_as_json(nodes: Sequence[UsedNode], sealed: int) -> list[dict[str, Any]]:
    """The nodes behind estimates. sealed: the period up to which all closings are sealed."""
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


def _moment(survey: Survey, period: int) -> dict[str, Any]:
    return {"period": period, "time": format_instant(survey.calendar.time(period))}


def _window(span: Node) -> dict[str, Any]:
    return {"after": span.start, "until": span.end}
