"""DCR and HDCR in a release: a hierarchy's nodes, and the best online estimates from them on the release graph.

Guarantee, neighbours and source: those of `changes.hdcr`. What a release has begun with is never chosen again, as
choosing takes long, and a later version of a library might choose otherwise.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Frontier

from ..changes.hdcr import Hdcr, HdcrState, hierarchy, hierarchy_shifts
from ..changes.hierarchy_choice import best_hierarchy
from ..changes.linear_query import LinearQuery
from ..changes.release_graph import BestEstimates, Level, online_variance
from ..errors import BadState
from ..mechanism import Guarantee
from ..node_noise import Law, NodeNoise
from ..noise import Noise
from .method import Made, PeriodChange, ReleaseMechanism
from .offer import Asked, Offer, Option


@dataclass(frozen=True, slots=True)
class HierarchyState:
    """nodes: of the mechanism, with true sums. graph: what the estimates need of what was published."""

    nodes: HdcrState
    graph: Frontier


@dataclass(frozen=True, slots=True)
class HierarchyRelease(ReleaseMechanism[HierarchyState]):
    """The hierarchy `mechanism` with its best online estimates."""

    mechanism: Hdcr

    @classmethod
    def as_begun(cls, asked: Asked, begun: Made) -> "HierarchyRelease":
        """The release with the shape and the noise that it has begun with.

        Whether that noise keeps the promise of what is asked is for `covers` to say. BadState for what is no hierarchy.
        """
        match begun:
            case {"kind": "hierarchy", "widths": list(widths), "law": str(law), "scale": str(scale)}:
                noise = NodeNoise(Law(law), float.fromhex(scale))
                return cls(Hdcr(asked.query, asked.calendar, tuple(widths), noise, asked.epsilon, asked.delta))
        raise BadState(f"not a hierarchy: {sorted(begun)}")

    @property
    def guarantee(self) -> Guarantee:
        """That of the hierarchy; the estimates cost nothing."""
        return self.mechanism.guarantee

    @property
    def estimates(self) -> BestEstimates:
        """The estimates at the end of every period, from the nodes closed by then."""
        m = self.mechanism
        return BestEstimates(m.calendar.periods, m.widths, m.query.width)

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """Whether an entry that keeps to the constraint costs at most (epsilon, delta) under this noise."""
        m, stated = self.mechanism, self.mechanism.guarantee
        if (m.query, m.calendar) != (query, calendar):
            return False
        shifts = hierarchy_shifts(query, calendar, constraint, m.widths)
        if m.noise.law is Law.LAPLACE and m.noise.epsilon(shifts) <= stated.epsilon:
            return True
        return stated.delta > 0 and m.noise.delta(shifts, float(stated.epsilon)) <= float(stated.delta)

    def made_with(self) -> Made:
        """The widths of the layers, and the noise to the last bit."""
        noise = self.mechanism.noise
        shape = list(self.mechanism.widths)
        return {"kind": "hierarchy", "widths": shape, "law": str(noise.law), "scale": noise.scale.hex()}

    def start(self) -> HierarchyState:
        """Before the first period."""
        return HierarchyState(self.mechanism.start(), self.estimates.start())

    def step(self, state: HierarchyState, value: PeriodChange, noise: Noise) -> tuple[HierarchyState, Level]:
        """value: one more period. Returns the best estimate of the query at its end, from all nodes closed by then.

        The nodes that close with the period come with it.
        """
        nodes, released = self.mechanism.step(state.nodes, value.net, noise)
        graph, level = self.estimates.step(state.graph, released)
        return HierarchyState(nodes, graph), replace(level, nodes=released)

    def check(self, state: HierarchyState) -> None:
        """Raises BadState for nodes or a release graph of another hierarchy, or of different periods."""
        self.mechanism.check(state.nodes)
        graph, F, w = state.graph, len(state.graph.times), self.mechanism.query.width
        shapes = (graph.part.shape, graph.planned.shape, graph.values.shape)
        floats = graph.planned.dtype == graph.values.dtype == np.float64
        if shapes != ((F,), (F, F), (F, w)) or graph.part.dtype != np.intp or not floats:
            raise BadState("the state's release graph is not of this hierarchy")
        if graph.period != state.nodes.period or not all(0 <= time <= graph.period for time in graph.times):
            raise BadState("the state's release graph is not as far as its nodes")

    def variance(self, step: int) -> float:
        """Of the best online estimate at the end of this period, in units squared."""
        widths = self.mechanism.widths
        branching = widths[1] if len(widths) > 1 else 2
        return float(online_variance(branching, len(widths), step)[-1] * self.mechanism.noise.variance)


def _hdcr(asked: Asked) -> HierarchyRelease:
    law = asked.law or Law.LAPLACE
    if asked.begun is not None and _is_asked_for(asked.begun, law, asked.branching, asked.layers):
        return HierarchyRelease.as_begun(asked, asked.begun)
    best = best_hierarchy(
        asked.query,
        asked.calendar,
        asked.constraint,
        asked.epsilon,
        asked.delta,
        law,
        asked.branching,
        asked.layers,
    )
    return _new(asked, best.branching, best.layers)


def _dcr(asked: Asked) -> HierarchyRelease:
    if asked.begun is not None and _is_asked_for(asked.begun, asked.law or Law.LAPLACE, None, 1):
        return HierarchyRelease.as_begun(asked, asked.begun)
    return _new(asked, 2, 1)


def _new(asked: Asked, branching: int, layers: int) -> HierarchyRelease:
    budget = asked.epsilon, asked.delta
    shape, law = (branching, layers), asked.law or Law.LAPLACE
    return HierarchyRelease(hierarchy(asked.query, asked.calendar, asked.constraint, *budget, *shape, law))


def at_pure_epsilon(asked: Asked) -> HierarchyRelease:
    """The best hierarchy with Laplace noise at epsilon alone, stated at the delta that was asked for.

    With a delta the noise of every shape takes a second to account for, and the square root is better.
    """
    pure = _hdcr(replace(asked, delta=Fraction(0)))
    return HierarchyRelease(replace(pure.mechanism, delta=asked.delta))


def _is_asked_for(begun: Made, law: Law, branching: int | None, layers: int | None) -> bool:
    """Whether what a release has begun with is of this law, and of this shape as far as one is given."""
    match begun:
        case {"kind": "hierarchy", "law": law.value, "widths": [_, *wider]}:
            return layers in (None, 1 + len(wider)) and (not wider or branching in (None, wider[0]))
    return False


SHAPED = frozenset({Option.LAW, Option.DELTA, Option.ADAPTIVE, Option.BRANCHING, Option.LAYERS})
HDCR = Offer("hdcr", "A hierarchy whose nodes draw their noise as they close; the best one if left out.", _hdcr, SHAPED)
DCR = Offer(
    "dcr", "One noisy change a period: short calendars.", _dcr, frozenset({Option.LAW, Option.DELTA, Option.ADAPTIVE})
)
