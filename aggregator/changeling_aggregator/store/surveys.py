"""Published surveys, as signed."""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

from changeling_protocol import MalformedBytes, Survey, SurveyId
from sqlalchemy import Connection, select, update

from .inserting import inserted
from .schema import surveys


def add_survey(connection: Connection, id_: SurveyId, signed: bytes, public: bool | None = None) -> bool:
    """Keep a survey whose signature was checked; False where it is there already, and stays as it was.

    public: whether its results are open to all. That is the operator's to change; None leaves it, and a new one closed.
    """
    if inserted(connection, surveys, id=id_, signed=signed, public=bool(public)):
        return True
    if public is not None:
        connection.execute(update(surveys).where(surveys.c.id == id_).values(public=public))
    return False


def public_surveys(connection: Connection) -> set[SurveyId]:
    """The surveys whose results are open to all."""
    return set(connection.scalars(select(surveys.c.id).where(surveys.c.public)))


def published_surveys(connection: Connection) -> dict[SurveyId, bytes]:
    """The signed bytes of every survey, by id."""
    return {row.id: row.signed for row in connection.execute(select(surveys).order_by(surveys.c.id))}


def readable(signed: Mapping[SurveyId, bytes]) -> dict[SurveyId, Survey]:
    """Of what `published_surveys` gave, the surveys that this version can read: one that it cannot harms no other."""
    surveys = {}
    for id_, of_survey in signed.items():
        with suppress(MalformedBytes):
            surveys[id_] = survey_in(of_survey)
    return surveys


@lru_cache(maxsize=1024)
def survey_in(signed: bytes) -> Survey:
    """The survey in the signed bytes of `published_surveys`; their signature was checked before they were kept.

    Raises MalformedBytes for one that this version cannot read.
    """
    return Survey.unverified(signed)
