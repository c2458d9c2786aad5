"""What a release promises: the query, the calendar, the budget and whom it protects, before a mechanism is made.

Its terms are all that its guarantee and its estimates rest on, but the data. They are kept in its state: what has begun
goes on under the same terms or not at all. What it says of itself stands at the head of its output, and the command
prints it as well; nothing of it comes from the data, unless the calendar does, which is then said.
"""

import json
import re
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

from changeling_protocol import MOST_MUTATIONS, AtMost, Calendar, Constraint
from changeling_statistics import constraint_in_words

from .budget import Spending, number
from .dates import DatedCalendar, said_of_periods
from .errors import BadState
from .files import load, save
from .guard import Late, SeenRows
from .linear_query import LinearQuery
from .mechanism import Guarantee, Made, ReleaseMechanism, read_state, written_state

_EXACT = re.compile(r"-?0x[0-9a-f.]+p[+-]\d+")

About = tuple[tuple[str, str], ...]
"""What is said, by what it is about."""


REACTIONS = {
    True: "the guarantee holds where entries and people react to what is published",
    False: "the guarantee is proved for entries and people that do not react to what is published",
}
IDENTITY = "release"
NOISE = "noise"
"""What its noise was made with, to the last bit, stands under this at the head of an output."""
UNBOUNDED = AtMost(MOST_MUTATIONS)
"""The constraint of entries that may mutate as they like."""


WrittenDates: TypeAlias = tuple[str, str, tuple[int, ...]]
NO_DATES: WrittenDates = ("", "", ())


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
    """constraint: its fields, in JSON. budget: epsilon and delta, of an entry. unit: of privacy, its name and entries.

    freeze: what breaks the constraint is left out; else it stops the release. rho: of an entry, where the budget is in
    that; it is "" else, and the budget 0 and 0 with it.
    mechanism: what it was made with. format: of the output file. Both are None before they are known.
    dates: of a calendar in a time zone the words of its periods, the zone, and their ends, which are kept as they were
    when the release began; NO_DATES for any other. late: what is done with late rows.
    """

    query: QueryTerms
    calendar: Calendar
    constraint: str
    budget: tuple[Fraction, Fraction]
    unit: tuple[str, int]
    freeze: bool = False
    rho: str = ""
    mechanism: Made | None = None
    format: str | None = None
    dates: WrittenDates = NO_DATES
    late: Late = Late.STOP


@dataclass(frozen=True, slots=True)
class Statement:
    """The release and the most that it may cost: all that is known before its mechanism is made.

    text: the query in words. spending: its budget, and whom it protects. freeze: what breaks the constraint is left
    out; else it stops the release. late: what is done with late rows.
    """

    text: str
    query: LinearQuery
    calendar: Calendar
    constraint: Constraint
    spending: Spending
    freeze: bool = False
    late: Late = Late.STOP

    def terms(self) -> Terms:
        """The terms of a release whose mechanism and format are not yet known."""
        query, rho, unit = self.query, self.spending.rho, self.spending.unit
        counted = QueryTerms(self.text, query.names, query.moving, query.appearing, query.fixed, query.unit)
        budget, words = (self.spending.each, "") if rho is None else ((Fraction(0), Fraction(0)), str(rho))
        constraint, whose = json.dumps(self.constraint.as_fields(), sort_keys=True), (unit.name, unit.most)
        calendar, dates = self.calendar, NO_DATES
        if isinstance(calendar, DatedCalendar):
            dates = calendar.every, calendar.zone, calendar.ends
            calendar = Calendar(calendar.start, calendar.period, calendar.periods)
        return Terms(counted, calendar, constraint, budget, whose, self.freeze, words, dates=dates, late=self.late)


