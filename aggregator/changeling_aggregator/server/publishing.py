"""Publishing over HTTP: surveys, their early ends and sealing keys, each signed by the authority.

What is published stays as it is, so publishing it again changes nothing. Sealing keys are made with
`changeling keys new` on the store itself, never over the network.
"""

from collections.abc import Callable

from changeling_protocol import (
    LAST_INSTANT,
    EarlyEnd,
    SealingKey,
    Survey,
    SurveyId,
    UnderstatedEpsilon,
    UnixSeconds,
    format_duration,
    format_instant,
    key_id,
    signed_key,
)
from changeling_protocol.wire import JSON, MOST_BODY_BYTES, MSGPACK, ErrorCode, encode_key_list
from changeling_statistics import check_successor, counterpart_of
from msgspec import UNSET, UnsetType
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ..errors import TurnedDown
from ..fold import MOST_RETENTION_SECONDS
from ..store import StoredSurvey, TokenScope, Transaction
from .http import OPEN_TO_ALL, cache_control_of_keys, json, packed, tagged
from .openapi import Binary, Body, Described, HexId, Instant, Period, Signed, Truth
from .requests import asked_by, id_in_path, read_body, reading_signed, require, service_of, survey_in_path
from .service import Service

MOST_SIGNED_BYTES = 4096
"""The most of an early end, or of a key."""
SURVEY_KEPT = "public, max-age=86400"
SURVEY_LIST_KEPT = "public, max-age=10"


class SurveyRow(Body):
    """A published survey.

    questions: their names, in order. edition: the name of the newest, where its results are open and there is one.
    """

    id: HexId
    question: str
    last_period: Period
    public: bool
    questions: list[str]
    edition: HexId | None


class SurveyList(Body):
    """All published surveys."""

    surveys: list[SurveyRow]


class SurveyEnded(Body):
    """A survey that ends early."""

    last_period: Period


class Published(Body):
    """The id of a survey or of a key that is published."""

    id: str


class KeyPublished(Published):
    """The id of a key that is published. without_key: spans beside it, from and until, in which no key is valid."""

    without_key: list[tuple[Instant, Instant]]


class KeyList(Body):
    """The sealing key that is valid now, signed, if there is one."""

    keys: list[Binary]


class Publishing(Body):
    """The parameters of publishing a survey."""

    public: Truth | UnsetType = UNSET


@Described({200: {JSON: SurveyList}})
async def list_surveys(request: Request) -> Response:
    """GET the id, question and last period of every published survey, and whether its results are open."""
    service = service_of(request)
    listed = SurveyList(
        surveys=[
            SurveyRow(
                id=id_.hex(),
                question=asked_by(each.survey),
                last_period=each.last,
                public=each.public,
                questions=[question.name for question in each.survey.questions],
                edition=newest.id.hex() if each.public and (newest := service.editions.newest(id_)) else None,
            )
            for id_, each in service.registry.surveys.items()
        ]
    )
    return json(listed, headers={**OPEN_TO_ALL, "cache-control": SURVEY_LIST_KEPT})


@Described({200: {MSGPACK: Signed}, 304: {}})
async def fetch_survey(request: Request) -> Response:
    """GET a survey's signed bytes, which never change: its id is their hash."""
    signed = survey_in_path(request).signed
    return tagged(request, signed, MSGPACK, {**OPEN_TO_ALL, "cache-control": SURVEY_KEPT})


@Described(
    gives={200: {JSON: Published}, 201: {JSON: Published}},
    takes={MSGPACK: Signed},
    query=Publishing,
    refuses=(ErrorCode.BAD_SIGNATURE, ErrorCode.CONFLICT, ErrorCode.INVALID, ErrorCode.UNDERSTATED_EPSILON),
    scope=TokenScope.SURVEY_WRITE,
)
async def publish_survey(request: Request) -> Response:
    """PUT a survey that the authority signed: 201, or 200 where it was published before.

    ?public=true opens its results to all, ?public=false closes them again; they are closed at first.
    """
    require(request, TokenScope.SURVEY_WRITE)
    service = service_of(request)
    asked = request.query_params.get("public")
    if asked not in (None, "true", "false"):
        raise TurnedDown(ErrorCode.INVALID, f"public is true or false, got {asked!r}")
    signed = await read_body(request, MOST_BODY_BYTES)
    survey = await run_in_threadpool(_verified, signed, service)  # which may take a second
    if survey.id != id_in_path(request):
        raise TurnedDown(ErrorCode.MALFORMED, f"this survey's id is {survey.id.hex()}, not the one in the path")
    if survey.id not in service.registry.surveys:
        await run_in_threadpool(_check_new, survey, service)
    public = None if asked is None else asked == "true"
    added = await _published(service, lambda writing: writing.add_survey(survey.id, signed, public))
    return json(Published(id=survey.id.hex()), 201 if added else 200)


