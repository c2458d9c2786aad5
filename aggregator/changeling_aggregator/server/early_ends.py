"""Ending a survey early over HTTP. An end stays as it is, so publishing it again changes nothing."""

from changeling_protocol import EarlyEnd
from changeling_protocol.wire import JSON, MSGPACK, ErrorCode
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import TurnedDown
from ..ingest import PublishedSurvey
from ..store.early_ends import add_end
from ..store.tokens import TokenScope
from .admission import require
from .described import Described, described
from .requests import read_body, reading_signed, service_of, survey_in_path
from .schemas import PERIOD, SIGNED, record
from .service import Service

MOST_END_BYTES = 4096


@described(
    Described(
        gives={200: {JSON: record(last_period=PERIOD)}, 201: {JSON: record(last_period=PERIOD)}},
        takes={MSGPACK: SIGNED},
        refuses=(ErrorCode.BAD_SIGNATURE, ErrorCode.INVALID, ErrorCode.CONFLICT),
        scope=TokenScope.SURVEY_WRITE,
    )
)
async def end_survey(request: Request) -> Response:
    """PUT an end that the authority signed: 201, or 200 where the survey was ended so before, 409 if otherwise."""
    require(request, TokenScope.SURVEY_WRITE)
    service, published = service_of(request), survey_in_path(request)
    signed = await read_body(request, MOST_END_BYTES)
    with reading_signed():
        end = EarlyEnd.from_signed(signed, service.settings.authority)
    if end.survey != published.survey.id:
        raise TurnedDown(ErrorCode.MALFORMED, f"this ends survey {end.survey.hex()}, not the one in the path")
    _check(end, published, service)
    try:
        added = await run_in_threadpool(_publish, service, end, signed)
    except ValueError as error:
        raise TurnedDown(ErrorCode.CONFLICT, f"{error}") from error
    return JSONResponse({"last_period": end.last}, 201 if added else 200)


def _check(end: EarlyEnd, published: PublishedSurvey, service: Service) -> None:
    """What is published already stays: an end is not before the last period that has closed."""
    periods, closed = published.survey.calendar.periods, published.closed(service.clock())
    if end.last >= periods:
        raise TurnedDown(ErrorCode.INVALID, f"the survey's calendar ends with period {periods}: end it before")
    if published.last == periods and end.last < closed:
        raise TurnedDown(ErrorCode.INVALID, f"period {closed} has closed: end the survey after it, or later")


def _publish(service: Service, end: EarlyEnd, signed: bytes) -> bool:
    with service.store.writing() as connection:
        added = add_end(connection, end, signed)
    service.registry.refresh()
    return added
