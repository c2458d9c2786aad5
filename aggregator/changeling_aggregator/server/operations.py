"""For operators: what is wrong, what a survey's reports look like, folding now, and what time it is.

Each trouble has a name of its own. Troubles are read from memory and the file system alone, so that asking costs
nothing and works while the store does not.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from changeling_protocol import DURATION_UNITS, SealingKey, Survey, UnixSeconds
from changeling_protocol.wire import JSON, ErrorCode
from changeling_statistics import format_instant
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from ..errors import TurnedDown
from ..fold import MOST_RETENTION_SECONDS
from ..ingest import PublishedSurvey, Registry
from ..store import IN_CLEAR, TokenScope
from .front_door import UNNAMED_PROXY
from .openapi import Body, Count, Described, HexId, Instant, Period, described
from .requests import asked_by, may, read_body, require, require_reader, service_of, survey_in_path
from .responses import UNKEPT, json
from .results import PublishedNode
from .service import Service
from .shown import ShownSurvey

MOST_FAILURES = 3
"""So many failures of the fold in a row are more than a busy disk."""
MOST_UNFOLDED_SECONDS = 60.0
"""A fold that runs elsewhere and keeps up reaches the log's end within seconds."""
WARNING_SECONDS = 14 * 86_400
WARNING_SHARE = 10
"""Before the last key expires operators are warned, for so long or this part of its life, whichever is shorter."""


class Severity(StrEnum):
    """How bad a trouble is."""

    OK = "ok"
    """Only to be known."""
    DEGRADED = "degraded"
    """Uploads are taken and counted; somebody has to look."""
    BAD = "bad"
    """Uploads are turned away, lost, or not counted."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong. name: for machines. detail: a sentence for people."""

    name: str
    severity: Severity
    detail: str


def troubles_of(service: Service) -> list[Trouble]:
    """All that is wrong with a server now, the worst first."""
    troubles = [
        *_of_the_process(service),
        *_of_the_store(service),
        *_of_the_surveys(service),
        *troubles_of_keys(service.registry, service.clock()),
    ]
    return sorted(troubles, key=lambda trouble: [*Severity].index(trouble.severity), reverse=True)


def status_of(troubles: Iterable[Trouble]) -> Severity:
    """The severity of the worst of them."""
    return max((trouble.severity for trouble in troubles), key=[*Severity].index, default=Severity.OK)


def covered_until(keys: Iterable[SealingKey], now: UnixSeconds) -> SealingKey | None:
    """The last of the keys that follow the one valid now without a gap; None where none is valid.

    now: Unix seconds.
    """
    last = None
    for key in sorted(keys, key=lambda key: key.begins):
        if key.expires >= now and key.begins <= (now if last is None else last.expires):
            last = key
    return last


def _of_the_process(service: Service) -> Iterator[Trouble]:
    if not service.folding.running:
        yield Trouble("fold", Severity.BAD, "the thread that folds has died")
    elif service.folding.failures >= MOST_FAILURES:
        yield Trouble("fold", Severity.BAD, "the fold fails: the log says why")
    elif not service.folding.folds and service.folding.age > MOST_UNFOLDED_SECONDS:
        detail = f"this server does not fold, and for {service.folding.age:.0f}s no other process has folded all"
        yield Trouble("fold", Severity.DEGRADED, detail)
    if trouble := service.committer.trouble:
        yield Trouble("uploads", Severity.BAD, trouble)
    if service.traffic.unnamed_proxy:
        yield Trouble("proxy", Severity.OK, UNNAMED_PROXY)
    if (clock := service.guarded_clock) and (doubt := clock.doubt):
        yield Trouble("clock", Severity.DEGRADED, f"nothing is sealed or destroyed: {doubt.value}")


def _of_the_store(service: Service) -> Iterator[Trouble]:
    if trouble := service.store.trouble():
        yield Trouble("store", Severity.BAD, trouble)
    if service.store.at_rest == IN_CLEAR:
        yield Trouble("keys-in-clear", Severity.OK, "sealing keys lie in the store unencrypted: give it a store key")


