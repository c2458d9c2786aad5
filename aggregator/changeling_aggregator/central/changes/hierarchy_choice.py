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
class Choice:
    """mean_variance: of the online estimate over the calendar, in the query's units squared."""

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
) -> Choice:
    """The best of all hierarchies with a branching in BRANCHINGS, the single cadence included."""
    found, seen = [], {}
    for branching in BRANCHINGS:
        for layers in range(1, needed_layers(branching, calendar.periods + 1) + 1):
            widths = layer_widths(branching, layers)
            if widths[-1] > calendar.periods:
                continue
            shifts = hierarchy_shifts(query, calendar, constraint, widths)
            key = tuple(sorted(shifts.items()))
            if key not in seen:
                seen[key] = calibrated(shifts, epsilon, delta, law).variance
            mean = float(online_variance(branching, layers, calendar.periods).mean()) * seen[key]
            found.append(Choice(branching, layers, mean))
    return min(found, key=lambda one: one.mean_variance)
