"""The questions that readers ask of a survey: the parameters of a URL as numbers, and the line in which they wait.

A parameter that no question has is refused by its name. Nothing else of the URL is kept: one question has one form, by
which its answer is remembered.

Answers are worked out on threads of their own: a few at a time, each once, and none that nobody waits for any more. So
whoever asks for many, for the same again and again, or goes away before the answer, keeps neither uploads nor the fold
waiting, nor other readers for long.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from math import floor, isfinite
from typing import Annotated, TypeAlias

import msgspec
from changeling_protocol import StratumNumber, SurveyId, UnixSeconds, parse_instant
from changeling_protocol.wire import JSON, MSGPACK
from changeling_statistics import NotEstimable, select
from msgspec import UNSET, Meta, UnsetType
from starlette.datastructures import QueryParams
from starlette.requests import Request

from ..errors import Overloaded
from ..ingest import PublishedSurvey
from .http import keep_latest
from .openapi import Body, Truth


class ResultKind(StrEnum):
    """The estimates that an answer holds."""

    HISTOGRAM = "histogram"
    SERIES = "series"
    CHANGE = "change"
    WINDOWS = "windows"
    COMPARISON = "comparison"
    NUMBERS = "numbers"


class ResultMethod(StrEnum):
    """Nodes that an estimate uses: those closed by its time, all, or all and the belief that histograms drift."""

    ONLINE = "online"
    RETROSPECTIVE = "retrospective"
    SMOOTHED = "smoothed"


class FigurePopulation(StrEnum):
    """Whom figures are about: those heard at the last closing, or all who ever enrolled, as if alike."""

    HEARD = "heard"
    ENROLLED = "enrolled"


class Format(StrEnum):
    """A form that answers have."""

    JSON = "json"
    MSGPACK = "msgpack"
    CSV = "csv"


MEDIA_TYPES = {Format.JSON: JSON, Format.MSGPACK: MSGPACK, Format.CSV: "text/csv"}
CONFIDENCES = (0.5, 0.68, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999)
"""The levels that intervals have: so few that nobody makes many questions of one."""
OPENING = 0.95
"""The one that the page opens with."""
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""The quantiles of a number that can be asked for, for the same reason."""
MOST_VALUES = 4
"""At or above so many values at most a share is asked for at once."""
MOST_PERIODS = 999_999_999
_CHOICES = {
    "method": [*ResultMethod],
    "population": [*FigurePopulation],
    "format": [*Format],
    "covariance": ["true", "false"],
}
_Last: TypeAlias = Annotated[
    int, Meta(ge=0, le=MOST_PERIODS, description="By default the last of which anything is shown.")
]
_Time: TypeAlias = Annotated[str, Meta(description="ISO 8601, or Unix seconds, instead of a period.")]
_About: TypeAlias = Annotated[str, Meta(description="The name of one of the survey's, where it asks several.")]
_Format: TypeAlias = Annotated[Format, Meta(description="Else the first that the header Accept names, or JSON.")]
_Quantile: TypeAlias = Annotated[float, Meta(extra_json_schema={"enum": [*QUANTILES]})]
_Strata: TypeAlias = Annotated[
    list[Annotated[str, Meta(pattern="^[^:]+:.*$")]], Meta(description="NAME:VALUE, once or more.")
]


class AnyQuery(Body, kw_only=True):
    """The parameters that every question may have."""

    question: _About | UnsetType = UNSET
    method: ResultMethod = ResultMethod.ONLINE
    confidence: Annotated[float, Meta(extra_json_schema={"enum": [*CONFIDENCES]})] | UnsetType = UNSET
    stratum: _Strata = msgspec.field(default_factory=list)
    format: _Format | UnsetType = UNSET


class EstimateQuery(AnyQuery, kw_only=True):
    """The parameters that every question about counts may have."""

    population: FigurePopulation = FigurePopulation.HEARD
    covariance: Truth = "false"


class HistogramQuery(EstimateQuery, kw_only=True):
    """The parameters of a histogram."""

    period: _Last | UnsetType = UNSET
    time: _Time | UnsetType = UNSET


