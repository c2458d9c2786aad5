"""Which hierarchy to release with: the branching and layers of the least mean variance of online estimates.

Exact, from `online_variance` and the noise that the constraint calls for; reads no data, so the choice costs nothing.
"""

from dataclasses import dataclass
from fractions import Fraction

from changeling_protocol import Calendar, Constraint

from ..node_noise import Law, calibrated
from .advisor import needed_layers
from .hdcr import hierarchy_shifts, layer_widths
from .linear_query import LinearQuery
from .release_graph import online_variance

BRANCHINGS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


@dataclass(frozen=True, slots=True)
class HierarchyChoice:
    """A hierarchy's shape. mean_variance: of the online estimate over the calendar, in the query's units squared."""

    branching: int
    layers: int
    mean_variance: float


def best_hierarchy(
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    law: Law = Law.LAPLACE,
    branching: int | None = None,
    layers: int | None = None,
) -> HierarchyChoice:
    """The hierarchy of the least mean variance, of those with a branching in BRANCHINGS, a single cadence included.

    Arguments as of `hierarchy`; with a branching or layers given, the best of those that have them.
    ValueError where none fits the calendar.
    """
    layer_widths(2 if branching is None else branching, 1 if layers is None else min(layers, 1))
    if layers is not None and layers > calendar.periods.bit_length():
        raise ValueError(f"{layers} layers are too many for {calendar.periods} periods")
    choices, variances = [], {}
    for c in BRANCHINGS if branching is None else (branching,):
        most = needed_layers(c, calendar.periods + 1)
        for h in range(1, most + 1) if layers is None else (layers,):
            widths = layer_widths(c, h)
            if widths[-1] > calendar.periods:
                continue
            shifts = hierarchy_shifts(query, calendar, constraint, widths)
            key = tuple(sorted(shifts.items()))
            if key not in variances:
                variances[key] = calibrated(shifts, epsilon, delta, law).variance
            mean = float(online_variance(c, h, calendar.periods).mean()) * variances[key]
            choices.append(HierarchyChoice(c, h, mean))
    if not choices:
        raise ValueError(f"{layers} layers with a branching of {branching} are wider than {calendar.periods} periods")
    return min(choices, key=lambda choice: choice.mean_variance)
