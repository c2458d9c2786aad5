"""The direct SWCR on the local side: every window of a sliding release is a node of its own.

Windows of length W that begin every P periods are W/P cadences of width W, each P periods after the last. An entry
reports on all of them, and what it can lose is the sum (Pan 2023, section 5). The change over a window is then one
release, where a hierarchy adds several up.
"""

from decimal import ROUND_FLOOR, Decimal, localcontext

from changeling_protocol import Group, KaryResponse, MutationSpace, Odds, ReleasePlan

from ..randomizers.kary import UNIT_LOSSES
from .losses import MOST_LOSS, Span, reports_that_tell
from .wish import LEAST_EPSILON, Wish


def sliding_plan(wish: Wish, window: int, slide: int = 1) -> ReleasePlan:
    """One group of W/P change tracks of width W = `window`, the i-th from period i·P on, all with the same odds.

        epsilon_0 = epsilon / Σ_i cost(κ_i, N_i)

    Raises ValueError where the slide does not divide the window, the window does not fit into the horizon, or
    epsilon is out of reach.
    """
    if not 1 <= slide <= window:
        raise ValueError(f"windows slide by 1 to {window} periods, their length, got {slide}")
    if window % slide:
        raise ValueError(f"a slide of {slide} does not divide windows of {window} periods: choose one that does")
    if window > wish.periods:
        raise ValueError(f"a window of {window} periods does not fit into {wish.periods}: choose a shorter one")
    spans = [Span(window, first, wish.periods) for first in range(0, window, slide)]
    spans = [span for span in spans if span.count]
    with localcontext(prec=50, rounding=ROUND_FLOOR):
        each = wish.epsilon / sum((reports_that_tell(wish, span, UNIT_LOSSES) for span in spans), Decimal(0))
        each = min(each * (1 - Decimal("1e-40")), MOST_LOSS)
    if each < LEAST_EPSILON:
        raise ValueError(
            f"epsilon {wish.epsilon} leaves {each:.6f} for a report on {len(spans)} cadences: "
            "raise it, or slide by more"
        )
    response = KaryResponse(MutationSpace(wish.answers), Odds.within(each))
    return ReleasePlan((Group(tuple(span.track(response) for span in spans)),))
