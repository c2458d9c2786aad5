"""Early ends of surveys, as signed. A survey has one at most, and it stays."""

from changeling_protocol import EarlyEnd, SurveyId
from sqlalchemy import Connection, select

from .inserting import inserted
from .schema import early_ends


def add_end(connection: Connection, end: EarlyEnd, signed: bytes) -> bool:
    """Keep an end whose signature was checked; False where the same one is there already.

    Raises ValueError where the survey ends after another period.
    """
    if inserted(connection, early_ends, survey=end.survey, last=end.last, signed=signed):
        return True
    kept = published_ends(connection)[end.survey]
    if kept != end:
        raise ValueError(f"the survey was ended after period {kept.last} before: an end stays as it is")
    return False


def published_ends(connection: Connection) -> dict[SurveyId, EarlyEnd]:
    """Every early end, by the survey's id."""
    return {row.survey: EarlyEnd(row.survey, row.last) for row in connection.execute(select(early_ends))}
