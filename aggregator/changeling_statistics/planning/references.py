"""The plans that others would make, each with its best parameters, to compare the optimal plan with."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TypeAlias

from changeling_protocol import Group, KaryResponse, MutationSpace, ReleasePlan

from ..randomizers.kary import UNIT_LOSSES
from .losses import Span, odds_within, reports_that_tell
from .option import Option
from .randomizer_choice import best_state
from .wish import Wish

BRANCHINGS = (2, 3, 4, 8)
MOST_PANEL_REPORTS = 16
"""The most reports of a panel."""
DetailedPlan: TypeAlias = tuple[str, ReleasePlan | None]
"""A plan's parameters in a few words, and the plan; None if the budget is too small for it."""


def paper_hierarchy(wish: Wish) -> Option | None:
    """The paper's HDCR with the best c and h >= 2; None if the budget is too small, or the horizon too short."""
    layers = ((c, h, _paper(wish, c, h)) for c, h in _shapes(wish))
    return _best(wish, "paper HDCR", ((f"c={c} h={h}", plan) for c, h, plan in layers))


def flat(wish: Wish) -> Option | None:
    """The paper's DCR: k-RR on the change over every period; None if the budget is too small."""
    return _best(wish, "flat DCR", [("", _paper(wish, 1, 1))])


def sampled_hierarchy(wish: Wish) -> Option | None:
    """k-RR on one layer of a hierarchy, which each entry draws at random, with the best c and h >= 2; None as above."""
    return _best(wish, "sampled hierarchy", ((f"c={c} h={h}", _sampled(wish, c, h)) for c, h in _shapes(wish)))


def panel(wish: Wish) -> Option | None:
    """The state at r random periods, which each entry draws, with the best r; None if the budget is too small."""
    most = min(MOST_PANEL_REPORTS, wish.periods)
    return _best(wish, "panel", ((f"r={r}", _panel(wish, r)) for r in range(1, most + 1)))


def _shapes(wish: Wish) -> Iterator[tuple[int, int]]:
    for branching in BRANCHINGS:
        layers = 2
        while branching ** (layers - 1) <= wish.periods:
            yield branching, layers
            layers += 1


def _paper(wish: Wish, branching: int, layers: int) -> ReleasePlan | None:
    """As `hierarchical_plan`; a closed cohort is charged as one, which leaves more for every report."""
    spans = [Span(branching**i, 0, wish.periods) for i in range(layers)]
    odds = odds_within(wish.epsilon, sum((reports_that_tell(wish, span, UNIT_LOSSES) for span in spans), Decimal(0)))
    if odds is None:
        return None
    response = KaryResponse(MutationSpace(wish.answers), odds)
    return ReleasePlan((Group(tuple(span.track(response) for span in spans)),))


def _sampled(wish: Wish, branching: int, layers: int) -> ReleasePlan | None:
    groups = []
    for span in (Span(branching**i, 0, wish.periods) for i in range(layers)):
        odds = odds_within(wish.epsilon, reports_that_tell(wish, span, UNIT_LOSSES))
        if odds is None:
            return None
        groups.append(Group((span.track(KaryResponse(MutationSpace(wish.answers), odds)),)))
    return ReleasePlan(tuple(groups))


def _panel(wish: Wish, reports: int) -> ReleasePlan | None:
    offer = best_state(wish.answers, not wish.closed, wish.epsilon, reports)
    if offer is None:
        return None
    return ReleasePlan((Group((Span(1, 0, wish.periods, reports).track(offer.make()),)),))


def _best(wish: Wish, name: str, plans: Iterable[DetailedPlan]) -> Option | None:
    options = [Option.of(wish, name, plan, detail) for detail, plan in plans if plan is not None]
    return min(options, key=lambda option: option.error(wish), default=None)
