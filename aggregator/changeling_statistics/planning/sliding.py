"""A plan for sliding windows, in which every window is a node of its own: the paper's direct SWCR.

Windows of W periods that begin every P periods are W/P cadences of width W, each P periods after the one before. An
entry reports on all of them, and what it can lose is the sum (Pan 2023, section 5). The change over a window is then
one node, where a hierarchy adds several up.
"""

from decimal import ROUND_FLOOR, Decimal, localcontext

from changeling_protocol import Group, KaryResponse, MutationSpace, Odds, ReleasePlan

from ..randomizers.kary import UNIT_LOSSES
from .losses import MOST_LOSS, Span, reports_that_tell
from .wish import LEAST_EPSILON, Wish


def sliding_plan(wish: Wish, window: int, slide: int = 1) -> ReleasePlan:
    """One group of W/P tracks of changes, the i-th from period i·P on, all through k-RR with the same odds.

        epsilon_0 = epsilon / Σ_i cost(κ_i, N_i)

    window: W, in periods, at most the horizon. slide: P, in periods; it must divide the window.
    Raises ValueError for other numbers, or if the budget is too small to report anything.
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
        loss = wish.epsilon / sum((reports_that_tell(wish, span, UNIT_LOSSES) for span in spans), Decimal(0))
        loss = min(loss * (1 - Decimal("1e-40")), MOST_LOSS)
    if loss < LEAST_EPSILON:
        raise ValueError(
            f"epsilon {wish.epsilon} leaves {loss:.6f} for a report on {len(spans)} cadences: "
            "raise it, or slide by more"
        )
    response = KaryResponse(MutationSpace(wish.answers), Odds.within(loss))
    return ReleasePlan((Group(tuple(span.track(response) for span in spans)),))
