"""Published surveys, as signed."""

from functools import lru_cache

from changeling_protocol import Survey
from sqlalchemy import Connection, insert, select

from .schema import surveys


def add_survey(connection: Connection, id_: bytes, signed: bytes) -> bool:
    """Keep a survey whose signature was checked; False where it is there already, and stays as it was."""
    if connection.execute(select(surveys.c.id).where(surveys.c.id == id_)).first():
        return False
    connection.execute(insert(surveys).values(id=id_, signed=signed))
    return True


def published_surveys(connection: Connection) -> dict[bytes, bytes]:
    """The signed bytes of every survey, by id."""
    return {row.id: row.signed for row in connection.execute(select(surveys).order_by(surveys.c.id))}


@lru_cache(maxsize=1024)
def survey_in(signed: bytes) -> Survey:
    """The survey in the signed bytes of `published_surveys`; their signature was checked before they were kept."""
    return Survey.unverified(signed)
