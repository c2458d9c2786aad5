"""What a reader asks of a survey: the parameters of a URL as numbers, so that one question has one form.

A parameter that no question has is refused by its name. Nothing else of the URL is kept: answers are remembered by the
question.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import floor

from changeling_protocol import StratumNumber, UnixSeconds, count_strata
from changeling_statistics import NotEstimable, parse_instant, select
from starlette.datastructures import QueryParams

from ..ingest import PublishedSurvey


class Kind(StrEnum):
    """What an answer is of."""

    HISTOGRAM = "histogram"
    SERIES = "series"
    CHANGE = "change"
    WINDOWS = "windows"


class Method(StrEnum):
    """Which nodes an estimate uses: those closed by its time, all, or all and the belief that histograms drift."""

    ONLINE = "online"
    RETROSPECTIVE = "retrospective"
    SMOOTHED = "smoothed"


_OF_ALL = {"method", "confidence", "covariance", "stratum", "format"}
_TAKES = {
    Kind.HISTOGRAM: {"period", "time"},
    Kind.SERIES: {"until", "time"},
    Kind.CHANGE: {"after", "until"},
    Kind.WINDOWS: {"width", "until", "time"},
}


def parameters_of(kind: Kind) -> set[str]:
    """The names of what a URL of this kind may ask for."""
    return _TAKES[kind] | _OF_ALL


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one survey.

    after: where the window of a change starts; 0 else. until: the period in question, or the last one.
    width: of windows, in periods; 0 else.
    strata: whose entries, rising; None for everybody's.
    confidence: the level of intervals; None for none. covariance: whether covariances are wanted.
    """

    kind: Kind
    after: int
    until: int
    width: int
    method: Method
    strata: tuple[StratumNumber, ...] | None
    confidence: float | None
    covariance: bool


def parse(kind: Kind, query: QueryParams, published: PublishedSurvey, last_shown: int, now: UnixSeconds) -> Question:
    """The question in a URL's parameters.

    last_shown: the last period of which anything is shown; it is in question where none is named.
    now: Unix seconds. Raises ValueError for what is no question, NotEstimable for a period that has not closed.
    """
    _check_names(query, parameters_of(kind))
    method = Method(_one_of(query, "method", list(Method), Method.ONLINE))
    if method is Method.SMOOTHED and kind not in (Kind.HISTOGRAM, Kind.SERIES):
        raise ValueError(f"method is online or retrospective for a {kind.value}: smoothed changes are not offered")
    covariance = _one_of(query, "covariance", ["true", "false"], "false") == "true"
    after = _number(query, "after") if kind is Kind.CHANGE else 0
    width = _number(query, "width") if kind is Kind.WINDOWS else 0
    if kind is Kind.WINDOWS and width < 1:
        raise ValueError(f"a window must be at least one period wide, got {width}")
    return Question(
        kind=kind,
        after=after,
        until=_period(query, "period" if kind is Kind.HISTOGRAM else "until", published, last_shown, now),
        width=width,
        method=method,
        strata=_strata(query.getlist("stratum"), published),
        confidence=_confidence(query),
        covariance=covariance,
    )


def check_closed(published: PublishedSurvey, period: int, now: UnixSeconds) -> int:
    """The period, where it has closed. Raises NotEstimable where it has not, ValueError for none of the survey's."""
    if not 1 <= period <= published.survey.calendar.periods:
        periods = published.survey.calendar.periods
        raise ValueError(f"the survey's periods are numbered 1 to {periods}, got {period}")
    if period > published.last:
        raise ValueError(f"the survey was ended early, after period {published.last}: there is no period {period}")
    if period > published.closed(now):
        raise NotEstimable(f"period {period} has not closed")
    return period


def _check_names(query: QueryParams, known: set[str]) -> None:
    for name in query:
        if name not in known:
            raise ValueError(f"there is no parameter {name[:40]!r} here: {', '.join(sorted(known))} there are")
        if name != "stratum" and len(query.getlist(name)) > 1:
            raise ValueError(f"{name} is given once")


def _one_of(query: QueryParams, name: str, known: Sequence[str], default: str) -> str:
    asked = query.get(name, default)
    if asked not in known:
        raise ValueError(f"{name} is {' or '.join(known)}, got {asked[:40]!r}")
    return asked


def _number(query: QueryParams, name: str) -> int:
    asked = query.get(name, "")
    if not (asked.isascii() and asked.isdigit() and len(asked) < 10):
        raise ValueError(f"{name} is a number of periods, got {asked[:40]!r}")
    return int(asked)


def _confidence(query: QueryParams) -> float | None:
    if (asked := query.get("confidence")) is None:
        return None
    try:
        level = float(asked)
    except ValueError:
        level = 0.0
    if not 0.5 <= level <= 0.999999:
        raise ValueError(f"confidence is a level between 0.5 and 0.999999, got {asked[:40]!r}")
    return level


def _strata(asked: Sequence[str], published: PublishedSurvey) -> tuple[StratumNumber, ...] | None:
    if not asked:
        return None
    told: dict[str, set[str]] = {}
    for name, _, value in (each.partition(":") for each in asked):
        told.setdefault(name, set()).add(value)
    chosen = tuple(select(published.survey.breakdowns, told))
    return None if len(chosen) == count_strata(published.survey.breakdowns) else chosen


def _period(query: QueryParams, name: str, published: PublishedSurvey, last_shown: int, now: UnixSeconds) -> int:
    if name in query and "time" in query:
        raise ValueError(f"give one of {name} and time")
    if name in query:
        return check_closed(published, _number(query, name), now)
    if "time" in query:
        calendar = published.survey.calendar
        elapsed = parse_instant(query["time"]) - calendar.start
        return check_closed(published, floor(elapsed / calendar.period), now)
    if last_shown == 0:
        raise NotEstimable(
            "nothing of this survey is shown yet: no period has closed and been answered by enough, or been sealed"
        )
    return last_shown
