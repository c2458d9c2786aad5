"""For operators: what a survey's reports look like, folding now, whether all is well, and what time it is."""

import json
from math import inf
from typing import Any

from changeling_protocol import Survey, UnixSeconds
from changeling_protocol.wire import JSON, ErrorCode
from changeling_statistics import PlanNode, format_instant
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import TurnedDown
from ..store.counted import refusals_of
from ..store.log import unfolded
from ..store.tokens import TokenScope
from .admission import may, require, require_reader
from .caching import UNKEPT
from .described import Described, described
from .health import Severity, status_of, troubles_of
from .requests import read_body, service_of, survey_in_path
from .schemas import COUNT, COUNTS, ID, INSTANT, NUMBER, PERIOD, TEXT, TRUTH, listed, or_null, record
from .service import Service
from .shown import Shown

MOST_JSON_BYTES = 1024
_STATUS = {
    "survey": ID,
    "question": TEXT,
    "epsilon": NUMBER,
    "minimum": COUNT,
    "closed_periods": COUNT,
    "shown_periods": COUNT,
    "final_periods": COUNT,
    "last_period": PERIOD,
    "revision": COUNT,
    "nodes": listed(record(track=COUNT, start=PERIOD, end=PERIOD, reports=COUNT, sealed=TRUTH)),
    "closings": listed(record(period=PERIOD, heard=COUNT, new=COUNT)),
}
_OF_OPERATORS = {"refused": COUNTS, "last_fold": or_null(INSTANT), "unfolded_requests": COUNT}
_TROUBLE = record(name=TEXT, severity={"type": "string", "enum": [*Severity]}, detail=TEXT)
_HEALTH = record(
    status={"type": "string", "enum": [*Severity]},
    troubles=listed(_TROUBLE),
    fold_age=NUMBER,
    fold_failures=COUNT,
)


@described(
    Described(
        gives={200: {JSON: record(_OF_OPERATORS, **_STATUS)}},
        scope=TokenScope.READ,
        open_too=True,
    )
)
def show_status(request: Request) -> Response:
    """GET …/status: how far a survey is, and of each node that is shown how many reports; operators see more.

    Without a token for operating, one with the scope fold, nothing in it hangs on an envelope's content but what
    snapshots show. Else whoever sends an envelope again, once or a thousand times, could read from a counter what is
    sealed in it.
    """
    service, published = service_of(request), survey_in_path(request)
    require_reader(request, published)
    survey, shown = published.survey, service.showing.of(published)
    nodes = [
        {**(of_node := _span(survey, node)), "reports": tally.reports, "sealed": of_node["end"] <= shown.final}
        for node, tally in sorted(shown.tallies().items())
    ]
    content = {
        "survey": survey.id.hex(),
        "question": survey.question,
        "epsilon": float(survey.epsilon),
        "minimum": survey.minimum,
        "closed_periods": published.closed(service.clock()),
        "shown_periods": shown.last,
        "final_periods": shown.final,
        "last_period": published.last,
        "revision": shown.revision,
        "nodes": nodes,
        "closings": [
            {"period": period, "heard": heard, "new": new} for period, (heard, new) in sorted(_heard(shown).items())
        ],
    }
    if may(request, TokenScope.FOLD):
        content |= _for_operators(service, survey)
    return JSONResponse(content, headers={"cache-control": UNKEPT})


def _for_operators(service: Service, survey: Survey) -> dict[str, Any]:
    with service.store.reading() as connection:
        refused, waiting = refusals_of(connection, survey.id), unfolded(connection)
    last = service.folding.last_fold
    return {
        "refused": {reason.value: count for reason, count in sorted(refused.items())},
        "last_fold": None if last is None else format_instant(last),
        "unfolded_requests": waiting,
    }


def _span(survey: Survey, key: PlanNode) -> dict[str, Any]:
    node = survey.plan.tracks[key[0]].node(key[1])
    return {"track": key[0], "start": node.start, "end": node.end}


def _heard(shown: Shown) -> dict[int, tuple[int, int]]:
    """How many were heard at each closing that is shown, and how many of them had enrolled since the one before."""
    heard: dict[int, tuple[int, int]] = {}
    for (_, period), here in shown.tallies().attendance.items():
        before = heard.get(period, (0, 0))
        heard[period] = before[0] + here.heard, before[1] + here.new
    return heard


@described(Described({200: {JSON: record(envelopes=COUNT, reports=COUNT, refused=COUNTS)}}, scope=TokenScope.FOLD))
def fold_now(request: Request) -> Response:
    """POST: fold to the log's end at once; answers what that did."""
    require(request, TokenScope.FOLD)
    done = service_of(request).folding.fold_now()
    refused = {reason.value: count for reason, count in sorted(done.refused.items())}
    return JSONResponse({"envelopes": done.envelopes, "reports": done.reports, "refused": refused})


@described(
    Described(
        gives={200: {JSON: record(time=NUMBER)}},
        takes={JSON: record(time=NUMBER)},
        refuses=(ErrorCode.CONFLICT,),
        scope=TokenScope.FOLD,
    )
)
async def move_clock(request: Request) -> Response:
    """PUT {"time": Unix seconds}: moves a demo's clock forward; confirms a real one, if that is what it shows."""
    require(request, TokenScope.FOLD)
    service = service_of(request)
    movable, guarded = service.movable_clock, service.guarded_clock
    tell = movable.move_to if movable else guarded.confirm if guarded else None
    if tell is None:
        raise TurnedDown(ErrorCode.FORBIDDEN, "this server's clock is the machine's: it needs nobody's word")
    try:
        content = json.loads(await read_body(request, MOST_JSON_BYTES))
    except (ValueError, RecursionError) as error:
        raise TurnedDown(ErrorCode.MALFORMED, "the body is not JSON") from error
    match content:
        case {"time": int() | float() as time} if not isinstance(time, bool) and -inf < time < inf:
            try:
                tell(UnixSeconds(time))
            except (ValueError, OverflowError) as error:
                raise TurnedDown(ErrorCode.CONFLICT, f"{error}") from error
            return JSONResponse({"time": service.clock()})
    raise TurnedDown(ErrorCode.MALFORMED, 'the body is {"time": Unix seconds}')


@described(Described({200: {JSON: record(alive=TRUTH)}}))
async def show_alive(_: Request) -> Response:
    """GET: 200, as this process answers; whether it can do its work is another question."""
    return JSONResponse({"alive": True})


@described(Described({200: {JSON: _HEALTH}, 503: {JSON: _HEALTH}}))
async def show_ready(request: Request) -> Response:
    """GET: what is wrong, each with its name, 503 where that is bad; and how old the last whole fold is, in seconds."""
    service = service_of(request)
    troubles = troubles_of(service)
    worst = status_of(troubles)
    content = {
        "status": worst.value,
        "troubles": [{"name": each.name, "severity": each.severity.value, "detail": each.detail} for each in troubles],
        "fold_age": round(service.folding.age, 1),
        "fold_failures": service.folding.failures,
    }
    return JSONResponse(content, 503 if worst is Severity.BAD else 200, {"cache-control": UNKEPT})
