"""The content of answers to readers: figures, what they rest on, and what to think of them.

A standard error is null where its variance, itself an unbiased estimate, came out below zero. A period that the nodes
do not identify has null values and the node that is missing.
"""

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np
from changeling_protocol import Node, Survey
from changeling_protocol.wire import ErrorCode
from changeling_statistics import (
    NORMAL,
    Figures,
    Gap,
    Solution,
    UsedNode,
    diagnosed,
    false_entries,
    format_instant,
    histogram_figures,
    span_figures,
    window_figures,
)

from ..errors import TurnedDown
from ..ingest import PublishedSurvey
from .questions import Kind, Method, Question
from .shown import Shown

MOST_COVARIANCES = 4 * 10**6
"""How many figures the covariances of one answer have at most."""


def answered(question: Question, published: PublishedSurvey, shown: Shown) -> dict[str, Any]:
    """The answer to a question. Raises NotEstimable, ValueError, or TurnedDown where it would be too large."""
    survey = published.survey
    solution = shown.solution(question.strata, question.method)
    content = _head(published, question, shown, solution)
    if question.kind in (Kind.HISTOGRAM, Kind.CHANGE):
        span = Node(question.after, question.until)
        nodes: Sequence[UsedNode]
        figures, nodes = span_figures(solution, span)
        (estimate,) = _estimates(question, survey, solution, figures, shown)
        content |= estimate
    else:
        if question.kind is Kind.SERIES:
            figures, gaps = histogram_figures(solution, question.until)
        else:
            figures, gaps = window_figures(solution, question.width, question.until)
        listed = _estimates(question, survey, solution, figures, shown) + [_gap(survey, question, gap) for gap in gaps]
        content["series"] = sorted(listed, key=lambda each: each["until" if "until" in each else "period"])
        nodes = _known(solution, question) if listed else []
    return content | {
        "diagnostics": diagnosed(solution.releases).as_dict(),
        "nodes": nodes_as_json(nodes, shown.final),
    }


def nodes_as_json(nodes: Sequence[UsedNode], final: int) -> list[dict[str, Any]]:
    """The nodes behind estimates. final: the period up to which all closings are shown for good."""
    return [
        {
            "track": used.track,
            "start": used.node.start,
            "end": used.node.end,
            "reports": used.reports,
            "sealed": used.node.end <= final,
        }
        for used in nodes
    ]


def _head(published: PublishedSurvey, question: Question, shown: Shown, solution: Solution) -> dict[str, Any]:
    survey = published.survey
    drift = {} if solution.drift is None else {"drift": solution.drift}
    return {
        "survey": survey.id.hex(),
        "question": survey.question,
        "answers": list(survey.answers),
        "epsilon": float(survey.epsilon),
        "last_period": published.last,
        "revision": shown.revision,
        "method": question.method.value,
        "biased": question.method is Method.SMOOTHED,
        "confidence": question.confidence,
        **drift,
    }


def _estimates(
    question: Question, survey: Survey, solution: Solution, figures: Figures, shown: Shown
) -> list[dict[str, Any]]:
    k, z = figures.values.shape
    if question.covariance and k * z * z > MOST_COVARIANCES:
        raise TurnedDown(ErrorCode.INVALID, "these are more covariances than fit an answer: ask for fewer periods")
    errors, needed = figures.standard_errors, false_entries(figures.influence, figures.enrolled)
    ends: dict[str, Any] = {}
    if question.confidence is not None:
        alone = NORMAL.inv_cdf(0.5 + question.confidence / 2)
        together = NORMAL.inv_cdf(0.5 + question.confidence ** (1 / max(1, k * z)) / 2)
        for name, critical in (("intervals", alone), ("simultaneous", together)):
            sides = np.stack([figures.values - critical * errors, figures.values + critical * errors], axis=-1)
            ends[name] = _known_figures(sides)
    values, standard, bounds = figures.values.tolist(), _known_figures(errors), _known_figures(figures.bounds)
    listed = []
    for at, span in enumerate(figures.spans):
        enrolled, heard = int(figures.enrolled[at]), int(figures.heard[at])
        estimate = {
            **_when(survey, question, span),
            "values": values[at],
            "standard_errors": standard[at],
            "upper_bound": bool(figures.upper_bound[at]),
            "provisional": bool(figures.known_until[at] > shown.final),
            "enrolled": enrolled,
            "heard": heard,
            "response_rate": heard / enrolled if enrolled else 1.0,
            "bounds": bounds[at],
            "false_entries": int(needed[at]),
            **{name: each[at] for name, each in ends.items()},
        }
        if question.covariance:
            estimate["covariance"] = solution.estimate(span.end, span.start).covariance.tolist()
        listed.append(estimate)
    return listed


def _known(solution: Solution, question: Question) -> list[UsedNode]:
    """The nodes that a series is made of, in the order of their ends."""
    nodes = list(solution.releases.nodes)
    return nodes if solution.retrospective else [used for used in nodes if used.node.end <= question.until]


def _gap(survey: Survey, question: Question, gap: Gap) -> dict[str, Any]:
    missing = gap.missing and {"track": gap.missing.track, "start": gap.missing.node.start, "end": gap.missing.node.end}
    return {**_when(survey, question, gap.span), "values": None, "missing": missing}


def _when(survey: Survey, question: Question, span: Node) -> dict[str, Any]:
    if question.kind in (Kind.CHANGE, Kind.WINDOWS):
        return {"after": span.start, "until": span.end}
    return {"period": span.end, "time": format_instant(survey.calendar.time(span.end))}


def _known_figures(figures: Any) -> Any:
    """Nested lists, with null for nan."""
    if not np.isnan(figures).any():
        return figures.tolist()
    return _nulls(figures.tolist())


def _nulls(nested: Any) -> Any:
    if isinstance(nested, list):
        return [_nulls(each) for each in nested]
    return None if isnan(nested) else nested