class SeriesQuery(EstimateQuery, kw_only=True):
    """The parameters of a series."""

    until: _Last | UnsetType = UNSET
    time: _Time | UnsetType = UNSET


class ChangeQuery(EstimateQuery, kw_only=True):
    """The parameters of a change."""

    after: Annotated[int, Meta(ge=0, le=MOST_PERIODS, description="The period at whose end a window starts.")]
    until: _Last | UnsetType = UNSET


class WindowsQuery(SeriesQuery, kw_only=True):
    """The parameters of the changes over all windows of a width."""

    width: Annotated[int, Meta(ge=1, le=MOST_PERIODS, description="In periods.")]


class ComparisonQuery(AnyQuery, kw_only=True):
    """The parameters of differences: from the arm `against`, from the end of period `after`, or from both."""

    until: _Last | UnsetType = UNSET
    time: _Time | UnsetType = UNSET
    against: _Strata = msgspec.field(default_factory=list)
    after: Annotated[int, Meta(ge=0, le=MOST_PERIODS, description="Changes since the end of this period.")] = 0


class NumbersQuery(AnyQuery, kw_only=True):
    """The parameters of a number's figures: beside its mean, quantiles, and the shares at or above some values."""

    until: _Last | UnsetType = UNSET
    time: _Time | UnsetType = UNSET
    quantile: Annotated[list[_Quantile], Meta(max_length=len(QUANTILES))] = msgspec.field(default_factory=list)
    above: Annotated[list[float], Meta(max_length=MOST_VALUES)] = msgspec.field(default_factory=list)


QUERIES: dict[ResultKind, type[AnyQuery]] = {
    ResultKind.HISTOGRAM: HistogramQuery,
    ResultKind.SERIES: SeriesQuery,
    ResultKind.CHANGE: ChangeQuery,
    ResultKind.WINDOWS: WindowsQuery,
    ResultKind.COMPARISON: ComparisonQuery,
    ResultKind.NUMBERS: NumbersQuery,
}


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


def parse(
    kind: ResultKind, query: QueryParams, published: PublishedSurvey, last_shown: int, now: UnixSeconds
) -> tuple[ResultsQuery, Format | None]:
    """The question in a URL's parameters, and the form that they ask for, if they do.

    last_shown: the last period of which anything is shown. now: Unix seconds.
    Raises ValueError for what is no question, NotEstimable for a period that has not closed.
    """
    asked = _converted(query, QUERIES[kind])
    if asked.method is ResultMethod.SMOOTHED and kind not in (ResultKind.HISTOGRAM, ResultKind.SERIES):
        raise ValueError(f"method is online or retrospective for a {kind.value}: smoothed ones are not offered")
    confidence = asked.confidence
    if confidence is not UNSET and confidence not in CONFIDENCES:
        raise ValueError(f"confidence: it is one of {', '.join(map(str, CONFIDENCES))}, got {confidence!r}")
    question = ResultsQuery(
        kind=kind,
        after=getattr(asked, "after", 0),
        until=_period(asked, "period" if kind is ResultKind.HISTOGRAM else "until", published, last_shown, now),
        width=getattr(asked, "width", 0),
        method=asked.method,
        population=getattr(asked, "population", FigurePopulation.HEARD),
        strata=_strata(asked.stratum, published),
        confidence=confidence or None,
        covariance=getattr(asked, "covariance", "false") == "true",
        against=_strata(getattr(asked, "against", ()), published),
        about=_about(asked, published),
        quantiles=tuple(getattr(asked, "quantile", ())) or ((0.5,) if kind is ResultKind.NUMBERS else ()),
        above=tuple(getattr(asked, "above", ())),
    )
    if unknown := set(question.quantiles) - set(QUANTILES):
        raise ValueError(f"quantile: it is one of {', '.join(map(str, QUANTILES))}, got {min(unknown)!r}")
    if not all(map(isfinite, question.above)):
        raise ValueError("above: it is a finite number")
    if kind is ResultKind.COMPARISON:
        _check_comparison(question)
    return question, asked.format or None


