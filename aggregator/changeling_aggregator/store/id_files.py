"""Which files hold ids of closings that are not sealed, where a fold beyond one machine counted them.

An id that was counted stands in one of these files or in a run of the database; the transaction that adds to tallies
says which. Who folds in the database takes the files' ids into runs first, and the other way round.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from changeling_protocol import SurveyId
from sqlalchemy import Connection, delete, insert, select

from ..errors import Overtaken
from .schema import id_files

_NAMED_AT_ONCE = 500


class IdFile(NamedTuple):
    """A file with ids of a survey. place, name: where it lies. size: how many ids are in it."""

    place: str
    name: str
    survey: SurveyId
    size: int


def registered_files(connection: Connection) -> list[IdFile]:
    """All files with ids that were counted."""
    query = select(id_files.c.place, id_files.c.name, id_files.c.survey, id_files.c.size).order_by(id_files.c.name)
    return [IdFile(row.place, row.name, row.survey, row.size) for row in connection.execute(query)]


def replace_files(connection: Connection, before: Sequence[IdFile], after: Iterable[IdFile]) -> None:
    """Put files in the place of others. Raises Overtaken where one of these is not registered any more."""
    gone = 0
    for at in range(0, len(before), _NAMED_AT_ONCE):
        names = [each.name for each in before[at : at + _NAMED_AT_ONCE]]
        gone += connection.execute(delete(id_files).where(id_files.c.name.in_(names))).rowcount
    if gone != len(before):
        raise Overtaken("another folder has put other files of ids in the place of these")
    if rows := [each._asdict() for each in after]:
        connection.execute(insert(id_files), rows)