def about_release(
    statement: Statement,
    from_data: bool,
    guarantee: Guarantee,
    mechanism: ReleaseMechanism[object],
    error: float | None,
) -> About:
    """The lines at the head of an output. from_data: the calendar is the data's. guarantee: of the unit of privacy.

    error: the standard error of every column, None where it is not one for all of them, or unknown.
    """
    calendar, unbounded = statement.calendar, statement.constraint == UNBOUNDED
    constraint = "none, an entry may mutate as it likes" if unbounded else constraint_in_words(statement.constraint)
    beyond = "; mutations beyond it are left out (--freeze)" * statement.freeze
    stated, holds = "stated with each row", "hold the truth 95 times of 100 or more, by the noise alone"
    if mechanism.variance(1) is None:
        stated = holds = "not stated, as the errors of this mechanism depend on the data"
    return (
        ("query", statement.text),
        ("periods", said_of_periods(calendar) + ", read from the data and not protected" * from_data),
        ("unit of privacy", statement.spending.unit.said),
        ("guarantee", f"{spent(guarantee.epsilon, guarantee.delta, guarantee.rho)}, for the whole release"),
        ("neighbours", guarantee.neighbours),
        ("source", guarantee.source),
        ("reactions", REACTIONS[mechanism.covers_reactions]),
        ("constraint", constraint + beyond),
        ("late rows", statement.late.words),
        ("mechanism", mechanism.noise_in_words or described(mechanism.made_with())),
        ("standard error", stated if error is None else f"{error:.6g}, root mean square over the periods"),
        ("low, high", holds),
        (NOISE, json.dumps({"made": mechanism.made_with(), "periods": calendar.periods})),
    )


def spent(epsilon: Fraction, delta: Fraction, rho: Fraction | None = None) -> str:
    """A budget in words. rho: where it is in that, with the (epsilon, delta) that follows."""
    if rho is not None and not delta:
        return f"epsilon {number(epsilon)}, which is worth rho {_number(rho)} (zCDP)"
    if rho is not None:
        return f"rho {_number(rho)} (zCDP), so epsilon {number(epsilon)} at delta {number(delta)}"
    return f"epsilon {_number(epsilon)}" + (f", delta {_number(delta)}" if delta else "")


def described(made: Made) -> str:
    """Describes what a mechanism was made with: its kind, shape, law and scale of its noise."""
    parts = []
    for key, value in made.items():
        if isinstance(value, list):
            parts.append(f"{key} {' '.join(_plain(each) for each in value)}")
        elif key != "kind":
            parts.append(f"{key} {_plain(value)}")
    return "; ".join([str(made.get("kind", "")), ", ".join(parts)])


def _plain(value: int | str) -> str:
    """Numbers that are kept to the last bit, in decimals; anything else as it is."""
    words = str(value).split(" ")
    return " ".join(f"{float.fromhex(word):.6g}" if _EXACT.fullmatch(word) else word for word in words)


def _number(exact: Fraction) -> str:
    short = f"{float(exact):.10g}"
    return short if Fraction(short) == exact else str(exact)


@dataclass(frozen=True, slots=True)
class SavedRelease:
    """A release as it is kept on disk.

    calendar_from_data: an end of the calendar was once read from the data. period: the last one that was saved.
    at: how many bytes of the output are published. published: SHA-256 of those. pending: the rows that follow them.
    digest: SHA-256 of all mutations until the period. state: of the mechanism, as it saves it. charge: the id that it
    is charged by to a ledger. changelog: the id in that ledger, "" where there is none. tag: of the flush that it was
    saved with, random. before: that of the flush before it, "" for none. seen: of the rows until the period, where
    late ones do not stop the release.
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
    seen: SeenRows = field(default_factory=SeenRows)

    @property
    def calendar(self) -> Calendar:
        """The calendar that it has begun with."""
        calendar, (every, zone, ends) = self.terms.calendar, self.terms.dates
        return DatedCalendar(calendar, every, zone, ends) if every else calendar

    def refuse_others(self, terms: Terms, path: Path) -> None:
        """BadState, which lists the terms that differ from those given, as far as these are known. path: of the
        state."""
        known = [name for name in (each.name for each in fields(terms)) if getattr(terms, name) is not None]
        if other := [name for name in known if getattr(terms, name) != getattr(self.terms, name)]:
            raise BadState(
                f"{path} belongs to a release with another {', '.join(other)}; its nodes are never drawn again: "
                "choose another output"
            )


def begun(path: Path) -> SavedRelease | None:
    """The release that has begun, whose state is kept there; None where none is.

    Raises BadState for one that is not whole, or of another version.
    """
    content = load(path)
    if content is None:
        return None
    try:
        return read_state(content, IDENTITY, SavedRelease)
    except BadState as error:
        raise BadState(f"{path} was written by another version of changeling: go on with that one") from error


def keep(path: Path, saved: SavedRelease) -> None:
    """Save the release's state, on the disk when this returns."""
    save(path, written_state(IDENTITY, saved))


def state_beside(output: Path) -> Path:
    """Where the state of a release with this output is kept: OUTPUT.state."""
    return output.with_name(output.name + ".state")
