"""Grouped and online sigma-counting: queries of the same columns share an algebra, and algebras share the budget.

    Grouped          queries known ahead, in clusters that come from the queries alone (algorithm 3)
    OnlineCounting   queries that arrive one by one, free where an algebra holds them, else at their own price (4)

Guarantee: epsilon for all answers together. Neighbours: tables that differ by one row added or removed; a row that is
replaced costs twice. What is asked, and when, counts as public. Source: sigma-counting, algorithms 3 and 4, theorem 3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np
from changeling_central import BadState, Guarantee, Mechanism, Noise
from changeling_statistics import Counts, Floats

from .queries import MOST_CELLS, Algebra, Atoms, Classes, Domain, Query, Table, firsts_of, shared_classes
from .sigma import ADDED_OR_REMOVED, Benchmark, BenchmarkState, NoisyCount, SigmaCounting, SigmaState
from .static import Odometer

SMALL = 2**16
"""This many combinations of classes make one algebra for all queries cheap to try as well."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryCluster:
    """Queries that share an algebra.

    queries: distinct. atoms: how many each query is made of, added up over the queries.
    """

    queries: tuple[Query, ...]
    algebra: Algebra
    atoms: int

    @classmethod
    def of(cls, queries: Sequence[Query]) -> "QueryCluster":
        """The cluster of these queries."""
        algebra = Algebra.of(queries)
        held = (algebra.members(query) for query in queries)
        return cls(tuple(queries), algebra, sum(max(1, len(atoms)) for atoms in held if atoms is not None))

    @property
    def root(self) -> float:
        """A^(1/3): the cluster's share of the budget is in proportion to it."""
        return float(self.atoms ** (1 / 3))


def clustered(queries: Sequence[Query]) -> list[QueryCluster]:
    """Clusters of the columns that queries constrain, from the queries alone; queries that mean the same are one.

    A cluster g of budget ε_g answers its queries with variance 2/ε_g² for each piece of each, A_g pieces in all. With
    Σ ε_g = ε, the sum Σ 2·A_g/ε_g² is least at ε_g ∝ A_g^(1/3), where it is 2·(Σ A_g^(1/3))³/ε². Joining clusters saves
    budget and makes pieces finer: they are joined, the best pair first, while Σ A_g^(1/3) falls, where A_g is bounded
    by the combinations of classes and by m·2^(m-1) for m queries. One cluster for every query is the benchmark, one for
    all is sigma-counting. The paper leaves the clustering open (section 3.2); the criterion is ours.

    Raises ValueError for no queries.
    """
    if not queries:
        raise ValueError("there are no queries to group")
    distinct = sorted({query.key: query for query in queries}.values(), key=lambda query: query.key)
    columns, shared = shared_classes(distinct)
    classes = dict(zip(columns, shared, strict=True))
    split = np.log([int(parts.max()) + 1 for parts in shared])
    patterns: dict[tuple[int, ...], list[Query]] = {}
    for query in distinct:
        patterns.setdefault(query.columns, []).append(query)
    groups: list[list[Query]] = []
    for pattern, group in patterns.items():
        too_fine = split[np.isin(columns, pattern)].sum() > np.log(MOST_CELLS)
        groups.extend([query] for query in group) if too_fine else groups.append(group)
    _join(groups, columns, classes, split)
    clusters = [QueryCluster.of(group) for group in groups if group]
    if split.sum() <= np.log(SMALL):
        whole = QueryCluster.of(distinct)
        if whole.root < sum(cluster.root for cluster in clusters):
            return [whole]
    return clusters


def _join(groups: list[list[Query]], columns: Sequence[int], classes: dict[int, Classes], split: Floats) -> None:
    """Joins the groups in place, the best pair first, while Σ A^(1/3) falls; those that joined another are left empty.

    split: ln of the classes of each column. The columns that one of a pair lacks split its queries finer.
    """
    bits = np.array([np.isin(columns, group[0].columns) for group in groups], np.float64).reshape(len(groups), -1)
    pieces = np.log([max(1.0, sum(_pieces(query, classes) for query in group)) for group in groups])
    sizes = np.array([float(len(group)) for group in groups])
    weights = bits * split  # ln of the combinations of classes that each group's columns tell apart, column by column
    combined = weights.sum(1)

    def gains(row: int) -> tuple[Floats, Floats]:
        """The gains of joining each group to this one, and the pieces of the two."""
        together = combined + combined[row] - (shared := weights @ bits[row])
        joined: Floats = np.logaddexp(pieces[row] + combined - shared, pieces + combined[row] - shared)
        gain = _root(pieces[row], sizes[row]) + _root(pieces, sizes) - _root(joined, sizes[row] + sizes)
        gain[(sizes == 0) | (together > np.log(MOST_CELLS))] = -np.inf
        gain[row] = -np.inf
        return gain, joined

    table = np.array([gains(row)[0] for row in range(len(groups))])
    while table.max() > 1e-9:
        one, other = map(int, np.unravel_index(table.argmax(), table.shape))
        pieces[one], bits[one] = gains(one)[1][other], np.maximum(bits[one], bits[other])
        weights[one] = bits[one] * split
        combined[one] = weights[one].sum()
        sizes[one], sizes[other] = sizes[one] + sizes[other], 0
        groups[one], groups[other] = groups[one] + groups[other], []
        table[other, :] = table[:, other] = -np.inf
        table[one, :] = table[:, one] = gains(one)[0]


