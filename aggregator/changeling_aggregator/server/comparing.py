"""Comparisons over HTTP: the difference between two arms, between two times, or of both, with intervals and p-values.

Shares are compared, as arms differ in size: 0.02 is two points. An arm is a stratum, or several, that the app tells the
server with each upload; so who is in which arm is no secret, and what an entry answers is none the less.
"""

import csv
import io

import numpy as np
from changeling_statistics import Difference, Gap, Solution, format_instant, share_differences
from msgspec import UNSET, UnsetType

from ..ingest import PublishedSurvey
from .openapi import Body, Bounds, Count, HexId, Instant, MissingNode, Period
from .questions import ResultMethod, ResultsQuery
from .shown import ShownSurvey


class ShareDifference(Body, kw_only=True):
    """The differences at a period's end, by answer; where there are none, what is missing.

    p_values: the chance of at least so large a difference by noise alone. p_together: of one so clear in any answer.
    shares: those, or their changes, that the difference is between: of the arm, and of the one it is compared with.
    entries: how many were heard in the arm, and in the one that it is compared with.
    """

    period: Period
    time: Instant
    differences: list[float] | None
    standard_errors: list[float] | UnsetType = UNSET
    intervals: list[Bounds] | UnsetType = UNSET
    p_values: list[float] | UnsetType = UNSET
    p_together: float | UnsetType = UNSET
    shares: list[list[float]] | UnsetType = UNSET
    entries: list[Count] | UnsetType = UNSET
    provisional: bool | UnsetType = UNSET
    missing: MissingNode | UnsetType | None = UNSET


class ComparisonAnswer(Body, kw_only=True):
    """Differences period after period. after: changes since the end of this period are compared; 0 for shares."""

    survey: HexId
    question: str
    answers: list[str]
    epsilon: float
    last_period: Period
    revision: Count
    method: ResultMethod
    confidence: float | None
    after: Period
    series: list[ShareDifference]


def compared(question: ResultsQuery, published: PublishedSurvey, shown: ShownSurvey) -> ComparisonAnswer:
    """The answer to a question about differences."""
    survey = published.survey.about(question.about)
    arms = [shown.solution(question.strata, question.method, question.about)]
    if question.against is not None:
        arms.append(shown.solution(question.against, question.method, question.about))
    there, differences, gaps = share_differences(
        arms[0], arms[1] if len(arms) == 2 else None, question.until, since=question.after
    )
    series = [*_estimated(question, arms, there, differences, shown.final), *(_lost(gap) for gap in gaps)]
    for each in series:
        each.time = format_instant(survey.calendar.time(each.period))
    return ComparisonAnswer(
        survey=survey.id.hex(),
        question=survey.question,
        answers=list(survey.answers),
        epsilon=float(survey.epsilon),
        last_period=published.last,
        revision=shown.revision,
        method=question.method,
        confidence=question.confidence,
        after=question.after,
        series=sorted(series, key=lambda each: each.period),
    )


def _estimated(
    question: ResultsQuery, arms: list[Solution], there: list[int], found: Difference, final: int
) -> list[ShareDifference]:
    if not there:
        return []
    errors, p_values, together = found.standard_errors, found.p_values, found.p_together
    ends = None if question.confidence is None else found.intervals(question.confidence).tolist()
    last = max(int(np.flatnonzero(arm.releases.enrolment.heard).max(initial=0)) for arm in arms)
    return [
        ShareDifference(
            period=period,
            time="",
            differences=found.values[at].tolist(),
            standard_errors=errors[at].tolist(),
            intervals=UNSET if ends is None else ends[at],
            p_values=p_values[at].tolist(),
            p_together=float(together[at]),
            shares=[each[at].tolist() for each in (found.first, found.second)[: len(arms)]],
            entries=[round(float(arm.releases.enrolment.latest[period])) for arm in arms],
            provisional=(last if arms[0].retrospective else period) > final,
        )
        for at, period in enumerate(there)
    ]


def _lost(gap: Gap) -> ShareDifference:
    missing = gap.missing and MissingNode(
        track=gap.missing.track, start=gap.missing.node.start, end=gap.missing.node.end
    )
    return ShareDifference(period=gap.span.end, time="", differences=None, missing=missing)


def comparison_rows(answer: ComparisonAnswer) -> str:
    """CSV: a row for each period and answer."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    names = ("difference", "standard_error", "interval_low", "interval_high", "p_value")
    writer.writerow(["period", "time", "after", "answer", *names, "p_together", "provisional", "epsilon"])
    for each in answer.series:
        intervals = each.intervals or [[None, None]] * len(answer.answers)
        for at, name in enumerate(answer.answers):
            figures = (column and column[at] for column in (each.differences, each.standard_errors or None))
            chance = each.p_values and each.p_values[at]
            rest = (*intervals[at], chance or None, each.p_together or None, each.provisional, answer.epsilon)
            writer.writerow([each.period, each.time, answer.after, name, *figures, *rest])
    return written.getvalue()
