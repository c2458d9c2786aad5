"""Published surveys, as signed."""

from functools import lru_cache

from changeling_protocol import Survey
from changeling_protocol.quantities import SurveyId
from sqlalchemy import Connection, select

from .inserting import inserted
from .schema import surveys


def add_survey(connection: Connection, id_: SurveyId, signed: bytes) -> bool:
    """Keep a survey whose signature was checked; False where it is there already, and stays as it was."""
    return inserted(connection, surveys, id=id_, signed=signed)


def published_surveys(connection: Connection) -> dict[SurveyId, bytes]:
    """The signed bytes of every survey, by id."""
    return {row.id: row.signed for row in connection.execute(select(surveys).order_by(surveys.c.id))}


@lru_cache(maxsize=1024)
def survey_in(signed: bytes) -> Survey:
    """The survey in the signed bytes of `published_surveys`; their signature was checked before they were kept."""
    return Survey.unverified(signed)
