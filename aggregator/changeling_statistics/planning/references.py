"""The plans that others would make, each with its best parameters, so that a designer sees what is gained."""

from collections.abc import Iterable, Iterator
from decimal import Decimal

from changeling_protocol import Group, KaryResponse, MutationSpace, ReleasePlan

from ..randomizers.kary import UNIT_LOSSES
from .losses import Span, odds_within, reports_that_tell
from .option import Option
from .randomizer_choice import best_state
from .wish import Wish

BRANCHINGS = (2, 3, 4, 8)
MOST_PANEL_REPORTS = 16
Named = tuple[str, ReleasePlan | None]


def paper_hierarchy(wish: Wish) -> Option | None:
    """The paper's HDCR with the best c and h >= 2; None where there is none within the budget."""
    layers = ((c, h, _paper(wish, c, h)) for c, h in _shapes(wish))
    return _best(wish, "paper HDCR", ((f"c={c} h={h}", plan) for c, h, plan in layers))


def flat(wish: Wish) -> Option | None:
    """The paper's DCR: a fresh k-RR on the mutation of every period."""
    return _best(wish, "flat DCR", [("", _paper(wish, 1, 1))])


def sampled_hierarchy(wish: Wish) -> Option | None:
    """k-RR on one layer of a hierarchy, drawn at random by each entry, with the best c and h >= 2."""
    return _best(wish, "sampled hierarchy", ((f"c={c} h={h}", _sampled(wish, c, h)) for c, h in _shapes(wish)))


def panel(wish: Wish) -> Option | None:
    """The state at r periods drawn at random by each entry, with the best r."""
    most = min(MOST_PANEL_REPORTS, wish.periods)
    return _best(wish, "panel", ((f"r={r}", _panel(wish, r)) for r in range(1, most + 1)))


def _shapes(wish: Wish) -> Iterator[tuple[int, int]]:
    for branching in BRANCHINGS:
        layers = 2
        while branching ** (layers - 1) <= wish.periods:
            yield branching, layers
            layers += 1


def _paper(wish: Wish, branching: int, layers: int) -> ReleasePlan | None:
    """As `hierarchical_plan`, and in a closed cohort at the charge of one, which leaves more for every report."""
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


def _best(wish: Wish, name: str, plans: Iterable[Named]) -> Option | None:
    options = [Option.of(wish, name, plan, detail) for detail, plan in plans if plan is not None]
    return min(options, key=lambda option: option.error(wish), default=None)
