"""How large the odds of one report may be, so that a track costs no more than its part of the budget.

A track costs the loss of one report times the number of reports that tell two changelogs apart. The protocol computes
that cost from the odds; here the odds follow from the cost.
"""

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from functools import lru_cache

from changeling_protocol import Losses, Odds, Randomizer, Track, node_cost

from .wish import LEAST_EPSILON, Wish

MOST_LOSS = Decimal(27)
"""No report loses more by itself, though odds could be larger: it would hardly be more accurate."""
_SAFE = 1 - Decimal("1e-40")
"""Losses are rounded up in the 45th digit. Budgets are cut by this, so that sums of losses stay within them."""


@dataclass(frozen=True, slots=True)
class Span:
    """The nodes of a track: those of one width, in periods, that follow on one another within (first, last].

    reported: on how many of them an entry reports, drawn at random; None for all.
    """

    width: int
    first: int
    last: int
    reported: int | None = None

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return (self.last - self.first) // self.width

    @property
    def reports(self) -> int:
        """N, on how many nodes an entry reports."""
        return self.count if self.reported is None else self.reported

    def track(self, randomizer: Randomizer) -> Track:
        """The track that reports on these nodes through a randomizer."""
        return Track(self.width, randomizer, self.first, self.last, self.reported)


@lru_cache(maxsize=4096)
def odds_within(budget: Decimal, reports: Decimal) -> Odds | None:
    """The largest odds with reports · ln(odds) <= budget; None if the budget is so small that they would say nothing.

    budget: in nats.
    reports: how many reports tell two changelogs of an entry apart; 0 if none does, and reports cost nothing.
    """
    with localcontext(prec=50, rounding=ROUND_FLOOR):
        loss = min(budget * _SAFE / reports, MOST_LOSS) if reports else MOST_LOSS
    return Odds.within(loss) if loss >= LEAST_EPSILON else None


def reports_that_tell(wish: Wish, span: Span, unit: Losses) -> Decimal:
    """How many reports on a track of changes tell two changelogs apart: what the track costs in losses of one report.

    span: the nodes of the track. unit: the losses of a report in units of the loss of one.
    """
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
