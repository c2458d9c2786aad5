"""Windows directly, or from a hierarchy: which is better at equal total epsilon (Pan 2023, theorems 4.8 and 4.9).

From exact variances of pure-epsilon Laplace releases of h = max(1, ⌈log_c(W/ΔT)⌉) layers, ΔT = gcd(W, P), and never
from the paper's inequalities: (23) inherits a sum of MostSpan that is too small, and both bound the number of nodes by
2(c-1)h where the windows that are asked for may need fewer. Reads no data.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from changeling_protocol import Constraint, Node, cover

from ..node_noise import Law, calibrated
from .hdcr import NodeRelease, hierarchy_shifts, layer_widths
from .linear_query import LinearQuery
from .release_graph import BestEstimates
from .swcr import Windows, window_shifts

BRANCHINGS = (2, 3, 4, 6, 8, 12, 16)
MOST_ADVISED_PERIODS = 4096
"""Of a calendar that the advice is computed over: what comes later repeats."""

CLEARLY = 1 - 1e-9
"""Two figures that differ by less are the same figure."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A hierarchy that windows could come from, and what they would vary by, in the query's units squared.

    mean_cover, worst_cover: as sums over covers, on average over the windows and at most. mean_graph: on average as
    best estimates on the release graph.
    """

    branching: int
    layers: int
    mean_cover: float
    worst_cover: float
    mean_graph: float


@dataclass(frozen=True, slots=True)
class Advice:
    """direct: the variance of each direct window, in the query's units squared. hierarchies: the best first."""

    direct: float
    hierarchies: tuple[Alternative, ...]

    @property
    def hierarchy_is_better(self) -> bool:
        """Whether a hierarchy's best estimates have the lower mean variance."""
        return bool(self.hierarchies) and self.hierarchies[0].mean_graph < self.direct

    @property
    def cover_is_better(self) -> bool:
        """Whether a hierarchy's worst cover sum has the lower variance: what the theorems compare."""
        return any(hierarchy.worst_cover < self.direct * CLEARLY for hierarchy in self.hierarchies)


def advise(
    query: LinearQuery,
    windows: Windows,
    constraint: Constraint,
    epsilon: Fraction,
    branchings: Iterable[int] = BRANCHINGS,
) -> Advice:
    """The exact variances of the direct windows and of the hierarchies they could come from, at equal total epsilon.

    query: what is summed. windows: which are asked for. constraint: what entries keep to. branchings: those tried.
    Raises ValueError for a calendar of more than MOST_ADVISED_PERIODS periods: ask about fewer windows.
    """
    calendar = windows.calendar
    if calendar.periods > MOST_ADVISED_PERIODS:
        raise ValueError(
            f"advice is about at most {MOST_ADVISED_PERIODS} periods, got {calendar.periods}: take fewer windows"
        )
    direct = calibrated(window_shifts(query, windows, constraint), epsilon, law=Law.LAPLACE).variance
    alternatives = []
    for branching in branchings:
        layers = needed_layers(branching, windows.periods)
        widths = layer_widths(branching, layers)
        node = calibrated(hierarchy_shifts(query, calendar, constraint, widths), epsilon, law=Law.LAPLACE).variance
        counts = [len(cover(span, widths)) for span in spans(windows)]
        graph = _mean_graph(windows, widths)
        alternatives.append(
            Alternative(branching, layers, float(np.mean(counts)) * node, max(counts) * node, graph * node)
        )
    return Advice(direct, tuple(sorted(alternatives, key=lambda alternative: alternative.mean_graph)))


def needed_layers(branching: int, periods: int) -> int:
    """max(1, ⌈log_c periods⌉), in integers.

    >>> needed_layers(2, 1), needed_layers(2, 8), needed_layers(3, 10)
    (1, 3, 3)
    """
    layers = 1
    while branching**layers < periods:
        layers += 1
    return layers


def spans(windows: Windows) -> list[Node]:
    """The windows as nodes of their calendar."""
    return [Node(first, first + windows.periods) for first in range(0, windows.count * windows.stride, windows.stride)]


@lru_cache(maxsize=256)
def _mean_graph(windows: Windows, widths: tuple[int, ...]) -> float:
    """The mean variance of the windows' best online estimates, in variances of a node."""
    estimates = BestEstimates(windows.calendar.periods, widths, 0, windows.periods)
    frontier, variances, nothing = estimates.start(), [], np.zeros(0, np.int64)
    for period in range(1, windows.calendar.periods + 1):
        closing = [NodeRelease(Node(period - w, period), nothing, 1.0) for w in widths if period % w == 0]
        frontier, _ = estimates.step(frontier, closing)
        level = estimates.in_window(frontier) if windows.ends_at(period) else None
        if level is not None:
            variances.append(level.variance)
    return float(np.mean(variances))
