"""The paper's own release plan: every entry reports changes through k-RR on all nodes of a hierarchy.

Layer i has nodes of c^i periods. One layer is the paper's disjoint continual release (DCR), several are the
hierarchical one (HDCR). All layers have the same odds, which is how the paper splits its budget.
"""

from decimal import ROUND_FLOOR, Decimal, localcontext

from changeling_protocol import (
    Calendar,
    Constraint,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    Track,
    node_cost,
)

from ..randomizers.kary import UNIT_LOSSES


def hierarchical_plan(
    answers: int,
    calendar: Calendar,
    constraint: Constraint,
    *,
    epsilon: Decimal,
    branching: int = 2,
    layers: int = 1,
) -> ReleasePlan:
    """The plan of a hierarchy with the largest odds that a budget allows.

        epsilon_0 = epsilon / Σ_i min(2 κ_i, N_i)

    answers: z.
    calendar, constraint: the survey's.
    epsilon: the most that an entry may lose in all, in nats.
    branching: c, at least 2 if there are several layers.
    layers: how many, at least 1.
    Raises ValueError for other numbers, for a layer without a node, or an epsilon that is too small or too large.
    """
    if layers < 1 or (layers > 1 and branching < 2):
        raise ValueError(f"a hierarchy has layers >= 1 and branching >= 2, got {layers} and {branching}")
    widths = [branching**i for i in range(layers)]
    if widths[-1] > calendar.periods:
        raise ValueError(
            f"layer {layers} has nodes of {widths[-1]} periods and the calendar only {calendar.periods}: "
            "choose fewer layers"
        )
    with localcontext(prec=50, rounding=ROUND_FLOOR):
        loss = epsilon / sum(_reports_that_tell(width, calendar, constraint) for width in widths)
    response = KaryResponse(MutationSpace(answers), Odds.within(loss))
    tracks = tuple(Track(width, response, 0, calendar.periods) for width in widths)
    return ReleasePlan((Group(tracks),))


def _reports_that_tell(width: int, calendar: Calendar, constraint: Constraint) -> Decimal:
    """In how many reports on the nodes of one width two changelogs can differ."""
    bounds = [calendar.time(i) for i in range(0, calendar.periods + 1, width)]
    return node_cost(UNIT_LOSSES, constraint.most_nodes(bounds), len(bounds) - 1)
