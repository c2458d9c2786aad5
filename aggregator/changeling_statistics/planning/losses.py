"""How large the odds of one report may be, so that a track costs no more than its part of the budget.

The inverse of cost.py: cost(κ, N) is a number of reports that tell, times the loss of one.
"""

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from functools import lru_cache

from changeling_protocol import Odds, Randomizer, Track
from changeling_protocol.cost import node_cost
from changeling_protocol.randomizers import Losses

from .wish import LEAST_EPSILON, Wish

MOST_LOSS = Decimal(27)
"""Odds.within reaches so far; more would hardly be more accurate."""
_SAFE = 1 - Decimal("1e-40")
"""Losses are rounded up at the 45th digit; this keeps sums of them below the budget."""


@dataclass(frozen=True, slots=True)
class Span:
    """Nodes of one width in (first, last], of which an entry reports `reported`, or all."""

    width: int
    first: int
    last: int
    reported: int | None = None

    @property
    def count(self) -> int:
        return (self.last - self.first) // self.width

    @property
    def reports(self) -> int:
        return self.count if self.reported is None else self.reported

    def track(self, randomizer: Randomizer) -> Track:
        return Track(self.width, randomizer, self.first, self.last, self.reported)


@lru_cache(maxsize=4096)
def odds_within(budget: Decimal, reports: Decimal) -> Odds | None:
    """The largest odds with reports · ln(odds) <= budget; None where they would say nothing.

    reports: 0 where no report can tell two changelogs of an entry apart, so that it costs nothing.
    """
    with localcontext(prec=50, rounding=ROUND_FLOOR):
        each = min(budget * _SAFE / reports, MOST_LOSS) if reports else MOST_LOSS
    return Odds.within(each) if each >= LEAST_EPSILON else None


def reports_that_tell(wish: Wish, span: Span, unit: Losses) -> Decimal:
    """cost(κ, N) of a change track over the span, in units of one report's loss; as track_cost counts."""
    bounds = [wish.calendar.time(span.first + i * span.width) for i in range(span.count + 1)]
    most = wish.constraint.most_nodes(bounds)
    if not wish.closed:
        return node_cost(unit, most, span.reports)
    later = wish.most_later()
    most = most if later is None else min(later, most)
    if span.first > 0:
        return node_cost(unit, most, span.reports)
    with_first = unit.insertions + node_cost(unit, most, span.reports - 1)
    return with_first if span.reported is None else max(with_first, node_cost(unit, most, span.reports))
