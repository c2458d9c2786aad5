"""Noisy changes of a query over nodes of the calendar (DCR, HDCR), and the best estimates that follow from them.

Hierarchies of widths W, cW, c²W, …; one of a single layer is a disjoint continual release (DCR). A release publishes
the best online estimates of the levels; noise drawn ahead (`changeling_central.drawn_ahead`) errs less.

Guarantee: (epsilon, delta) for all nodes together, composed from the nodes that an entry reaches: κ_i = min(k, nodes)
of layer i for at-most-k entries, so at most hk, and κ_i = MostSpan(ends of layer i, B) for B-time-bounded ones; the
first costs an appearance, the others a move. The paper's Σ((1/cⁱ)⌈B/W⌉ + 1) is too small (B = W, c = 2: 1.5 at layer 1,
where 2 nodes are reached). Neighbours: changelogs of which
one lacks an entry of the other, with all its mutations; the entry keeps to the constraint. An entry that is in both and
mutates otherwise is told apart by up to twice as much. Source: Pan 2023, theorems 4.1 to 4.4; Chan, Shi, Song 2011;
Dwork, Naor, Pitassi, Rothblum 2010.

A node (s, e] of noise variance σ² is a resistor σ² between s and e; the variance of the best estimate at t is the
effective resistance between 0 and t (docs/mathematics.md, "Central releases"). Estimates are post-processing and cost
nothing. States hold true sums of what is open, so keep them where the changelog is kept.

At-most-k from a state diagram (`state_diagram`): the longest path through its strongly connected components. Valid only
if the answers that are reported *are* the components (`component_of` maps them): a move inside a component is then no
mutation. NULL is a state like any other, so insertion and deletion count. Pan 2023, section 4.3.1.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from graphlib import TopologicalSorter

import numpy as np
from changeling_central import (
    Asked,
    BadState,
    Law,
    Level,
    LinearQuery,
    Made,
    MechanismOption,
    NodeChanges,
    NodeNoise,
    NodeRelease,
    NodeSums,
    Noise,
    Offer,
    PeriodChange,
    ReleaseOfNodes,
    added,
    calibrated,
)
from changeling_protocol import AtMost, Calendar, Constraint, Node, cover
from changeling_statistics import Floats, Indices, Network


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """The joint estimate, at the end of a period, of time 0 and the times at which nodes start that are still open.

    It carries the online estimate of a hierarchy on from period to period, in a state that can be saved: values alone.
    Of the past only these times matter, and they are few. Their joint estimate is exact (a Kalman filter).

    period: the period that has just closed. times: those F times, rising. part: 0 for each, shape (F,), as nodes of
    single periods connect all with time 0. planned: P, their covariance, in units squared, shape (F, F). values: the
    estimates, shape (F, w).
    """

    period: int
    times: tuple[int, ...]
    part: Indices
    planned: Floats
    values: Floats


SOURCE = "Pan 2023, theorem 4.3, mended"


def hierarchy(
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    shape: tuple[int, int] = (2, 1),
    law: Law = Law.LAPLACE,
) -> NodeChanges:
    """The HDCR that costs an entry which keeps to the constraint at most (epsilon, delta) in all.

    calendar: its periods are the nodes of the first layer. shape: how many nodes of a layer make one of the next, 2 or
    more, and how many layers there are. law: of the noise, equal on every node.
    ValueError where a layer would be wider than the calendar.
    """
    widths = layer_widths(*shape)
    if widths[-1] > calendar.periods:
        raise ValueError(
            f"the widest of {len(widths)} layers has {widths[-1]} periods, of {calendar.periods}: fewer layers"
        )
    drawn = calibrated(hierarchy_shifts(query, calendar, constraint, widths), epsilon, delta, law)
    return NodeChanges(query, calendar, tuple((width, width) for width in widths), drawn, SOURCE, epsilon, delta)


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


TIMES_AT_ONCE = 128
"""Times whose weights are held in memory together."""
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
) -> HierarchyChoice:
    """The hierarchy of the least mean variance, of those with a branching in BRANCHINGS, a single cadence included.

    Arguments as of `hierarchy`.
    """
    choices, variances = [], {}
    for c in BRANCHINGS:
        for h in range(1, calendar.periods.bit_length() + 1):
            widths = layer_widths(c, h)
            if widths[-1] > calendar.periods:
                break
            shifts = hierarchy_shifts(query, calendar, constraint, widths)
            key = tuple(sorted(shifts.items()))
            if key not in variances:
                variances[key] = calibrated(shifts, epsilon, delta, law).variance
            mean = float(online_variances(c, h, np.arange(1, calendar.periods + 1)).mean()) * variances[key]
            choices.append(HierarchyChoice(c, h, mean))
    return min(choices, key=lambda choice: choice.mean_variance)


@dataclass(frozen=True, slots=True)
class BestEstimates:
    """Online estimates, one period after another, from the nodes of the widths that have closed."""

    periods: int
    widths: tuple[int, ...]
    columns: int

    def start(self) -> Frontier:
        """Before the first period, where the query is 0."""
        return Frontier(0, (0,), np.zeros(1, np.intp), np.zeros((1, 1)), np.zeros((1, self.columns)))

    def step(self, frontier: Frontier, nodes: Sequence[NodeRelease]) -> tuple[Frontier, Level]:
        """One more period: the query at its end.

        nodes: those that close with it, the period's own first. Takes O(F²) steps for each, whatever came before.
        """
        period = frontier.period + 1
        if not nodes or nodes[0].node != Node(period - 1, period):
            raise ValueError(f"no node is of period {period} alone: a hierarchy's first layer has width 1")
        times, before = (*frontier.times, period), frontier.times.index(period - 1)
        values = np.vstack([frontier.values, frontier.values[before] + nodes[0].values])
        P = np.pad(frontier.planned, ((0, 1), (0, 1)))
        P[-1] = P[:, -1] = P[before].copy()
        P[-1, -1] = P[before, before] + nodes[0].variance
        for release in nodes[1:]:  # ends at the newest time, within what is connected: the usual Kalman gain
            i = times.index(release.node.start)
            toward = P[-1] - P[i]
            gain = (toward / (toward[-1] - toward[i] + release.variance))[:, None]
            values += gain * (release.values - (values[-1] - values[i]))
            P -= gain * toward
        kept = [
            at
            for at, time in enumerate(times)
            if time == 0 or any(time % w == 0 and period < time + w <= self.periods for w in self.widths)
        ]
        part, open_ = np.zeros(len(kept), np.intp), tuple(times[at] for at in kept)
        after = Frontier(period, open_, part, P[kept][:, kept], values[kept])
        return after, Level(values[-1].copy(), float(P[-1, -1]))


def cover_sum(nodes: Iterable[NodeRelease], start: int, end: int, widths: Sequence[int]) -> Level:
    """The change over (start, end] as the sum over the fewest nodes that cover it.

    nodes: those released. start, end: in periods. widths: of the layers, in periods. KeyError where a node is missing.
    """
    by_node = {release.node: release for release in nodes}
    used = [by_node[node] for node in cover(Node(start, end), widths)]
    return Level(
        np.sum([release.values for release in used], axis=0, dtype=np.float64),
        float(sum(release.variance for release in used)),
    )


def retrospective(nodes: Sequence[NodeRelease], periods: int) -> tuple[Floats, Floats]:
    """The best estimates of the query at the times 0 to `periods` from all nodes, also those that closed later.

    Returns the values, shape (periods + 1, w), in units, and their variances, shape (periods + 1,), in units squared.
    """
    network = Network(
        periods,
        np.array([release.node.start for release in nodes], np.intp),
        np.array([release.node.end for release in nodes], np.intp),
        np.array([release.variance for release in nodes]),
    )
    values = network.fit(np.array([release.values for release in nodes], np.float64))
    variances = np.zeros(periods + 1)
    for first in range(1, periods + 1, TIMES_AT_ONCE):
        times = np.arange(first, min(first + TIMES_AT_ONCE, periods + 1))
        sources = np.zeros((periods + 1, len(times)))
        sources[times, np.arange(len(times))] = 1.0
        sources[0] -= 1.0
        variances[times] = network.rows(sources) ** 2 @ network.variance
    return values, variances


def online_variances(branching: int, layers: int, t: Indices) -> Floats:
    """The variances of the best online estimates at the ends of these periods, in variances of one node.

        Σ_i d_i(t) v_i,   v_0 = 1,  v_i = c·v_{i-1} / (c·v_{i-1} + 1)

    d_i: the digits of t to base c, the last being all that is left. What has closed by t is a forest of whole
    trees, one for each node of the cover of (0, t], and a tree of c trees beside its root is two resistors in parallel.
    """
    variance, v = np.zeros(len(t)), 1.0
    for layer in range(layers):
        digit = t % branching if layer < layers - 1 else t
        variance += digit * v
        v = branching * v / (branching * v + 1)
        t = t // branching
    return variance


@dataclass(frozen=True, slots=True)
class HierarchyState:
    """nodes: of the mechanism, with true sums. graph: what the estimates need of what was published."""

    nodes: NodeSums
    graph: Frontier


@dataclass(frozen=True, slots=True)
class HierarchyRelease(ReleaseOfNodes[HierarchyState]):
    """The hierarchy `mechanism` with its best online estimates, which cost nothing."""

    @property
    def estimates(self) -> BestEstimates:
        """The estimates at the end of every period, from the nodes closed by then."""
        m = self.mechanism
        return BestEstimates(m.calendar.periods, m.widths, m.query.width)

    @property
    def shape(self) -> Made:
        """The widths of the layers."""
        return {"kind": "hierarchy", "widths": list(self.mechanism.widths)}

    def enough_for(self, constraint: Constraint) -> bool:
        """By its epsilon alone, or with its delta."""
        m = self.mechanism
        shifts = hierarchy_shifts(m.query, m.calendar, constraint, m.widths)
        if m.noise.law is Law.LAPLACE and m.noise.epsilon(shifts) <= m.epsilon:
            return True
        return m.delta > 0 and m.noise.delta(shifts, float(m.epsilon)) <= float(m.delta)

    def start(self) -> HierarchyState:
        """Before the first period."""
        return HierarchyState(self.mechanism.start(), self.estimates.start())

    def step(self, state: HierarchyState, value: PeriodChange, noise: Noise) -> tuple[HierarchyState, Level]:
        """value: one more period. Returns the best estimate of the query at its end, from all nodes closed by then."""
        nodes, released = self.mechanism.step(state.nodes, value, noise)
        graph, level = self.estimates.step(state.graph, released)
        return HierarchyState(nodes, graph), level

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
        """Variance of the best online estimate at the end of this period, in units squared."""
        widths = self.mechanism.widths
        branching = widths[1] if len(widths) > 1 else 2
        return float(online_variances(branching, len(widths), np.array([step]))[0] * self.mechanism.noise.variance)


def _hierarchy(
    asked: Asked, shape: Callable[[Asked, Law], tuple[int, int]], widths: list[int] | None
) -> HierarchyRelease:
    """The hierarchy of this shape; with the noise that it has begun with, where it has, of these widths or any.

    Whether that noise keeps the promise of what is asked is for `covers` to say.
    """
    law, begun = asked.law or Law.LAPLACE, asked.begun
    match begun:
        case {"kind": "hierarchy", "widths": list(held), "law": str(drawn), "scale": str(scale)} if (
            drawn == law and widths in (None, held)
        ):
            layers, noise = tuple((width, width) for width in held), NodeNoise(law, float.fromhex(scale))
            budget = asked.epsilon, asked.delta
            return HierarchyRelease(NodeChanges(asked.query, asked.calendar, layers, noise, SOURCE, *budget))
    return HierarchyRelease(hierarchy(*asked.wished, asked.epsilon, asked.delta, shape(asked, law), law))


def _best(asked: Asked, law: Law) -> tuple[int, int]:
    best = best_hierarchy(*asked.wished, asked.epsilon, asked.delta, law)
    return best.branching, best.layers


LAWS = frozenset({MechanismOption.LAW, MechanismOption.DELTA})
HDCR = Offer(
    "hdcr",
    "The best hierarchy whose nodes draw their noise as they close.",
    lambda asked: _hierarchy(asked, _best, None),
    LAWS,
)
DCR = Offer(
    "dcr", "One noisy change a period, added up.", lambda asked: _hierarchy(asked, lambda *_: (2, 1), [1]), LAWS
)


# At most k, from a state diagram

NULL = ""
"""No answer."""


@dataclass(frozen=True, slots=True)
class StateDiagram:
    """The answers to report and what they promise.

    components: each answer's states, in an order along the moves. constraint: of entries, if these are reported.
    """

    components: tuple[tuple[str, ...], ...]
    constraint: AtMost

    def component_of(self) -> Mapping[str, int]:
        """The component of every state, numbered as in `components`: the recoding that makes the bound valid."""
        return {state: number for number, states in enumerate(self.components) for state in states}


def state_diagram(moves: Iterable[tuple[str, str]], inserted_as: Iterable[str], deletable: bool = True) -> StateDiagram:
    """The components of the states, in an order along the moves, and the most mutations of an entry.

        k = 1 (insertion) + longest path from a state of insertion + 1 (deletion, if entries can be deleted)

    moves: (from, to) among states. inserted_as: the states an entry can begin in. An entry that may be inserted
    again after its deletion has no bound. ValueError for a move from or to NULL, and if nothing can be inserted.

    >>> diagram = state_diagram([("trial", "paying"), ("paying", "late"), ("late", "paying")], ["trial"])
    >>> diagram.components, diagram.constraint.k
    ((('trial',), ('late', 'paying')), 3)
    """
    from scipy.sparse import csc_matrix
    from scipy.sparse.csgraph import connected_components

    edges, starts = list(moves), sorted(set(inserted_as))
    if not starts:
        raise ValueError("a state diagram names at least one state in which entries are inserted")
    states = sorted({state for edge in edges for state in edge} | set(starts))
    if NULL in states:
        raise ValueError("NULL is no state of a diagram: insertions are `inserted_as`, deletions `deletable`")
    number = {state: i for i, state in enumerate(states)}
    ends = ([number[a] for a, _ in edges], [number[b] for _, b in edges])
    links = csc_matrix((np.ones(len(edges)), ends), shape=(len(states), len(states)))
    count, label = connected_components(links, directed=True, connection="strong")
    before: dict[int, set[int]] = {component: set() for component in range(count)}
    for a, b in zip(label[ends[0]].tolist(), label[ends[1]].tolist(), strict=True):
        if a != b:
            before[b].add(a)
    order = list(TopologicalSorter(before).static_order())
    longest = [0] * count
    for component in reversed(order):
        for earlier in before[component]:
            longest[earlier] = max(longest[earlier], 1 + longest[component])
    most = 1 + max(longest[label[number[state]]] for state in starts) + int(deletable)
    members = tuple(tuple(state for state in states if label[number[state]] == component) for component in order)
    return StateDiagram(members, AtMost(most))
