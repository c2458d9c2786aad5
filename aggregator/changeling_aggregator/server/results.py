"""Results over HTTP: histograms, series and changes, what they rest on, and what to think of them.

An answer depends on the question and on the revision of what is shown, on nothing else; so it is made once for both,
remembered, and its entity tag is known before it is made. A parameter that no question has is refused by its name.
Nothing else of the URL is kept: one question has one form, by which its answer is remembered.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from math import floor, isfinite
from typing import Annotated, Any, TypeAlias

import msgspec
from changeling_protocol import VERSION, Node, StratumNumber, UnixSeconds, parse_instant
from changeling_protocol.wire import JSON, MSGPACK, ErrorCode
from changeling_statistics import (
    NotEstimable,
    ShownAs,
    csv_shown,
    enough,
    freezing_shown,
    head_shown,
    histogram_figures,
    many_shown,
    rows_shown,
    select,
    span_figures,
    window_figures,
)
from msgspec import UNSET, Meta, UnsetType
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from ..errors import TurnedDown
from ..store import StoredSurvey, TokenScope
from .answers import (
    ComparisonAnswer,
    FigurePopulation,
    ManyEstimates,
    NumbersAnswer,
    OneEstimate,
    ResultKind,
    ResultsQuery,
    compared,
    comparison_rows,
    number_rows,
    numbered,
)
from .http import OPEN_TO_ALL, answer_file, cache_control, is_kept, network_of, tag_of
from .openapi import Body, Described, Signed, Truth
from .requests import require_reader, service_of, survey_in_path
from .shown import ResultMethod, ShownSurvey


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


_PARAMETERS: dict[str, tuple[Any, Any]] = {
    "question": (_About | UnsetType, UNSET),
    "method": (ResultMethod, ResultMethod.ONLINE),
    "confidence": (Annotated[float, Meta(extra_json_schema={"enum": [*CONFIDENCES]})] | UnsetType, UNSET),
    "stratum": (_Strata, msgspec.field(default_factory=list)),
    "format": (_Format | UnsetType, UNSET),
    "population": (FigurePopulation, FigurePopulation.HEARD),
    "covariance": (Truth, "false"),
    "period": (_Last | UnsetType, UNSET),
    "until": (_Last | UnsetType, UNSET),
    "time": (_Time | UnsetType, UNSET),
    "after": (Annotated[int, Meta(ge=0, le=MOST_PERIODS, description="A change since the end of this period.")], 0),
    "width": (Annotated[int, Meta(ge=1, le=MOST_PERIODS, description="In periods.")], 0),
    "against": (_Strata, msgspec.field(default_factory=list)),
    "quantile": (Annotated[list[_Quantile], Meta(max_length=len(QUANTILES))], msgspec.field(default_factory=list)),
    "above": (Annotated[list[float], Meta(max_length=MOST_VALUES)], msgspec.field(default_factory=list)),
}
"""The parameters of a URL, with their types and defaults."""
_OF_ANY = ("question", "method", "confidence", "stratum", "format")
_OF_COUNTS = (*_OF_ANY, "population", "covariance")
_NEEDED = {ResultKind.CHANGE: "after", ResultKind.WINDOWS: "width"}
QUERIES: dict[ResultKind, Any] = {
    kind: msgspec.defstruct(
        f"{kind.title()}Query",
        [(name, *_PARAMETERS[name][: 1 if _NEEDED.get(kind) == name else 2]) for name in names],
        bases=(Body,),
        kw_only=True,
        module=__name__,
        namespace={"__doc__": f"The parameters of {kind.value}."},
    )
    for kind, names in {
        ResultKind.HISTOGRAM: (*_OF_COUNTS, "period", "time"),
        ResultKind.SERIES: (*_OF_COUNTS, "until", "time"),
        ResultKind.CHANGE: (*_OF_COUNTS, "after", "until"),
        ResultKind.WINDOWS: (*_OF_COUNTS, "until", "time", "width"),
        ResultKind.COMPARISON: (*_OF_ANY, "until", "time", "against", "after"),
        ResultKind.NUMBERS: (*_OF_ANY, "until", "time", "quantile", "above"),
    }.items()
}
"""The parameters that a question of each kind may have."""


def parse(
    kind: ResultKind, query: QueryParams, published: StoredSurvey, last_shown: int, now: UnixSeconds
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


def _about(asked: Any, published: StoredSurvey) -> int:
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


def check_closed(published: StoredSurvey, period: int, now: UnixSeconds) -> int:
    """The period, where it has closed. Raises NotEstimable where it has not, ValueError for none of the survey's."""
    if not 1 <= period <= published.survey.calendar.periods:
        periods = published.survey.calendar.periods
        raise ValueError(f"the survey's periods are numbered 1 to {periods}, got {period}")
    if period > published.last:
        raise ValueError(f"the survey was ended early, after period {published.last}: there is no period {period}")
    if period > published.closed(now):
        raise NotEstimable(f"period {period} has not closed")
    return period


