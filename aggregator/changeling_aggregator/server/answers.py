"""A question about results, and the answers to it: estimates; differences between arms or times; figures of a number.

Each has its struct, which the OpenAPI document is made of. Differences and figures of a number are worked out here, and
have a CSV form of their own.

In comparisons shares are compared, as arms differ in size: 0.02 is two points. An arm is a stratum, or several, that
the app tells the server with each upload; so who is in which arm is no secret, and what an entry answers is one.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec
import numpy as np
from changeling_protocol import OFFSETS, StratumNumber, format_instant
from changeling_statistics import (
    NumberFigure,
    NumberFigures,
    ShownAs,
    freezing_shown,
    histogram_figures,
    number_series,
    share_differences,
)
from msgspec import UNSET, UnsetType

from ..store import StoredSurvey
from .openapi import Body, Bounds, Count, HexId, Instant, MissingNode, Period
from .shown import ResultMethod, ShownSurvey


class ResultKind(StrEnum):
    """The estimates that an answer holds."""

    HISTOGRAM = "histogram"
    SERIES = "series"
    CHANGE = "change"
    WINDOWS = "windows"
    COMPARISON = "comparison"
    NUMBERS = "numbers"


class FigurePopulation(StrEnum):
    """Whom figures are about: those heard at the last closing, or all who ever enrolled, as if alike."""

    HEARD = "heard"
    ENROLLED = "enrolled"


@dataclass(frozen=True, slots=True)
class ResultsQuery:
    """A question about one survey.

    after: where the window of a change starts; 0 for none. until: the period in question, or the last one.
    width: of windows, in periods; 0 else.
    strata: whose entries, rising; None for everybody's.
    confidence: the level of intervals; None for none. covariance: whether covariances are wanted.
    against: the strata that these are compared with; None for none.
    about: the place of the survey's question that it is about.
    quantiles, above: of a number, the quantiles, and the values at or above which a share is wanted.
    """

    kind: ResultKind
    after: int
    until: int
    width: int
    method: ResultMethod
    population: FigurePopulation
    strata: tuple[StratumNumber, ...] | None
    confidence: float | None
    covariance: bool
    against: tuple[StratumNumber, ...] | None = None
    about: int = 0
    quantiles: tuple[float, ...] = ()
    above: tuple[float, ...] = ()


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


class AnswerHead(Body, kw_only=True):
    """What every answer begins with."""

    survey: HexId
    question: str
    epsilon: float
    last_period: Period
    revision: Count
    method: ResultMethod


class ResultAnswer(AnswerHead, kw_only=True):
    """The head of answers about counts. drift: of smoothed estimates, τ² of each answer."""

    answers: list[str]
    population: FigurePopulation
    biased: bool
    confidence: float | None
    diagnostics: Diagnostics
    nodes: list[PublishedNode]
    drift: list[float] | UnsetType = UNSET


class FrozenEntries(Body):
    """The entries that have made a change which is not counted, as the freezing question tells.

    bound: the upper end of its interval, by which freezing moves any of the values at most.
    """

    entries: float
    bound: float | None


class ResultEstimate(Body, kw_only=True):
    """An estimate at a period's end, or of the change over a window; where there is none, what is missing.

    freezing: where the survey asks the freezing question about this one; null where that has no estimate.
    """

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
    freezing: FrozenEntries | UnsetType | None = UNSET
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


class FrozenShares(Body):
    """The shares of those heard that have made a change which is not counted, as the freezing question tells.

    shares: in each arm; of a number one, of those that hold one. bound: by which freezing moves any of the differences,
    or a number's share at or above a value, at most; it is wrong as seldom as one end of an interval.
    """

    shares: list[float]
    bound: float | None


_Row: TypeAlias = tuple[Sequence[object], FrozenShares | UnsetType | None]


class ShareDifference(Body, kw_only=True):
    """The differences at a period's end, by answer; where there are none, what is missing.

    p_values: the chance of at least so large a difference by noise alone. p_together: of one so clear in any answer.
    shares: those, or their changes, that the difference is between: of the arm, and of the one it is compared with.
    entries: how many were heard in the arm, and in the one that it is compared with.
    freezing: where the survey asks the freezing question about this one; null where that has no estimate.
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
    freezing: FrozenShares | UnsetType | None = UNSET
    provisional: bool | UnsetType = UNSET
    missing: MissingNode | UnsetType | None = UNSET


class ComparisonAnswer(AnswerHead, kw_only=True):
    """Differences period after period. after: changes since the end of this period are compared; 0 for shares."""

    answers: list[str]
    confidence: float | None
    after: Period
    series: list[ShareDifference]


def _head(question: ResultsQuery, published: StoredSurvey, shown: ShownSurvey) -> dict[str, Any]:
    survey = published.survey
    return {
        "survey": survey.id.hex(),
        "question": survey.questions[question.about].text,
        "epsilon": float(survey.epsilon),
        "last_period": published.last,
        "revision": shown.revision,
        "method": question.method,
    }


