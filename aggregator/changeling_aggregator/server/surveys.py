"""Surveys over HTTP: list, fetch, publish. A survey is immutable, so publishing it again changes nothing."""

from changeling_protocol import Survey, SurveyId, UnderstatedEpsilon, UnixSeconds
from changeling_protocol.wire import JSON, MOST_BODY_BYTES, MSGPACK, ErrorCode
from changeling_statistics import check_successor, counterpart_of, format_duration, format_instant
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import TurnedDown
from ..fold import MOST_RETENTION_SECONDS
from ..store.surveys import add_survey
from ..store.tokens import TokenScope
from .admission import require
from .described import Described, described
from .requests import id_in_path, read_body, reading_signed, service_of, survey_in_path
from .responses import packed
from .schemas import ID, PERIOD, SIGNED, TEXT, TRUTH, listed, record
from .service import Service


@described(
    Described({200: {JSON: record(surveys=listed(record(id=ID, question=TEXT, last_period=PERIOD, public=TRUTH)))}})
)
async def list_surveys(request: Request) -> Response:
    """GET the id, the question and the last period of every published survey, and whether its results are open."""
    published = service_of(request).registry.surveys
    rows = [
        {
            "id": id_.hex(),
            "question": each.survey.question,
            "last_period": each.last,
            "public": each.public,
        }
        for id_, each in published.items()
    ]
    return JSONResponse({"surveys": rows})


@described(Described({200: {MSGPACK: SIGNED}}))
async def fetch_survey(request: Request) -> Response:
    """GET a survey's signed bytes."""
    return packed(survey_in_path(request).signed)


@described(
    Described(
        gives={200: {JSON: record(id=ID)}, 201: {JSON: record(id=ID)}},
        takes={MSGPACK: SIGNED},
        query={"public": {"type": "string", "enum": ["true", "false"]}},
        refuses=(ErrorCode.BAD_SIGNATURE, ErrorCode.CONFLICT, ErrorCode.INVALID, ErrorCode.UNDERSTATED_EPSILON),
        scope=TokenScope.SURVEY_WRITE,
    )
)
async def publish_survey(request: Request) -> Response:
    """PUT a survey that the authority signed: 201, or 200 where it was published before.

    ?public=true opens its results to all, ?public=false closes them again; they are closed at first.
    """
    require(request, TokenScope.SURVEY_WRITE)
    public = _public(request)
    signed = await read_body(request, MOST_BODY_BYTES)
    survey = await run_in_threadpool(_verified, signed, service_of(request))  # which may take a second
    if survey.id != id_in_path(request):
        raise TurnedDown(ErrorCode.MALFORMED, f"this survey's id is {survey.id.hex()}, not the one in the path")
    await run_in_threadpool(_check_new, survey, service_of(request))
    added = await run_in_threadpool(_publish, service_of(request), survey, signed, public)
    return JSONResponse({"id": survey.id.hex()}, 201 if added else 200)


def _public(request: Request) -> bool | None:
    asked = request.query_params.get("public")
    if asked not in (None, "true", "false"):
        raise TurnedDown(ErrorCode.INVALID, f"public is true or false, got {asked!r}")
    return None if asked is None else asked == "true"


def _verified(signed: bytes, service: Service) -> Survey:
    try:
        with reading_signed():
            survey = Survey.from_signed(signed, service.settings.authority)
        for track in survey.plan.tracks:
            counterpart_of(track.randomizer)
    except UnderstatedEpsilon as error:
        raise TurnedDown(ErrorCode.UNDERSTATED_EPSILON, f"{error}") from error
    except TypeError as error:
        raise TurnedDown(ErrorCode.INVALID, f"this server cannot count the survey: {error}") from error
    return survey


def _check_new(survey: Survey, service: Service) -> None:
    """What a survey has to be that is not published here already."""
    if survey.id in service.registry.surveys:
        return
    _check_succession(survey, service)
    _check_time(survey, service)


def _check_time(survey: Survey, service: Service) -> None:
    """A survey is published before it ends, can be kept for as long as it says, and can be answered."""
    calendar, now = survey.calendar, service.clock()
    ends = calendar.time(calendar.periods)
    if now >= ends:
        raise TurnedDown(
            ErrorCode.INVALID, f"the survey ended at {format_instant(UnixSeconds(ends))}: nobody can answer it"
        )
    if survey.grace > MOST_RETENTION_SECONDS:
        most = format_duration(MOST_RETENTION_SECONDS)
        raise TurnedDown(
            ErrorCode.INVALID,
            f"its grace is {survey.grace} s, and no server keeps keys and reports for more than {most}",
        )
    keys = [published.key for published in service.registry.keys.values()]
    if not any(key.begins < ends + survey.grace and key.expires > max(now, calendar.start) for key in keys):
        raise TurnedDown(
            ErrorCode.CONFLICT,
            "no sealing key of this server is good while the survey is answered: publish one first (`changeling keys`)",
        )


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


def _publish(service: Service, survey: Survey, signed: bytes, public: bool | None) -> bool:
    with service.store.writing() as connection:
        added = add_survey(connection, survey.id, signed, public)
    service.registry.refresh()
    return added