def _converted(query: QueryParams, kind: Any) -> Any:
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


def _strata(asked: Sequence[str], published: StoredSurvey) -> tuple[StratumNumber, ...] | None:
    if not asked:
        return None
    values: dict[str, set[str]] = {}
    for name, _, value in (each.partition(":") for each in asked):
        values.setdefault(name, set()).add(value)
    chosen = tuple(select(published.survey.public, values))
    return None if len(chosen) == published.survey.strata else chosen


def _period(asked: Any, name: str, published: StoredSurvey, last_shown: int, now: UnixSeconds) -> int:
    period, time = getattr(asked, name), getattr(asked, "time", UNSET)
    if period is not UNSET and time is not UNSET:
        raise ValueError(f"give one of {name} and time")
    if time is not UNSET:
        calendar = published.survey.calendar
        period = floor((parse_instant(time) - calendar.start) / calendar.period)
    if period is not UNSET:
        return check_closed(published, period, now)
    if last_shown == 0:
        sealed = (
            f"those up to period {published.sealed} are sealed, with too few reports to be shown, or none"
            if published.sealed
            else "none has been sealed, which it is when its grace is over"
        )
        raise NotEstimable(
            f"nothing of this survey is shown yet: no period has closed with {enough(published.survey.minimum):,} "
            f"reports on each node and stratum, and {sealed}"
        )
    return last_shown


MOST_COVARIANCES = 4 * 10**6
"""How many figures the covariances of one answer have at most."""
LATEST = "latest"
"""The name in a path that stands for the newest edition."""
_IMMUTABLE = "public, max-age=31536000, immutable"
_AT_ONCE = "public, max-age=1"


def _described(kind: ResultKind) -> Described:
    answer: type = ManyEstimates if kind in (ResultKind.SERIES, ResultKind.WINDOWS) else OneEstimate
    answer = {ResultKind.COMPARISON: ComparisonAnswer, ResultKind.NUMBERS: NumbersAnswer}.get(kind, answer)
    return Described(
        gives={200: {MEDIA_TYPES[form]: str if form is Format.CSV else answer for form in Format}, 304: {}},
        query=QUERIES[kind],
        refuses=(ErrorCode.INVALID, ErrorCode.NOT_ESTIMABLE),
        scope=TokenScope.READ,
        open_too=True,
    )


def _endpoint(kind: ResultKind, said: str) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        return await _answer(request, kind)

    show.__name__, show.__doc__ = f"show_{kind}", said
    return _described(kind)(show)


ENDPOINTS = {
    kind: _endpoint(kind, f"GET …/{kind}{said}")
    for kind, said in {
        ResultKind.HISTOGRAM: "?period=t or ?time=ISO 8601: by default the last period of which anything is shown.",
        ResultKind.SERIES: "?until=t: the histograms of the periods 1 to t; the nodes are listed once for all of them.",
        ResultKind.NUMBERS: "?quantile=0.5&above=60&until=t: a number's mean, quantiles and shares at or above values.",
        ResultKind.WINDOWS: "?width=w&until=t: the changes over all windows of w periods that end by t.",
        ResultKind.CHANGE: "?after=l&until=r: the change of the histogram over the window (l, r].",
        ResultKind.COMPARISON: "?stratum=…&against=…&after=l&until=t: the differences between two arms, or two times, "
        "or both.",
    }.items()
}
"""What answers a question of each kind, below a survey's path."""


async def _answer(request: Request, kind: ResultKind) -> Response:
    service, published = service_of(request), survey_in_path(request)
    require_reader(request, published)
    shown = await run_in_threadpool(service.showing.of, published)
    try:
        question, asked = parse(kind, request.query_params, published, shown.last, service.clock())
    except ValueError as error:
        raise TurnedDown(ErrorCode.INVALID, f"{error}") from error
    form = format_of(request, asked)
    key = published.survey.id, shown.revision, published.last, question, form
    kept = cache_control(published, shown.looked, service.clock())
    headers = {"etag": tag_of(repr((VERSION, key)).encode()), "cache-control": kept, "vary": "accept"}
    headers |= OPEN_TO_ALL if published.public else {}
    if is_kept(request, headers["etag"]):
        return Response(status_code=304, headers=headers)
    content = service.estimating.kept(key)
    if content is None:
        make = partial(_made, question, published, shown, form)
        network = None if request.client is None else network_of(request.client.host)
        opening = published.survey.id if opens_page(question, form, shown.last) else None
        content = await _while_there(request, service.estimating.answer(key, make, network, opening))
    return Response(content, headers=headers, media_type=MEDIA_TYPES[form])


