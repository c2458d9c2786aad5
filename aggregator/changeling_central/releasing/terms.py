"""A release's terms: all that its guarantee and its estimates rest on, but the data.

They are kept in its state; what has begun goes on under the same terms or not at all.
"""

from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path

from changeling_protocol import Calendar, Constraint, encode

from ..changes.linear_query import LinearQuery
from ..errors import BadState
from ..saved import load, save
from ..states import read_state, written_state
from .drawn import Mark
from .method import Made
from .unit import Unit

IDENTITY = "release"


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """asked: the query in words. The others: how far an entry can shift it, as `LinearQuery` says."""

    asked: str
    names: tuple[str, ...]
    moving: tuple[int, ...]
    appearing: tuple[int, ...]
    fixed: bool
    unit: Fraction


@dataclass(frozen=True, slots=True)
class Terms:
    """constraint: its canonical bytes. budget: epsilon and delta, of an entry. unit: of privacy, its name and entries.

    freeze: what breaks the constraint is left out; else it stops the release. rho: of an entry, where the budget is in
    that; it is "" else, and the budget 0 and 0 with it.
    mechanism: what it was made with. format: of the output file. Both are None before they are known.
    """

    query: QueryTerms
    calendar: Calendar
    constraint: bytes
    budget: tuple[Fraction, Fraction]
    unit: tuple[str, int]
    freeze: bool = False
    rho: str = ""
    mechanism: Made | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True)
class SavedRelease:
    """What a release keeps on disk.

    calendar_from_data: an end of the calendar was once read from the data. period: the last one that was saved.
    at: how many bytes of the output are published. published: SHA-256 of those. pending: the rows that follow them.
    digest: SHA-256 of all mutations until the period. state: of the mechanism, as it saves it. charge: the id that it
    is charged by to a ledger. changelog: the id in that ledger, "" where there is none. tag: of the flush that it was
    saved with, random. before: that of the flush before it, "" for none.
    """

    terms: Terms
    calendar_from_data: bool
    period: int
    at: int
    published: bytes
    pending: bytes
    digest: bytes
    state: bytes
    charge: str
    changelog: str
    tag: str
    before: str

    @property
    def mark(self) -> Mark:
        """What it knows of its flush."""
        return Mark(self.period, self.tag, self.before)


@dataclass(frozen=True, slots=True)
class Begun:
    """A release that has begun, by the state that is kept at `path`."""

    path: Path
    saved: SavedRelease

    @property
    def calendar(self) -> Calendar:
        """The calendar that it has begun with."""
        return self.saved.terms.calendar

    def refuse_others(self, terms: Terms) -> None:
        """BadState, which lists the terms that differ from those given, as far as these are known."""
        ours = self.saved.terms
        known = [name for name in (field.name for field in fields(terms)) if getattr(terms, name) is not None]
        if other := [name for name in known if getattr(terms, name) != getattr(ours, name)]:
            raise BadState(
                f"{self.path} belongs to a release with another {', '.join(other)}; its nodes are never drawn again: "
                "choose another output"
            )


def terms_of(
    asked: str,
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction,
    unit: Unit,
    freeze: bool = False,
    rho: Fraction | None = None,
) -> Terms:
    """The terms of a release whose mechanism and format are not yet known.

    asked: the query in words. epsilon, delta: of an entry. freeze: what breaks the constraint is left out. rho: of an
    entry, in place of epsilon and delta.
    """
    counted = QueryTerms(asked, query.names, query.moving, query.appearing, query.fixed, query.unit)
    budget = (epsilon, delta) if rho is None else (Fraction(0), Fraction(0))
    words = "" if rho is None else str(rho)
    return Terms(counted, calendar, encode(constraint.as_fields()), budget, (unit.name, unit.most), freeze, words)


def begun(path: Path) -> Begun | None:
    """The release whose state is kept there, None where none is.

    Raises BadState for one that is not whole, or of another version.
    """
    content = load(path)
    if content is None:
        return None
    try:
        return Begun(path, read_state(content, IDENTITY, SavedRelease))
    except BadState as error:
        raise BadState(f"{path} was written by another version of changeling: go on with that one") from error


def keep(path: Path, saved: SavedRelease) -> None:
    """Save the release's state, on the disk when this returns."""
    save(path, written_state(IDENTITY, saved))