def _about(asked: AnyQuery, published: PublishedSurvey) -> int:
    names = [each.name for each in published.survey.questions]
    if asked.question is not UNSET:
        return published.survey.place_of(asked.question)
    if len(names) > 1:
        raise ValueError(f"the survey asks several questions: name one with question, of {', '.join(names)}")
    return 0


def _check_comparison(question: ResultsQuery) -> None:
    if question.against is None and not question.after:
        raise ValueError("a difference is from another arm, or from another time: give against, after, or both")
    if question.against is not None and not {*question.against}.isdisjoint(question.strata or question.against):
        raise ValueError("arms are apart: give stratum and against, and no entry that is in both")
    if question.after >= question.until and question.after:
        raise ValueError(f"after: the end of period {question.after} is not before that of period {question.until}")


def opens_page(question: ResultsQuery, form: Format, last_shown: int) -> bool:
    """True for the question that the page of a survey asks first. last_shown: the last period that is shown."""
    return form is Format.JSON and question == ResultsQuery(
        ResultKind.SERIES, 0, last_shown, 0, ResultMethod.ONLINE, FigurePopulation.HEARD, None, OPENING, False
    )


def format_of(request: Request, asked: Format | None) -> Format:
    """The form to answer in: the one that is asked for, else the first that the client accepts, else JSON."""
    if asked is not None:
        return asked
    for accepted in request.headers.get("accept", "")[:1000].split(","):
        for each, media_type in MEDIA_TYPES.items():
            if accepted.partition(";")[0].strip().lower() == media_type:
                return each
    return Format.JSON


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


def _converted(query: QueryParams, kind: type[AnyQuery]) -> AnyQuery:
    known = {each.name for each in msgspec.structs.fields(kind)}
    asked: dict[str, str | list[str]] = {}
    for name in query:
        values = query.getlist(name)
        if name not in known:
            raise ValueError(f"there is no parameter {name[:40]!r} here: {', '.join(sorted(known))} there are")
        several = name in ("stratum", "against", "quantile", "above")
        if not several and len(values) > 1:
            raise ValueError(f"{name} is given once")
        asked[name] = values if several else values[0]
    try:
        return msgspec.convert(asked, kind, strict=False)
    except msgspec.ValidationError as error:  # such as "Expected `int` >= 0 - at `$.until`"
        expected, _, place = str(error).partition(" - at `$.")
        name = place.rstrip("`").partition("[")[0]
        if name in _CHOICES:
            expected = f"it is {' or '.join(_CHOICES[name])}"
        raise ValueError(f"{name}: {expected}, got {str(asked[name])[:40]!r}" if name else f"{error}") from error


def _strata(asked: Sequence[str], published: PublishedSurvey) -> tuple[StratumNumber, ...] | None:
    if not asked:
        return None
    values: dict[str, set[str]] = {}
    for name, _, value in (each.partition(":") for each in asked):
        values.setdefault(name, set()).add(value)
    chosen = tuple(select(published.survey.public, values))
    return None if len(chosen) == published.survey.strata else chosen


def _period(asked: AnyQuery, name: str, published: PublishedSurvey, last_shown: int, now: UnixSeconds) -> int:
    period, time = getattr(asked, name), getattr(asked, "time", UNSET)
    if period is not UNSET and time is not UNSET:
        raise ValueError(f"give one of {name} and time")
    if time is not UNSET:
        calendar = published.survey.calendar
        period = floor((parse_instant(time) - calendar.start) / calendar.period)
    if period is not UNSET:
        return check_closed(published, period, now)
    if last_shown == 0:
        raise NotEstimable(
            "nothing of this survey is shown yet: no period has closed and been answered by enough, or been sealed"
        )
    return last_shown


MOST_OPENINGS = 32
AT_ONCE = 2
MOST_WAITING = 64
"""So many questions wait for a thread at most; however many wait for the answer to one of them."""
MOST_OF_NETWORK = 16
"""So many of those that wait are of one network at most."""
COME_AGAIN = "more estimates are asked for than this server makes at a time: come again later"
MOST_KEPT_BYTES = 64 * 2**20
MOST_KEPT = 4096


