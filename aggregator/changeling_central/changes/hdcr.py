"""HDCR: a hierarchy of disjoint continual releases, widths W, cW, c²W, … of the period W.

Guarantee: (epsilon, delta) for all layers together, composed from Σ κ_i nodes of an entry: κ_i = min(k, nodes) for
at-most-k entries, so at most hk, and κ_i = MostSpan(ends of layer i, B) for B-time-bounded ones. The paper's
Σ((1/cⁱ)⌈B/W⌉ + 1) is too small (B = W, c = 2: 1.5 at layer 1, where 2 nodes are reached). Neighbours: as for DCR.
Source: Pan 2023, section 4.4.4; Chan, Shi, Song 2011; Dwork, Naor, Pitassi, Rothblum 2010.
The state holds the true sums of the nodes that are open, so keep it where the changelog is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from changeling_protocol import Calendar, Constraint, Node
from changeling_statistics import Counts

from ..errors import BadState, BudgetExhausted
from ..mechanism import Guarantee, Mechanism
from ..node_noise import Law, NodeNoise, added, calibrated
from ..noise import Noise
from ..states import check_counts
from .dcr import NEIGHBOURS, checked_change
from .linear_query import LinearQuery


@dataclass(frozen=True, slots=True, eq=False)
class NodeRelease:
    """The noisy change over a node, shape (w,), in units of the query; variance: of each."""

    node: Node
    values: Counts
    variance: float


@dataclass(frozen=True, slots=True, eq=False)
class HdcrState:
    """period: how many have been taken in. sums: true changes since each layer's last node ended, (layers, w)."""

    period: int
    sums: Counts


@dataclass(frozen=True, slots=True)
class Hdcr(Mechanism[HdcrState, Counts, tuple[NodeRelease, ...]]):
    """Made by `hierarchy`. widths: of the layers' nodes, in periods, each dividing the next.

    noise: of every node. epsilon, delta: what this noise costs an entry over all layers. Only whole nodes are released.
    """

    query: LinearQuery
    calendar: Calendar
    widths: tuple[int, ...]
    noise: NodeNoise
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for the nodes of all layers together."""
        return Guarantee(self.epsilon, self.delta, NEIGHBOURS, "Pan 2023, theorem 4.3, mended")

    def start(self) -> HdcrState:
        """Before the first period; every layer's open node is empty."""
        return HdcrState(0, np.zeros((len(self.widths), self.query.width), np.int64))

    def step(self, state: HdcrState, value: Counts, noise: Noise) -> tuple[HdcrState, tuple[NodeRelease, ...]]:
        """value: the true change over the next period, shape (w,), in units. Returns the nodes that end with it.

        Raises BudgetExhausted after the calendar's last period, ValueError for a change that is not of the query,
        and BadState for a state of another hierarchy.
        """
        width = self.query.width
        check_counts(state.sums, (len(self.widths), width))
        if state.period >= self.calendar.periods:
            raise BudgetExhausted(f"the guarantee covers {self.calendar.periods} periods, and all of them are released")
        sums, period = state.sums + checked_change(value, width), state.period + 1
        closing = [layer for layer, w in enumerate(self.widths) if period % w == 0]
        noisy = sums[closing] + self.noise.draw(noise, len(closing) * width).reshape(-1, width)
        nodes = tuple(
            NodeRelease(Node(period - self.widths[layer], period), values, self.noise.variance)
            for layer, values in zip(closing, noisy, strict=True)
        )
        sums[closing] = 0
        return HdcrState(period, sums), nodes

    def check(self, state: HdcrState) -> None:
        """Raises BadState for more periods than the calendar has, or for other layers or columns."""
        if not 0 <= state.period <= self.calendar.periods:
            raise BadState(f"the state is of {state.period} periods, and the calendar has {self.calendar.periods}")
        check_counts(state.sums, (len(self.widths), self.query.width))

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Of each column of every node's change, in units squared."""
        return self.noise.variance


def hierarchy(
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    branching: int = 2,
    layers: int = 1,
    law: Law = Law.LAPLACE,
) -> Hdcr:
    """The HDCR that costs an entry which keeps to the constraint at most (epsilon, delta) in all.

    calendar: its periods are the nodes of the first layer. branching: how many nodes of a layer make one of the next, 2
    or more. layers: how many there are. law: of the noise, equal on every node.
    ValueError where a layer would be wider than the calendar.
    """
    widths = layer_widths(branching, layers)
    if widths[-1] > calendar.periods:
        raise ValueError(f"the widest of {layers} layers has {widths[-1]} periods, of {calendar.periods}: fewer layers")
    drawn = calibrated(hierarchy_shifts(query, calendar, constraint, widths), epsilon, delta, law)
    return Hdcr(query, calendar, widths, drawn, epsilon, delta)


def hierarchy_shifts(
    query: LinearQuery, calendar: Calendar, constraint: Constraint, widths: Sequence[int]
) -> dict[int, int]:
    """How many draws one entry shifts by how much over all layers: κ nodes of each, added up."""
    return added(query.shifts(constraint.most_nodes(layer_bounds(calendar, width))) for width in widths)


def layer_bounds(calendar: Calendar, width: int) -> list[int]:
    """The times that bound the whole nodes of a layer, Unix seconds."""
    return [calendar.start + period * calendar.period for period in range(0, calendar.periods + 1, width)]


def layer_widths(branching: int, layers: int) -> tuple[int, ...]:
    """1, c, c², …, as many as there are layers."""
    if branching < 2 or layers < 1:
        raise ValueError(f"a hierarchy has branching >= 2 and layers >= 1, got {branching} and {layers}")
    return tuple(branching**layer for layer in range(layers))
