"""The best randomizer for a report: of all that are offered, the one with the least variance at the same charge."""

from decimal import Decimal

from changeling_protocol import StateSpace

from ..randomizers import Offer, change_offers, state_offers
from .losses import Span, odds_within, reports_that_tell
from .wish import Wish


def best_state(answers: int, null: bool, budget: Decimal, reports: int) -> Offer | None:
    """The best report of a state, for an entry that sends so many within the budget; None where they say nothing.

    null: whether no answer is a state.
    """
    odds = odds_within(budget, Decimal(reports))
    if odds is None:
        return None
    return min(state_offers(StateSpace(answers, null), odds), key=lambda offer: offer.variances.came, default=None)


def best_change(wish: Wish, span: Span, budget: Decimal, moved: float) -> Offer | None:
    """The best report of a change, for the nodes of a span within the budget; None where it would say nothing.

    moved: the share of the entries that change their answer over a node.
    """
    offers: list[Offer] = []
    for kind in change_offers():
        odds = odds_within(budget, reports_that_tell(wish, span, kind.unit))
        if odds is not None:
            offers += kind.offers(wish.answers, odds, moved, wish.closed)
    closed = wish.closed
    return min(offers, key=lambda offer: (offer.conserved if closed else offer.variances).mixed(moved), default=None)