@dataclass(slots=True, eq=False)
class _Line:
    """What is asked by one network, and not made yet. turn: as many as it may have made at once."""

    turn: asyncio.Semaphore
    length: int = 0


@dataclass(slots=True, eq=False)
class _Work:
    """An answer that is being made, or waits for it. readers: how many still want it. begun: whether it is in hand."""

    made: asyncio.Task[bytes] = field(init=False)
    readers: int = 0
    begun: bool = False


class Estimating:
    """Makes answers and keeps the latest of them: MOST_KEPT, of MOST_KEPT_BYTES together. One event loop uses it.

    Networks take turns, as each has one answer in hand or in line for a thread, and waits with the others. The answer
    that a survey's page opens with has a thread and a place of its own.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE + 1, thread_name_prefix="estimate")
        self._free, self._page = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(1)
        self._work: dict[Hashable, _Work] = {}
        self._lines: dict[str | None, _Line] = {}
        self._opening: OrderedDict[SurveyId, tuple[Hashable, bytes]] = OrderedDict()
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._kept_bytes = 0

    def kept(self, key: Hashable) -> bytes | None:
        """The answer to a question, where it is kept."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        return next((answer for opening, answer in self._opening.values() if opening == key), None)

    async def answer(
        self,
        key: Hashable,
        make: Callable[[], bytes],
        network: str | None = None,
        opening: SurveyId | None = None,
    ) -> bytes:
        """The answer that `make` returns, or returned for this key, or is about to on another thread.

        If this is cancelled before the answer is begun, and nobody else waits for it, it is not made.
        key: says all that the answer hangs on. network: that asks; None for this machine. opening: the survey whose
        page opens with this answer, if one does. Raises what `make` does, Overloaded where too many wait.
        """
        if (kept := self.kept(key)) is not None:
            return kept
        work = self._work.get(key) or self._stand_in_line(key, make, network, opening)
        work.readers += 1
        try:
            return await asyncio.shield(work.made)
        finally:
            work.readers -= 1
            if not work.readers and not work.begun:
                work.made.cancel()
                del self._work[key]

    def close(self) -> None:
        """Finish the answers in hand, no others."""
        self._threads.shutdown(cancel_futures=True)

    def _stand_in_line(
        self, key: Hashable, make: Callable[[], bytes], network: str | None, opening: SurveyId | None
    ) -> _Work:
        at_once = AT_ONCE if network is None else 1
        line = self._lines.get(network) or _Line(asyncio.Semaphore(at_once))
        too_long = network is not None and line.length >= at_once + MOST_OF_NETWORK
        if opening is None and (too_long or len(self._work) >= AT_ONCE + MOST_WAITING):
            raise Overloaded(COME_AGAIN)
        self._lines[network] = line
        line.length += 1
        work = self._work[key] = _Work()

        def over(made: asyncio.Task[bytes]) -> None:
            line.length -= 1
            if not line.length:
                del self._lines[network]
            if self._work.get(key) is work:
                del self._work[key]
            if not made.cancelled() and made.exception() is None:
                self._keep(key, opening, made.result())

        work.made = asyncio.create_task(self._make(work, line, make, opening))
        work.made.add_done_callback(over)
        return work

    async def _make(self, work: _Work, line: _Line, make: Callable[[], bytes], opening: SurveyId | None) -> bytes:
        turn, thread = (line.turn, self._free) if opening is None else (self._page, nullcontext())
        async with turn, thread:
            work.begun = True
            return await asyncio.get_running_loop().run_in_executor(self._threads, make)

    def _keep(self, key: Hashable, opening: SurveyId | None, answer: bytes) -> None:
        if opening is not None:
            keep_latest(self._opening, opening, (key, answer), MOST_OPENINGS)
            return
        self._kept[key] = answer
        self._kept_bytes += len(answer)
        while self._kept_bytes > MOST_KEPT_BYTES or len(self._kept) > MOST_KEPT:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])