def compared(question: ResultsQuery, published: StoredSurvey, shown: ShownSurvey) -> ComparisonAnswer:
    """The answer to a question about differences."""
    strata = [question.strata] if question.against is None else [question.strata, question.against]
    arms = [shown.solution(each, question.method, question.about) for each in strata]
    there, differences, gaps = share_differences(
        arms[0], arms[1] if len(arms) == 2 else None, question.until, since=question.after
    )
    frozen, calendar = _frozen(question, shown, strata, question.confidence), published.survey.calendar
    series = [
        ShareDifference(
            period=gap.span.end,
            time="",
            differences=None,
            missing=gap.missing
            and MissingNode(track=gap.missing.track, start=gap.missing.node.start, end=gap.missing.node.end),
        )
        for gap in gaps
    ]
    if there:
        errors, p_values, together = differences.standard_errors, differences.p_values, differences.p_together
        ends = None if question.confidence is None else differences.intervals(question.confidence).tolist()
        last = max(int(np.flatnonzero(arm.releases.enrolment.heard).max(initial=0)) for arm in arms)
        series += [
            ShareDifference(
                period=period,
                time="",
                differences=differences.values[at].tolist(),
                standard_errors=errors[at].tolist(),
                intervals=UNSET if ends is None else ends[at],
                p_values=p_values[at].tolist(),
                p_together=float(together[at]),
                shares=[each[at].tolist() for each in (differences.first, differences.second)[: len(arms)]],
                entries=[round(float(arm.releases.enrolment.latest[period])) for arm in arms],
                freezing=UNSET if frozen is None else frozen.get(period),
                provisional=(last if arms[0].retrospective else period) > shown.final,
            )
            for at, period in enumerate(there)
        ]
    for each in series:
        each.time = format_instant(calendar.time(each.period))
    return ComparisonAnswer(
        **_head(question, published, shown),
        answers=list(published.survey.questions[question.about].answers),
        confidence=question.confidence,
        after=question.after,
        series=sorted(series, key=lambda each: each.period),
    )


def _frozen(
    question: ResultsQuery,
    shown: ShownSurvey,
    arms: Sequence[tuple[StratumNumber, ...] | None],
    confidence: float | None,
) -> dict[int, FrozenShares] | None:
    """How far freezing moves shares in some arms together at most, by period; None where the survey does not ask.

    Who was heard at one time may not be at another, so a change of shares is bounded by who is frozen at both of them.
    All bounds that are added up have one chance to be wrong.
    """
    if (other := shown.survey.freezing[question.about]) is None:
        return None
    parts = len(arms) * (2 if question.after else 1)
    level = None if confidence is None else 1 - (1 - confidence) / parts
    showing = ShownAs(question.method, FigurePopulation.HEARD, level, shown.last, shown.revision, shown.final)
    frozen = np.full((len(arms), question.until + 1, 2), np.nan)
    for arm, strata in zip(frozen, arms, strict=True):
        solution = shown.solution(strata, question.method, other)
        for period, each in freezing_shown(histogram_figures(solution, question.until)[0], showing).items():
            arm[period] = each["entries"], np.nan if each["bound"] is None else each["bound"]
        arm /= np.maximum(solution.releases.enrolment.latest[: len(arm), None], 1)
    bounds = frozen[..., 1].sum(0) + (frozen[:, question.after, 1].sum() if question.after else 0.0)
    return {
        period: FrozenShares(frozen[:, period, 0].tolist(), None if np.isnan(bounds[period]) else float(bounds[period]))
        for period in range(1, question.until + 1)
        if not np.isnan(frozen[:, period, 0]).any()
    }


def _csv(columns: Sequence[str], answer: "ComparisonAnswer | NumbersAnswer", rows: Iterable[_Row]) -> str:
    """The text of a table. Each row has the loss beside it, and what freezing does at most where the survey asks."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    asks = any(each.freezing is not UNSET for each in answer.series)
    writer.writerow([*columns, "epsilon", *(["freezing_bound"] if asks else [])])
    for row, freezing in rows:
        writer.writerow([*row, answer.epsilon, *([freezing.bound if freezing else None] if asks else [])])
    return written.getvalue()


def comparison_rows(answer: ComparisonAnswer) -> str:
    """CSV: a row for each period and answer."""

    def rows() -> Iterator[_Row]:
        for each in answer.series:
            intervals = each.intervals or [[None, None]] * len(answer.answers)
            for at, name in enumerate(answer.answers):
                figures = (column and column[at] for column in (each.differences, each.standard_errors or None))
                chance = each.p_values and each.p_values[at]
                rest = (*intervals[at], chance or None, each.p_together or None, each.provisional)
                yield (each.period, each.time, answer.after, name, *figures, *rest), each.freezing

    names = ("difference", "standard_error", "interval_low", "interval_high", "p_value", "p_together", "provisional")
    return _csv(("period", "time", "after", "answer", *names), answer, rows())


class ShownFigure(Body, kw_only=True):
    """A figure with its interval: in the number's unit, or a share."""

    value: float
    interval: Bounds