def _of_the_surveys(service: Service) -> Iterator[Trouble]:
    for id_ in service.registry.unreadable:
        yield Trouble("survey", Severity.DEGRADED, f"survey {id_.hex()} cannot be read by this version, and is not run")
    for id_ in service.folding.uncounted:
        detail = f"uploads of survey {id_.hex()} could not be counted: the log says why"
        yield Trouble("survey", Severity.DEGRADED, detail)


def troubles_of_keys(registry: Registry, now: UnixSeconds) -> Iterator[Trouble]:
    """Where no sealing key is valid, or none will be soon, for a survey that takes answers. now: Unix seconds."""
    surveys = [each for each in registry.surveys.values() if now <= _answered_until(each)]
    if not surveys:
        return
    keys = [each.key for each in registry.keys.values()]
    last, needed = covered_until(keys, now), max(map(_answered_until, surveys))
    if last is None:
        begun = any(each.survey.calendar.start <= now for each in surveys)
        coming = min((key.begins for key in keys if key.begins > now), default=None)
        then = "none is to come" if coming is None else f"the next begins in {_shown(coming - now)}"
        detail = f"no sealing key is valid, and {then}: no device can send anything"
        yield Trouble("keys", Severity.BAD if begun else Severity.DEGRADED, detail)
    elif last.expires < needed and last.expires - now < min(
        WARNING_SECONDS, (last.expires - last.begins) / WARNING_SHARE
    ):
        detail = f"the last sealing key expires in {_shown(last.expires - now)}: publish the next"
        yield Trouble("keys", Severity.DEGRADED, detail)


def _answered_until(published: PublishedSurvey) -> int:
    survey = published.survey
    return survey.calendar.time(published.last) + min(survey.grace, MOST_RETENTION_SECONDS)


def _shown(seconds: float) -> str:
    """A duration in the widest unit of which it has two or more."""
    unit = next((unit for unit, length in DURATION_UNITS.items() if seconds >= 2 * length), "s")
    return f"{seconds // DURATION_UNITS[unit]:.0f}{unit}"


MOST_JSON_BYTES = 1024
_UNKEPT = {"cache-control": UNKEPT}


class HeardAt(Body):
    """How many entries were heard at a closing, and how many of them had enrolled since the one before."""

    period: Period
    heard: Count
    new: Count


class SurveyStatus(Body):
    """How far a survey is; the last three are for operators."""

    survey: HexId
    question: str
    epsilon: float
    minimum: Count
    closed_periods: Count
    shown_periods: Count
    final_periods: Count
    last_period: Period
    revision: Count
    nodes: list[PublishedNode]
    closings: list[HeardAt]
    refused: dict[str, Count] | UnsetType = UNSET
    last_fold: Instant | UnsetType | None = UNSET
    unfolded_requests: Count | UnsetType = UNSET


class Folded(Body):
    """The result of a fold."""

    envelopes: Count
    reports: Count
    refused: dict[str, Count]


class ClockTime(Body):
    """A time, in Unix seconds."""

    time: float


class Alive(Body):
    """A process that answers."""

    alive: bool


class TroubleRow(Body):
    """A trouble of a server."""

    name: str
    severity: Severity
    detail: str


class Readiness(Body):
    """The troubles of a server; fold_age: since the last whole fold, in seconds."""

    status: Severity
    troubles: list[TroubleRow]
    fold_age: float
    fold_failures: Count


