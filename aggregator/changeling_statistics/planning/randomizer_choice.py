"""The best randomizer for a report: of all that are offered, the one with the least variance at the same cost."""

from decimal import Decimal

from changeling_protocol import MutationSpace, StateSpace

from ..randomizers import Offer, change_offers, state_offers
from .losses import Span, odds_within, reports_that_tell
from .wish import Wish


def best_state(answers: int, null: bool, budget: Decimal, reports: int) -> Offer | None:
    """The best randomizer for reports of a state; None if the budget is so small that they would say nothing.

    answers: z.
    null: whether NULL is one of the states.
    budget: for all reports together, in nats.
    reports: how many an entry sends.
    """
    odds = odds_within(budget, Decimal(reports))
    if odds is None:
        return None
    return min(state_offers(StateSpace(answers, null), odds), key=lambda offer: offer.variances.came, default=None)


def best_change(wish: Wish, span: Span, budget: Decimal, moved: float) -> Offer | None:
    """The best randomizer for reports of changes; None if the budget is so small that they would say nothing.

    span: the nodes that are reported on.
    budget: for all of them together, in nats.
    moved: the share of the entries that change their answer over a node.
    """
    offers: list[Offer] = []
    told_moves = wish.closed and span.first > 0
    for kind in change_offers():
        odds = odds_within(budget, reports_that_tell(wish, span, kind.unit))
        if odds is not None:
            offers += kind.offers(MutationSpace(wish.answers, null=not told_moves), odds, moved, wish.closed)
    closed = wish.closed
    return min(offers, key=lambda offer: (offer.conserved if closed else offer.variances).mixed(moved), default=None)
