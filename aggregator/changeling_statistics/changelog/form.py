"""Which columns of a table of rows hold a changelog. Whatever else a table holds is left alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadChangelog

ANSWER = "answer"
FORMS = "entry,time,answer or entry,time,old,new"


@dataclass(frozen=True, slots=True)
class Columns:
    """Whose answers a changelog is made of.

    answer: the column of the answers. Of any but `answer`, a row may leave the value as it was, as it then tells of
    another column; such rows are no mutations. owner: a column that says whose an entry is, None if nobody asks.
    """

    answer: str = ANSWER
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """The places of the columns in a row. old: None where rows do not say it. owner: None where nobody asks."""

    entry: int
    time: int
    answer: int
    old: int | None = None
    owner: int | None = None

    @property
    def places(self) -> list[int]:
        """All of them."""
        return [place for place in (self.entry, self.time, self.answer, self.old, self.owner) if place is not None]


def form_of(names: Sequence[str], columns: Columns) -> Form:
    """The places of the columns that are asked for. names: the header of the table.

    Raises BadChangelog, which names the header's columns only if it is one: else they may be answers.
    """
    answer, old = columns.answer, None
    if answer == ANSWER and answer not in names and {"old", "new"} <= set(names):
        answer, old = "new", "old"
    wanted = ["entry", "time", answer, *([] if old is None else [old])]
    wanted += [] if columns.owner is None or columns.owner in wanted else [columns.owner]
    if any(names.count(name) != 1 for name in wanted):
        raise BadChangelog(_wrong(names, columns))
    place = names.index
    owner = None if columns.owner is None else place(columns.owner)
    return Form(place("entry"), place("time"), place(answer), None if old is None else place(old), owner)


def _wrong(names: Sequence[str], columns: Columns) -> str:
    expected = f"the columns must be {FORMS}"
    if columns.answer != ANSWER:
        expected = f"the columns must be entry,time,{columns.answer}"
    if not {"entry", "time"} & {name.strip() for name in names}:
        return f"{expected}; there is no such header, separated by commas"
    if columns.owner is not None and columns.owner not in names:
        expected = f"there must be a column {columns.owner!a}, and {expected}"
    return f"{expected}, got {','.join(names)!a}"
