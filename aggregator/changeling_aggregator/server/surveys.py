"""Surveys over HTTP: list, fetch, publish. A survey is immutable, so publishing it again changes nothing."""

from changeling_protocol import BadSignature, MalformedBytes, Survey, UnderstatedEpsilon
from changeling_protocol.quantities import SurveyId
from changeling_protocol.wire import MOST_BODY_BYTES, ErrorCode
from changeling_statistics.randomizers import counterpart_of
from changeling_statistics.succession import check_successor
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import TurnedDown
from ..store.surveys import add_survey
from .requests import id_in_path, read_body, require_admin, service_of, survey_in_path
from .responses import packed
from .service import Service


async def list_surveys(request: Request) -> Response:
    """GET the id, the question and the last period of every published survey."""
    published = service_of(request).registry.surveys
    rows = [
        {"id": id_.hex(), "question": each.survey.question, "last_period": each.last} for id_, each in published.items()
    ]
    return JSONResponse({"surveys": rows})


async def fetch_survey(request: Request) -> Response:
    """GET a survey's signed bytes."""
    return packed(survey_in_path(request).signed)


async def publish_survey(request: Request) -> Response:
    """PUT a survey that the authority signed: 201, or 200 where it was published before."""
    require_admin(request)
    signed = await read_body(request, MOST_BODY_BYTES)
    survey = _verified(signed, service_of(request))
    if survey.id != id_in_path(request):
        raise TurnedDown(ErrorCode.MALFORMED, f"this survey's id is {survey.id.hex()}, not the one in the path")
    _check_succession(survey, service_of(request))
    added = await run_in_threadpool(_publish, service_of(request), survey, signed)
    return JSONResponse({"id": survey.id.hex()}, 201 if added else 200)


def _verified(signed: bytes, service: Service) -> Survey:
    try:
        survey = Survey.from_signed(signed, service.settings.authority)
        for track in survey.plan.tracks:
            counterpart_of(track.randomizer)
    except BadSignature as error:
        raise TurnedDown(ErrorCode.BAD_SIGNATURE, f"{error}") from error
    except UnderstatedEpsilon as error:
        raise TurnedDown(ErrorCode.UNDERSTATED_EPSILON, f"{error}") from error
    except MalformedBytes as error:
        raise TurnedDown(ErrorCode.MALFORMED, f"{error}") from error
    except TypeError as error:
        raise TurnedDown(ErrorCode.INVALID, f"this server cannot count the survey: {error}") from error
    return survey


def _check_succession(survey: Survey, service: Service) -> None:
    """A survey that follows another is published where that one is, and goes on from it."""
    if not survey.follows:
        return
    before = service.registry.surveys.get(SurveyId(survey.follows))
    if before is None:
        raise TurnedDown(
            ErrorCode.INVALID, f"it follows survey {survey.follows.hex()}, which is not published here: publish that"
        )
    try:
        check_successor(before.survey, survey)
    except ValueError as error:
        raise TurnedDown(ErrorCode.INVALID, f"{error}") from error


def _publish(service: Service, survey: Survey, signed: bytes) -> bool:
    with service.store.writing() as connection:
        added = add_survey(connection, survey.id, signed)
    service.registry.refresh()
    return added