class PeriodNumbers(Body, kw_only=True):
    """The figures at a period's end; null where they cannot be estimated.

    quantiles, above: in the order in which they were asked for. freezing: as of `ShareDifference`.
    """

    period: Period
    time: Instant
    mean: ShownFigure | None
    quantiles: list[ShownFigure] | None
    above: list[ShownFigure] | None
    heard: Count
    freezing: FrozenShares | UnsetType | None = UNSET
    provisional: bool


class NumbersAnswer(AnswerHead, kw_only=True):
    """The figures of a number. rounding: how far it is from its levels on average over the offsets, at most."""

    unit: str
    levels: list[float]
    confidence: float
    quantiles: list[float]
    above: list[float]
    rounding: float
    series: list[PeriodNumbers]


def numbered(question: ResultsQuery, published: StoredSurvey, shown: ShownSurvey) -> NumbersAnswer:
    """The answer to a question about a number. Raises ValueError where the survey asks for none."""
    survey, place = published.survey, question.about
    asked = survey.questions[place]
    if not asked.is_number:
        raise ValueError(f"the survey asks for one of {len(asked.answers)} answers, and not for a number")
    level = question.confidence or 0.95
    everybody = shown.solution(question.strata, question.method, place)
    strata = question.strata if question.strata is not None else tuple(map(StratumNumber, range(survey.strata)))
    figures = number_series(
        asked.values,
        everybody,
        [
            shown.solution(tuple(each for each in strata if each % OFFSETS == offset), question.method, place)
            for offset in range(OFFSETS)
        ],
        question.until,
        quantiles=question.quantiles,
        above=question.above,
        level=level,
    )
    by_period = {each.period: each for each in figures}
    frozen = _frozen(question, shown, [question.strata], level)
    heard, last = everybody.releases.enrolment.latest, shown.last
    widths = [after - before for before, after in zip(asked.values, asked.values[1:], strict=False)]
    return NumbersAnswer(
        **_head(question, published, shown),
        unit=asked.unit,
        levels=list(asked.values),
        confidence=level,
        quantiles=list(question.quantiles),
        above=list(question.above),
        rounding=max(widths) / (2 * OFFSETS),
        series=[
            PeriodNumbers(
                period=period,
                time=format_instant(survey.calendar.time(period)),
                mean=_figure(by_period[period].mean) if period in by_period else None,
                quantiles=_listed(by_period[period].quantiles if period in by_period else {}),
                above=_listed(by_period[period].above if period in by_period else {}),
                heard=round(float(heard[period])),
                freezing=UNSET if frozen is None else _of_holders(frozen.get(period), by_period.get(period)),
                provisional=(last if everybody.retrospective else period) > shown.final,
            )
            for period in range(1, question.until + 1)
        ],
    )


def _of_holders(frozen: FrozenShares | None, figures: NumberFigures | None) -> FrozenShares | None:
    """The frozen as shares of those that hold a number, by which its shares are off at most; None where unknown."""
    if frozen is None or figures is None or figures.held <= 0:
        return None
    bound = None if frozen.bound is None else frozen.bound / figures.held
    return FrozenShares([each / figures.held for each in frozen.shares], bound)


def _listed(figures: Mapping[float, NumberFigure]) -> list[ShownFigure] | None:
    return [_figure(each) for each in figures.values()] if figures else None


def _figure(figure: NumberFigure) -> ShownFigure:
    return ShownFigure(value=figure.value, interval=[figure.low, figure.high])


def number_rows(answer: NumbersAnswer) -> str:
    """CSV: a row for each period and figure."""

    def rows() -> Iterator[_Row]:
        for each in answer.series:
            figures: list[tuple[str, float | None, ShownFigure | None, str | None]] = [
                ("mean", None, each.mean, answer.unit)
            ]
            for name, marks, found, unit in (
                ("quantile", answer.quantiles, each.quantiles, answer.unit),
                ("share at or above", answer.above, each.above, None),
            ):
                figures += [(name, mark, found[at] if found else None, unit) for at, mark in enumerate(marks)]
            for name, mark, figure, unit in figures:
                told = (figure.value, *figure.interval) if figure else (None,) * 3
                rest = (*told, unit, each.heard, each.provisional)
                yield (each.period, each.time, name, mark, *rest), each.freezing

    columns = ("period", "time", "figure", "at", "value", "low", "high", "unit", "heard", "provisional")
    return _csv(columns, answer, rows())