async def _while_there(request: Request, answering: Coroutine[Any, Any, bytes]) -> bytes:
    """The answer, unless the client goes before. Raises TurnedDown then, which nobody hears."""
    answer, gone = asyncio.ensure_future(answering), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise TurnedDown(ErrorCode.MALFORMED, "the client has gone")
        return answer.result()
    finally:
        for each in (answer, gone):
            each.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await each


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _made(question: ResultsQuery, published: StoredSurvey, shown: ShownSurvey, form: Format) -> bytes:
    answer = {ResultKind.COMPARISON: compared, ResultKind.NUMBERS: numbered}.get(question.kind, answered)
    try:
        content: Any = answer(question, published, shown)
    except ValueError as error:
        raise TurnedDown(ErrorCode.INVALID, f"{error}") from error
    if form is Format.JSON:
        return msgspec.json.encode(content)
    if form is Format.MSGPACK:
        return msgspec.msgpack.encode(content)
    tables = {ResultKind.COMPARISON: comparison_rows, ResultKind.NUMBERS: number_rows}
    table: Callable[[Any], str] = tables.get(question.kind, csv_shown)  # type: ignore[assignment]
    return table(content).encode()


def answered(question: ResultsQuery, published: StoredSurvey, shown: ShownSurvey) -> dict[str, Any]:
    """The answer to a question. Raises NotEstimable, ValueError, or TurnedDown where it would be too large."""
    solution = shown.solution(question.strata, question.method, question.about)
    showing = ShownAs(
        question.method, question.population, question.confidence, published.last, shown.revision, shown.final
    )
    showing = replace(showing, freezing=_freezing(question, shown, showing))
    kind, windows = question.kind, question.kind in (ResultKind.WINDOWS, ResultKind.CHANGE)
    if kind in (ResultKind.HISTOGRAM, ResultKind.CHANGE):
        figures, used = span_figures(solution, Node(question.after, question.until))
        (row,) = rows_shown(solution, figures, showing, windows=windows, covariance=question.covariance)
        return {**head_shown(solution, used, showing), **row}
    if kind is ResultKind.SERIES:
        figures, gaps = histogram_figures(solution, question.until)
    else:
        figures, gaps = window_figures(solution, question.width, question.until)
    k, z = figures.values.shape
    if question.covariance and k * z * z > MOST_COVARIANCES:
        raise TurnedDown(ErrorCode.INVALID, "these are more covariances than fit an answer: ask for fewer periods")
    return many_shown(solution, question.until, figures, gaps, showing, windows=windows, covariance=question.covariance)


def _freezing(question: ResultsQuery, shown: ShownSurvey, showing: ShownAs) -> Mapping[int, dict[str, Any]] | None:
    """How far freezing moves the values at most, unsmoothed; None where the survey does not ask."""
    if (other := shown.survey.freezing[question.about]) is None:
        return None
    online = question.method is ResultMethod.ONLINE
    solution = shown.solution(question.strata, ResultMethod.ONLINE if online else ResultMethod.RETROSPECTIVE, other)
    if question.kind in (ResultKind.SERIES, ResultKind.WINDOWS):
        return freezing_shown(histogram_figures(solution, question.until)[0], showing)
    try:
        return freezing_shown(span_figures(solution, Node(0, question.until))[0], showing)
    except NotEstimable:
        return {}


@Described(
    gives={200: {JSON: ManyEstimates, MEDIA_TYPES[Format.CSV]: str, MSGPACK: Signed}, 304: {}},
    scope=TokenScope.READ,
    open_too=True,
)
async def show_edition_file(request: Request) -> Response:
    """GET a file of an edition of an open survey, by the edition's name, or of the `latest`.

    Under a name it never changes, and any cache may keep it. The files are `series` and `retrospective`, each as
    `.json` and `.csv`, `edition.signed` with the tallies that they are made of and their hashes, and `key.signed`, the
    authority's certificate of the key that signed, where it has given one.
    """
    service, published = service_of(request), survey_in_path(request)
    require_reader(request, published)
    survey, named, name = published.survey.id, request.path_params["edition"], request.path_params["file"]
    headers: dict[str, str] = {}
    if not published.public:
        raise TurnedDown(ErrorCode.NOT_FOUND, "there are editions of surveys that are open to all alone")
    if named == LATEST:
        newest = service.editions.newest(survey)
        files, kept = None, ""
        if newest is not None:
            files, kept = newest.files, cache_control(published, newest.looked, service.clock())
            headers["content-location"] = f"../{newest.id.hex()}/{name}"
            if not newest.is_latest:
                kept = _AT_ONCE
    else:
        files, kept = await run_in_threadpool(service.editions.files, survey, _id(named)), _IMMUTABLE
    if files is None or name not in files:
        raise TurnedDown(ErrorCode.NOT_FOUND, "there is no such edition of the survey, or no such file in it")
    return answer_file(request, files[name], {"cache-control": kept, **headers})


def _id(named: str) -> bytes:
    try:
        return bytes.fromhex(named)
    except ValueError:
        return b""