async def _published(service: Service, publish: Callable[[Transaction], bool]) -> bool:
    """Publish something in a transaction of its own; True where it was not there before, 409 where another was."""

    def write() -> bool:
        with service.store.transaction() as writing:
            added = publish(writing)
        service.registry.refresh()
        return added

    try:
        return await run_in_threadpool(write)
    except ValueError as error:
        raise TurnedDown(ErrorCode.CONFLICT, f"{error}") from error


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
    """Turn down what follows no survey that is here, has ended, cannot be kept for long enough, or has no key."""
    if survey.follows:
        before = service.registry.surveys.get(SurveyId(survey.follows))
        if before is None:
            sentence = f"it follows survey {survey.follows.hex()}, which is not published here: publish that"
            raise TurnedDown(ErrorCode.INVALID, sentence)
        try:
            check_successor(before.survey, survey)
        except ValueError as error:
            raise TurnedDown(ErrorCode.INVALID, f"{error}") from error
    calendar, now = survey.calendar, service.clock()
    ends = calendar.time(calendar.periods)
    if now >= ends:
        sentence = f"the survey ended at {format_instant(UnixSeconds(ends))}: nobody can answer it"
        raise TurnedDown(ErrorCode.INVALID, sentence)
    if survey.grace > MOST_RETENTION_SECONDS:
        most = format_duration(MOST_RETENTION_SECONDS)
        sentence = f"its grace is {survey.grace} s, and no server keeps keys and reports for more than {most}"
        raise TurnedDown(ErrorCode.INVALID, sentence)
    keys = [published.key for published in service.registry.keys.values()]
    if not any(key.begins < ends + survey.grace and key.expires > max(now, calendar.start) for key in keys):
        raise TurnedDown(
            ErrorCode.CONFLICT,
            "no sealing key of this server is good while the survey is answered: publish one first (`changeling keys`)",
        )


@Described(
    gives={200: {JSON: SurveyEnded}, 201: {JSON: SurveyEnded}},
    takes={MSGPACK: Signed},
    refuses=(ErrorCode.BAD_SIGNATURE, ErrorCode.INVALID, ErrorCode.CONFLICT),
    scope=TokenScope.SURVEY_WRITE,
)
async def end_survey(request: Request) -> Response:
    """PUT an end that the authority signed: 201, or 200 where the survey was ended so before, 409 if otherwise."""
    require(request, TokenScope.SURVEY_WRITE)
    service, published = service_of(request), survey_in_path(request)
    signed = await read_body(request, MOST_SIGNED_BYTES)
    with reading_signed():
        end = EarlyEnd.from_signed(signed, service.settings.authority)
    if end.survey != published.survey.id:
        raise TurnedDown(ErrorCode.MALFORMED, f"this ends survey {end.survey.hex()}, not the one in the path")
    _check_end(end, published, service)
    added = await _published(service, lambda writing: writing.add_early_end(end, signed))
    return json(SurveyEnded(last_period=end.last), 201 if added else 200)


@Described({200: {MSGPACK: Signed}})
async def fetch_end(request: Request) -> Response:
    """GET a survey's early end as it was signed, for devices; 404 where it has none."""
    signed = survey_in_path(request).signed_end
    if signed is None:
        raise TurnedDown(ErrorCode.NOT_FOUND, "the survey was not ended early")
    return packed(signed)


def _check_end(end: EarlyEnd, published: StoredSurvey, service: Service) -> None:
    """Turn down an end before the last period that has closed: what is published already stays."""
    periods, closed = published.survey.calendar.periods, published.closed(service.clock())
    if end.last >= periods:
        raise TurnedDown(ErrorCode.INVALID, f"the survey's calendar ends with period {periods}: end it before")
    if published.last == periods and end.last < closed:
        raise TurnedDown(ErrorCode.INVALID, f"period {closed} has closed: end the survey after it, or later")


@Described({200: {MSGPACK: KeyList}, 304: {}})
async def list_keys(request: Request) -> Response:
    """GET the key that is valid by the server's clock, as the authority signed it: a list of one, or none."""
    service = service_of(request)
    now = service.clock()
    offered = service.registry.offered(now)
    keys = encode_key_list([] if offered is None else [offered.signed])
    kept = cache_control_of_keys(None if offered is None else offered.key, now)
    return tagged(request, keys, MSGPACK, {"cache-control": kept})


@Described(
    gives={200: {JSON: KeyPublished}, 201: {JSON: KeyPublished}},
    takes={MSGPACK: Signed},
    refuses=(ErrorCode.BAD_SIGNATURE, ErrorCode.CONFLICT),
    scope=TokenScope.SURVEY_WRITE,
)
async def put_key(request: Request) -> Response:
    """PUT a signed key that this server made: 201, or 200 where it was published before.

    It is a sealing key, or one that editions are signed with.
    """
    require(request, TokenScope.SURVEY_WRITE)
    service = service_of(request)
    signed = await read_body(request, MOST_SIGNED_BYTES)
    with reading_signed():
        key = signed_key(signed, service.settings.authority)
    now = service.clock()
    if key.expires <= now and not _is_known(signed, service):
        sentence = (
            f"the key expired at {_shown(key.expires)}, and would be destroyed at once: sign its request again, with a "
            "later --expires"
        )
        raise TurnedDown(ErrorCode.CONFLICT, sentence)
    added = await _published(service, lambda writing: writing.publish_key(key, signed))
    gaps = _gaps_beside(key, service, now) if isinstance(key, SealingKey) else []
    return json(KeyPublished(id=key_id(key.public).hex(), without_key=gaps), 201 if added else 200)


def _is_known(signed: bytes, service: Service) -> bool:
    return any(each.signed == signed for each in service.registry.keys.values())


def _gaps_beside(key: SealingKey, service: Service, now: UnixSeconds) -> list[tuple[str, str]]:
    """The spans just before and just after a key, from now on, in which no sealing key is valid, each from and until.

    After the last key there is no such span: nothing ends it yet.
    """
    others = [each.key for each in service.registry.keys.values() if each.key != key]
    before = max((each.expires for each in others if each.expires <= key.begins), default=0)
    after = min((each.begins for each in others if each.begins >= key.expires), default=key.expires)
    spans = (max(before, int(now)), key.begins), (max(key.expires, int(now)), after)
    return [(_shown(begins), _shown(ends)) for begins, ends in spans if begins < ends]


def _shown(time: int) -> str:
    return format_instant(UnixSeconds(min(time, LAST_INSTANT)))
