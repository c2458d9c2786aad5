"""The paper's own release plan: k-RR on every layer of a hierarchy, every entry reporting on all of them.

Layer i has nodes of c^i periods. h = 1 is the disjoint continual release (DCR), h > 1 the hierarchical one
(HDCR). All layers have the same odds, which is how the paper splits its budget.
"""

from decimal import ROUND_FLOOR, Decimal, localcontext

from changeling_protocol import Calendar, Constraint, Group, KaryResponse, MutationSpace, Odds, ReleasePlan, Track
from changeling_protocol.cost import node_cost

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
    """The plan with h = `layers` and c = `branching` whose cost to an entry is as large as `epsilon` allows.

        epsilon_0 = epsilon / Σ_i min(2 κ_i, N_i)

    Raises ValueError where a layer has no node, c < 2 with more than one layer, or epsilon is out of reach.
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
        each = epsilon / sum(_reports_that_tell(width, calendar, constraint) for width in widths)
    response = KaryResponse(MutationSpace(answers), Odds.within(each))
    tracks = tuple(Track(width, response, 0, calendar.periods) for width in widths)
    return ReleasePlan((Group(tracks),))


def _reports_that_tell(width: int, calendar: Calendar, constraint: Constraint) -> Decimal:
    """In how many reports of a cadence two changelogs can differ."""
    bounds = [calendar.time(i) for i in range(0, calendar.periods + 1, width)]
    return node_cost(UNIT_LOSSES, constraint.most_nodes(bounds), len(bounds) - 1)