def _pieces(query: Query, classes: dict[int, Classes]) -> float:
    """The number of combinations of the shared classes of its columns that the query holds."""
    held = query.mask.astype(np.float64)
    for column, parts in zip(query.columns, query.classes, strict=True):
        held = np.tensordot(np.bincount(parts[firsts_of(classes[column])]).astype(np.float64), held, axes=(0, 0))
    return float(held)


def _root(pieces: Floats | float, sizes: Floats | float) -> Floats:
    """A^(1/3): of m queries, at most m·2^(m-1) atoms are counted in all."""
    few = np.log(np.maximum(sizes, 1)) + (sizes - 1) * np.log(2)
    root: Floats = np.exp(np.minimum(pieces, few) / 3)
    return root


PARTS = 10**9


@dataclass(frozen=True, slots=True)
class GroupedState:
    """each: the state of every algebra, in the mechanism's order."""

    each: tuple[SigmaState, ...]


@dataclass(frozen=True, slots=True)
class Grouped(Mechanism[GroupedState, Table, tuple[Counts, ...]]):
    """Made by `grouped`. algebras: with a budget ε_g each, the largest first; Σ ε_g is spent (sequential composition).

    Algebras differ in variance, so `variance` states none and each answer states its own. Order is kept among answers
    that come from one algebra, not between two.
    """

    algebras: tuple[SigmaCounting, ...]
    _noise: tuple[tuple[int, float], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if any(counting.epsilon < following.epsilon for counting, following in pairwise(self.algebras)):
            raise ValueError("algebras come by falling budgets")
        noise = tuple((counting.algebra.bits, counting.noise.variance) for counting in self.algebras)
        object.__setattr__(self, "_noise", noise)

    @property
    def guarantee(self) -> Guarantee:
        """The costs of the algebras, added up."""
        epsilon = sum((counting.epsilon for counting in self.algebras), Fraction(0))
        source = "sigma-counting, algorithm 2" if len(self.algebras) == 1 else "sigma-counting, algorithm 3"
        return Guarantee(epsilon, Fraction(0), ADDED_OR_REMOVED, source)

    def start(self) -> GroupedState:
        """Nothing is drawn for any algebra."""
        return GroupedState(tuple(counting.start() for counting in self.algebras))

    def check(self, state: GroupedState) -> None:
        """Raises BadState for another number of algebras, or for a state that is not its algebra's."""
        if len(state.each) != len(self.algebras):
            raise BadState(f"the state is of {len(state.each)} algebras, not {len(self.algebras)}")
        for mechanism, of_algebra in zip(self.algebras, state.each, strict=True):
            mechanism.check(of_algebra)

    def step(self, state: GroupedState, value: Table, noise: Noise) -> tuple[GroupedState, tuple[Counts, ...]]:
        """value: the table. Returns the noisy counts of each algebra's atoms, drawn once.

        Raises BudgetExhausted for a second table.
        """
        before = zip(self.algebras, state.each, strict=True)
        steps = [mechanism.step(old, value, noise) for mechanism, old in before]
        return GroupedState(tuple(after for after, _ in steps)), tuple(noisy for _, noisy in steps)

    def place(self, query: Query) -> tuple[int, Atoms] | None:
        """The algebra that answers a query with the least variance, and its atoms there; None where none holds it."""
        best: tuple[int, Atoms] | None = None
        least = inf
        for at, (bits, variance) in enumerate(self._noise):
            if variance >= least:  # and so are all that follow
                break
            if query.bits & ~bits:
                continue
            atoms = self.algebras[at].algebra.members(query)
            if atoms is not None and len(atoms) * variance < least:
                best, least = (at, atoms), len(atoms) * variance
        return best

    def answer(self, state: GroupedState, query: Query) -> NoisyCount | None:
        """The answer of the algebra with the least variance, which costs nothing; None where no algebra holds it."""
        place = self.place(query)
        return None if place is None else self.algebras[place[0]].summed(state.each[place[0]], place[1])


def grouped(queries: Sequence[Query], epsilon: Fraction) -> Grouped:
    """The mechanism that answers these queries at epsilon in all, and whatever else its algebras hold.

    Clusters the queries, and splits the budget for the least mean variance of their answers.
    ValueError for a budget of 0 or less, and for no queries.
    """
    if epsilon <= 0:
        raise ValueError(f"a budget has epsilon > 0, got {epsilon}")
    clusters = sorted(clustered(queries), key=lambda cluster: -cluster.root)
    roots = sum(cluster.root for cluster in clusters)
    shares = [Fraction(int(PARTS * cluster.root / roots), PARTS) for cluster in clusters]
    return Grouped(
        tuple(SigmaCounting(cluster.algebra, epsilon * share) for cluster, share in zip(clusters, shares, strict=True))
    )


class Grouping(NamedTuple):
    """Queries that were grouped together, as they were written; what was drawn for their algebras, and what it cost."""

    queries: tuple[str, ...]
    epsilon: Fraction
    state: GroupedState


@dataclass(frozen=True, slots=True)
class OnlineState:
    """odometer: what is spent. groupings: so far, the oldest first.

    asked: the history by the queries' keys, each as it was written, with its noisy answer where it paid for itself.
    """

    odometer: Odometer
    groupings: tuple[Grouping, ...] = ()
    asked: Mapping[bytes, tuple[str, int | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OnlineCounting(Mechanism[OnlineState, tuple[Table, Query], NoisyCount]):
    """Answers to queries as they arrive; the odometer refuses what the budget does not cover.

    Grouping, and grouping anew from the history, spends what it is given; a query in no algebra spends `each`; one that
    was answered before gets the same answer again, until a grouping has a better one.

    epsilon: the budget of all. each: what a query in no algebra costs. Answers differ in variance, so `variance` states
    none and each answer states its own.
    """

    neighbours = ADDED_OR_REMOVED
    source = "sigma-counting, algorithm 4"
    domain: Domain
    epsilon: Fraction
    each: Fraction

    def __post_init__(self) -> None:
        Benchmark(self.epsilon, self.each)

    def start(self) -> OnlineState:
        """Nothing is asked, grouped or spent."""
        return OnlineState(Odometer(self.epsilon))

    def grouped(
        self, state: OnlineState, table: Table, epsilon: Fraction, noise: Noise, known: Sequence[Query] = ()
    ) -> OnlineState:
        """The state after a grouping of the history and the queries known ahead, whose algebras are drawn.

        epsilon: what this spends.
        Raises BudgetExhausted where that is more than is left, ValueError where there is nothing to group.
        """
        for query in known:
            self._check_domain(query)
        odometer = state.odometer.charged(epsilon)
        history = {key: text for key, (text, _) in state.asked.items()}
        queries = tuple((history | {query.key: query.text for query in known}).values())
        if not queries:
            raise ValueError("there are no queries to group: none was asked, and none is given")
        mechanism = _grouped_texts(self.domain, queries, epsilon)
        drawn, _ = mechanism.step(mechanism.start(), table, noise)
        return replace(state, odometer=odometer, groupings=(*state.groupings, Grouping(queries, epsilon, drawn)))

    def step(self, state: OnlineState, value: tuple[Table, Query], noise: Noise) -> tuple[OnlineState, NoisyCount]:
        """value: the table, and the query of it that is answered.

        Raises BudgetExhausted where the query is in no algebra and `each` is not left, and ValueError for a query of
        another domain: its key may be that of a query of this one.
        """
        query, benchmark = value[1], Benchmark(self.epsilon, self.each)
        self._check_domain(query)
        text, paid = state.asked.get(query.key, (query.text, None))
        free = [_grouped_texts(self.domain, g.queries, g.epsilon).answer(g.state, query) for g in state.groupings]
        known = [answer for answer in free if answer is not None]
        if paid is not None:
            known.append(NoisyCount(paid, paid, 1, benchmark.noise))
        if known:
            after = replace(state, asked={**state.asked, query.key: (text, paid)})
            return after, min(known, key=lambda answer: answer.standard_error)
        spent, answer = benchmark.step(BenchmarkState(state.odometer.spent_epsilon), value, noise)
        odometer = replace(state.odometer, spent_epsilon=spent.spent)
        return replace(state, odometer=odometer, asked={**state.asked, query.key: (text, answer.value)}), answer

    def check(self, state: OnlineState) -> None:
        """Raises BadState also where what is spent is not what the groupings and the paid answers cost."""
        try:
            keys = [Query.of(self.domain, text).key for text, _ in state.asked.values()]
            for queries, epsilon, drawn in state.groupings:
                _grouped_texts(self.domain, queries, epsilon).check(drawn)
        except ValueError as error:
            raise BadState("the state holds what is no query of this domain") from error
        paid = sum(answer is not None for _, answer in state.asked.values())
        spent = sum((grouping.epsilon for grouping in state.groupings), paid * self.each)
        if keys != list(state.asked) or state.odometer != Odometer(self.epsilon, spent_epsilon=spent):
            raise BadState("what is spent is not what the groupings and the answers of this state cost")

    def _check_domain(self, query: Query) -> None:
        if query.domain != self.domain:
            raise ValueError(f"the query {query.text!r} is of another domain")


@lru_cache(maxsize=16)
def _grouped_texts(domain: Domain, queries: tuple[str, ...], epsilon: Fraction) -> Grouped:
    """The mechanism of a grouping, which follows from its queries."""
    return grouped([Query.of(domain, text) for text in queries], epsilon)
