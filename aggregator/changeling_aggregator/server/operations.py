"""For operators: what a survey's reports look like, folding now, health, and what time it is."""

import json
from math import inf

from changeling_protocol.quantities import UnixSeconds
from changeling_protocol.wire import ErrorCode
from changeling_statistics.instants import format_instant
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import TurnedDown
from ..store.counted import refusals_of, sealed_period, tallies_of
from ..store.log import unfolded
from .health import Severity, status_of, troubles_of
from .publishable import closed_tallies
from .requests import read_body, require_admin, service_of, survey_in_path

MOST_JSON_BYTES = 1024


def show_status(request: Request) -> Response:
    """GET …/status: the reports of each closed node, what was refused and why, and how far the fold is."""
    service, published = service_of(request), survey_in_path(request)
    survey = published.survey
    with service.store.reading() as connection:
        tallies = closed_tallies(published, tallies_of(connection, survey.id), service.clock())
        sealed, refused = sealed_period(connection, survey.id), refusals_of(connection, survey.id)
        waiting = unfolded(connection)
    nodes = []
    for (number, node_number), tally in tallies.items():
        node = survey.plan.tracks[number].node(node_number)
        of_node = {"track": number, "start": node.start, "end": node.end}
        nodes.append({**of_node, "reports": tally.reports, "sealed": node.end <= sealed})
    last = service.folding.last_fold
    return JSONResponse(
        {
            "survey": survey.id.hex(),
            "question": survey.question,
            "closed_periods": published.closed(service.clock()),
            "last_period": published.last,
            "nodes": nodes,
            "refused": {reason.value: count for reason, count in sorted(refused.items())},
            "last_fold": None if last is None else format_instant(last),
            "unfolded_requests": waiting,
        }
    )


def fold_now(request: Request) -> Response:
    """POST: fold to the log's end at once; answers what that did."""
    require_admin(request)
    done = service_of(request).folding.fold_now()
    refused = {reason.value: count for reason, count in sorted(done.refused.items())}
    return JSONResponse({"envelopes": done.envelopes, "reports": done.reports, "refused": refused})


async def move_clock(request: Request) -> Response:
    """PUT {"time": Unix seconds}: moves a demo's clock forward; confirms a real one, if that is what it shows."""
    require_admin(request)
    service = service_of(request)
    movable, guarded = service.movable_clock, service.guarded_clock
    tell = movable.move_to if movable else guarded.confirm if guarded else None
    if tell is None:
        raise TurnedDown(ErrorCode.FORBIDDEN, "this server's clock is the machine's: it needs nobody's word")
    try:
        content = json.loads(await read_body(request, MOST_JSON_BYTES))
    except ValueError as error:
        raise TurnedDown(ErrorCode.MALFORMED, "the body is not JSON") from error
    match content:
        case {"time": int() | float() as time} if not isinstance(time, bool) and -inf < time < inf:
            try:
                tell(UnixSeconds(time))
            except ValueError as error:
                raise TurnedDown(ErrorCode.CONFLICT, f"{error}") from error
            return JSONResponse({"time": service.clock()})
    raise TurnedDown(ErrorCode.MALFORMED, 'the body is {"time": Unix seconds}')


async def show_health(request: Request) -> Response:
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
    return JSONResponse(content, 503 if worst is Severity.BAD else 200)
