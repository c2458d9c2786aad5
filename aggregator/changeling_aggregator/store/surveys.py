"""Published surveys, as signed."""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

from changeling_protocol import MalformedBytes, Survey
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
