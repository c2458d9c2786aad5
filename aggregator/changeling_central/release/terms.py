"""A release's terms: all that its guarantee and its estimates rest on, but the data.

They are kept in its state; what has begun goes on under the same terms or not at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from changeling_protocol import Calendar, Constraint

from ..changes.linear_query import LinearQuery
from ..errors import BadState
from ..saved import load

Terms = dict[str, Any]
"""By name: query, calendar, constraint, budget; of a release also mechanism and format."""

FIELDS = {"terms", "calendar_from_data", "period", "at", "published", "pending", "digest", "state"}


def terms_of(
    asked: str, query: LinearQuery, calendar: Calendar, constraint: Constraint, epsilon: Fraction, delta: Fraction
) -> Terms:
    """Plain fields for canonical MessagePack. asked: the query in words."""
    return {
        "query": {
            "asked": asked,
            "names": list(query.names),
            "moving": list(query.moving),
            "appearing": list(query.appearing),
            "fixed": query.fixed,
            "unit": str(query.unit),
        },
        "calendar": [calendar.start, calendar.period, calendar.periods],
        "constraint": constraint.as_fields(),
        "budget": [str(epsilon), str(delta)],
    }


@dataclass(frozen=True, slots=True)
class Begun:
    """A release that has begun, by its state. calendar_from_data: its calendar was once read from the data."""

    path: Path
    fields: dict[str, Any]

    @property
    def terms(self) -> Terms:
        terms: Terms = self.fields["terms"]
        return terms

    @property
    def calendar(self) -> Calendar:
        return Calendar(*self.terms["calendar"])

    @property
    def calendar_from_data(self) -> bool:
        return bool(self.fields["calendar_from_data"])

    def refuse_others(self, terms: Mapping[str, Any]) -> None:
        """BadState, which lists the terms that differ from those given."""
        other = [name for name, value in terms.items() if self.terms.get(name) != value]
        if other:
            raise BadState(
                f"{self.path} belongs to a release with another {', '.join(other)}; its nodes are never drawn again: "
                "choose another output"
            )


def begun(path: Path) -> Begun | None:
    """The release whose state is kept there. Raises BadState for one that is not whole, or of another version."""
    fields = load(path)
    if fields is None:
        return None
    if set(fields) != FIELDS:
        raise BadState(f"{path} was written by another version of changeling: go on with that one")
    return Begun(path, fields)