@described(Described(gives={200: {JSON: SurveyStatus}}, scope=TokenScope.READ, open_too=True))
def show_status(request: Request) -> Response:
    """GET …/status: how far a survey is, and of each node that is shown how many reports; operators see more.

    Without a token for operating, one with the scope fold, nothing in it depends on an envelope's content but what
    snapshots show. Else whoever sends an envelope again, once or a thousand times, could read from a counter what is
    sealed in it.
    """
    service, published = service_of(request), survey_in_path(request)
    require_reader(request, published)
    survey, shown = published.survey, service.showing.of(published)
    status = SurveyStatus(
        survey=survey.id.hex(),
        question=asked_by(survey),
        epsilon=float(survey.epsilon),
        minimum=survey.minimum,
        closed_periods=published.closed(service.clock()),
        shown_periods=shown.last,
        final_periods=shown.final,
        last_period=published.last,
        revision=shown.revision,
        nodes=_nodes(survey, shown),
        closings=_heard(shown),
    )
    if may(request, TokenScope.FOLD):
        with service.store.view() as view:
            refused, status.unfolded_requests = view.refusals(survey.id), view.unfolded()
        status.refused = {reason.value: count for reason, count in sorted(refused.items())}
        last = service.folding.last_fold
        status.last_fold = None if last is None else format_instant(last)
    return json(status, headers=_UNKEPT)


def _nodes(survey: Survey, shown: ShownSurvey) -> list[PublishedNode]:
    listed = []
    for (track, number), tally in sorted(shown.tallies().items()):
        node = survey.plan.tracks[track].node(number)
        sealed = node.end <= shown.final
        listed.append(PublishedNode(track=track, start=node.start, end=node.end, reports=tally.reports, sealed=sealed))
    return listed


def _heard(shown: ShownSurvey) -> list[HeardAt]:
    heard: dict[int, HeardAt] = {}
    for (_, period), here in shown.tallies().attendance.items():
        at = heard.setdefault(period, HeardAt(period=period, heard=0, new=0))
        at.heard += here.heard
        at.new += here.new
    return [heard[period] for period in sorted(heard)]


@described(Described({200: {JSON: Folded}}, scope=TokenScope.FOLD))
def fold_now(request: Request) -> Response:
    """POST: fold to the log's end at once; answers what that did."""
    require(request, TokenScope.FOLD)
    done = service_of(request).folding.fold_now()
    refused = {reason.value: count for reason, count in sorted(done.refused.items())}
    return json(Folded(envelopes=done.envelopes, reports=done.reports, refused=refused))


@described(
    Described(
        gives={200: {JSON: ClockTime}},
        takes={JSON: ClockTime},
        refuses=(ErrorCode.CONFLICT,),
        scope=TokenScope.FOLD,
    )
)
async def move_clock(request: Request) -> Response:
    """PUT {"time": Unix seconds}: moves a demo's clock forward; confirms a real one, if that is what it shows."""
    require(request, TokenScope.FOLD)
    service = service_of(request)
    movable, guarded = service.movable_clock, service.guarded_clock
    confirm = movable.move_to if movable else guarded.confirm if guarded else None
    if confirm is None:
        raise TurnedDown(ErrorCode.FORBIDDEN, "this server's clock is the machine's: it needs nobody's word")
    try:
        asked = msgspec.json.decode(await read_body(request, MOST_JSON_BYTES), type=ClockTime)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TurnedDown(ErrorCode.MALFORMED, 'the body is {"time": Unix seconds}') from error
    try:
        confirm(UnixSeconds(asked.time))
    except (ValueError, OverflowError) as error:
        raise TurnedDown(ErrorCode.CONFLICT, f"{error}") from error
    return json(ClockTime(time=service.clock()))


@described(Described({200: {JSON: Alive}}))
async def show_alive(_: Request) -> Response:
    """GET: 200, as this process answers; whether it can do its work is another question."""
    return json(Alive(alive=True))


@described(Described({200: {JSON: Readiness}, 503: {JSON: Readiness}}))
async def show_ready(request: Request) -> Response:
    """GET: what is wrong, each with its name, 503 where that is bad; and how old the last whole fold is, in seconds."""
    service = service_of(request)
    troubles = troubles_of(service)
    worst = status_of(troubles)
    content = Readiness(
        status=worst,
        troubles=[TroubleRow(name=each.name, severity=each.severity, detail=each.detail) for each in troubles],
        fold_age=round(service.folding.age, 1),
        fold_failures=service.folding.failures,
    )
    return json(content, 503 if worst is Severity.BAD else 200, _UNKEPT)
