"""Numbers over HTTP: the mean, quantiles and the share at or above a value, period after period, with intervals."""

import csv
import io
from collections.abc import Mapping

from changeling_protocol import OFFSETS, StratumNumber
from changeling_statistics import NumberFigure, NumberFigures, format_instant, number_series

from ..ingest import PublishedSurvey
from .openapi import Body, Bounds, Count, HexId, Instant, Period
from .questions import ResultMethod, ResultsQuery
from .shown import ShownSurvey


class ShownFigure(Body, kw_only=True):
    """A figure with its interval: in the number's unit, or a share."""

    value: float
    interval: Bounds


class PeriodNumbers(Body, kw_only=True):
    """The figures at a period's end; null where they cannot be estimated.

    quantiles, above: in the order in which they were asked for.
    """

    period: Period
    time: Instant
    mean: ShownFigure | None
    quantiles: list[ShownFigure] | None
    above: list[ShownFigure] | None
    heard: Count
    provisional: bool


class NumbersAnswer(Body, kw_only=True):
    """The figures of a number. rounding: how far it is from its levels on average over the offsets, at most."""

    survey: HexId
    question: str
    unit: str
    levels: list[float]
    epsilon: float
    last_period: Period
    revision: Count
    method: ResultMethod
    confidence: float
    quantiles: list[float]
    above: list[float]
    rounding: float
    series: list[PeriodNumbers]


def numbered(question: ResultsQuery, published: PublishedSurvey, shown: ShownSurvey) -> NumbersAnswer:
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
    heard, last = everybody.releases.enrolment.latest, shown.last
    widths = [after - before for before, after in zip(asked.values, asked.values[1:], strict=False)]
    return NumbersAnswer(
        survey=survey.id.hex(),
        question=asked.text,
        unit=asked.unit,
        levels=list(asked.values),
        epsilon=float(survey.epsilon),
        last_period=published.last,
        revision=shown.revision,
        method=question.method,
        confidence=level,
        quantiles=list(question.quantiles),
        above=list(question.above),
        rounding=max(widths) / (2 * OFFSETS),
        series=[
            PeriodNumbers(
                period=period,
                time=format_instant(survey.calendar.time(period)),
                mean=_mean(by_period.get(period)),
                quantiles=_listed(by_period[period].quantiles if period in by_period else {}),
                above=_listed(by_period[period].above if period in by_period else {}),
                heard=round(float(heard[period])),
                provisional=(last if everybody.retrospective else period) > shown.final,
            )
            for period in range(1, question.until + 1)
        ],
    )


def _mean(figures: NumberFigures | None) -> ShownFigure | None:
    return None if figures is None else _figure(figures.mean)


def _listed(figures: Mapping[float, NumberFigure]) -> list[ShownFigure] | None:
    return [_figure(each) for each in figures.values()] if figures else None


def _figure(figure: NumberFigure) -> ShownFigure:
    return ShownFigure(value=figure.value, interval=[figure.low, figure.high])


def number_rows(answer: NumbersAnswer) -> str:
    """CSV: a row for each period and figure."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(
        ["period", "time", "figure", "at", "value", "low", "high", "unit", "heard", "provisional", "epsilon"]
    )
    for each in answer.series:
        rows = [("mean", None, each.mean)]
        for name, marks, figures in (
            ("quantile", answer.quantiles, each.quantiles),
            ("share at or above", answer.above, each.above),
        ):
            rows += [(name, mark, figures[at] if figures else None) for at, mark in enumerate(marks)]  # type: ignore[misc]
        for name, mark, figure in rows:
            told = (figure.value, *figure.interval) if figure else (None,) * 3
            unit = answer.unit if name != "share at or above" else None
            rest = (unit, each.heard, each.provisional, answer.epsilon)
            writer.writerow([each.period, each.time, name, mark, *told, *rest])
    return written.getvalue()
