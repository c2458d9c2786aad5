"""Sigma-counting: many counting queries of one table, of which nested ones are never out of order.

    Benchmark        every query gets its own noise and pays its own part of the budget (algorithm 1)
    SigmaCounting    noise once for each atom of the queries' sigma-algebra, then any union of atoms is added (2)
    Grouped          queries known ahead, in clusters that come from the queries alone (3)
    OnlineCounting   queries that arrive one by one, free where an algebra holds them, else at their own price (4)
    Evolving         a count of a table that changes; private only under assumptions that its caller states (5)

Guarantee: epsilon for all answers together. Neighbours: tables that differ by one row added or removed; a row that is
replaced costs twice (group privacy), except of the benchmark. What is asked, and when, counts as public.
Source: sigma-counting, algorithms 1 to 5, theorems 1, 3 and 5.

>>> from fractions import Fraction
>>> from changeling_central import OpenDPNoise
>>> from changeling_papers import Algebra, Domain, Query, SigmaCounting
>>> domain = Domain.of(age=range(121), city=["Paris", "Rome", "elsewhere"])
>>> adults, romans = Query.of(domain, "age >= 18"), Query.of(domain, "18 <= age < 65 and city == 'Rome'")
>>> counting = SigmaCounting(Algebra.of([adults, romans]), Fraction(1))
>>> table = domain.table({"age": [12, 30, 44, 80], "city": ["Rome", "Rome", "Paris", "Rome"]})
>>> state, _ = counting.step(counting.start(), table, OpenDPNoise())
>>> counting.answer(state, romans).value <= counting.answer(state, adults).value
True
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

import numpy as np
from changeling_central import (
    BadState,
    BudgetExhausted,
    Guarantee,
    Mechanism,
    NodeNoise,
    Noise,
    calibrated,
    check_counts,
    check_left,
    interval,
)
from changeling_protocol import log_ratio
from changeling_statistics import Counts, Floats

from .queries import MOST_CELLS, Algebra, Atoms, Classes, Domain, Query, Table, firsts_of, shared_classes
from .static import Odometer

ADDED_OR_REMOVED = "tables that differ by one row added or removed"


@dataclass(frozen=True, slots=True)
class NoisyCount:
    """The number of rows that satisfy a query, with noise.

    value: never out of order among nested queries, where the mechanism promises that. estimate: without bias, before
    anything is clipped. atoms: how many draws of `noise` the estimate adds up.
    """

    value: int
    estimate: int
    atoms: int
    noise: NodeNoise

    @property
    def standard_error(self) -> float:
        """The standard error of the estimate, in rows."""
        return sqrt(self.atoms * self.noise.variance)

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the estimate's 95% interval; exactly 0 for a query that no row satisfies."""
        return interval(self.estimate, self.standard_error) if self.atoms else (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Benchmark(Mechanism[Odometer, tuple[Table, Query], NoisyCount]):
    """Answers to one query a step. epsilon: the budget of all answers. each: what one of them costs (ValueError)."""

    neighbours = ADDED_OR_REMOVED
    source = "sigma-counting, algorithm 1"
    epsilon: Fraction
    each: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.each <= self.epsilon:
            raise ValueError(f"one answer costs more than 0 and at most {self.epsilon}, got {self.each}")

    @property
    def noise(self) -> NodeNoise:
        """The noise on one answer."""
        return calibrated({1: 1}, self.each)

    def start(self) -> Odometer:
        """Nothing is spent."""
        return Odometer(self.epsilon)

    def step(self, state: Odometer, value: tuple[Table, Query], noise: Noise) -> tuple[Odometer, NoisyCount]:
        """value: a table, and the query of it that is answered.

        Raises BudgetExhausted before the answer that would cost more than is left.
        """
        after, (table, query), law = state.charged(self.each), value, self.noise
        true = query.count(table)
        noisy = true + int(law.draw(noise, 1)[0])
        return after, NoisyCount(noisy, noisy, 1, law)

    def check(self, state: Odometer) -> None:
        """Raises BadState for another budget, or where less than nothing is spent."""
        if state.epsilon != self.epsilon or state.delta or state.spent_delta or state.spent_epsilon < 0:
            raise BadState(f"the state is of a budget of {state.epsilon}, of which {state.spent_epsilon} are spent")

    def identity(self) -> str:
        """The same for any benchmark: the state says itself what is spent, whatever an answer costs."""
        return "Benchmark"

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Variance of every answer, in rows squared."""
        return self.noise.variance


@dataclass(frozen=True, slots=True, eq=False)
class SigmaState:
    """noisy: the atoms' counts with noise, not clipped, shape (atoms,); None before they are drawn. No true count."""

    noisy: Counts | None = None


@dataclass(frozen=True, slots=True)
class SigmaCounting(Mechanism[SigmaState, Table, Counts]):
    """All queries of an algebra, over one table: one step draws for all atoms, then answers are free.

        value(Q) = Σ max(0, |atom| + Lap(1/epsilon)) over the atoms of Q         estimate(Q): the same, not clipped

    Atoms are disjoint, so epsilon covers all of them (parallel composition). Empty atoms get noise like the others, so
    clipping adds p/(1 - p²), p = e^-epsilon, about 1/(2·epsilon), to the expected value for each empty atom; estimates
    are free of that, and may be out of order.
    """

    neighbours = ADDED_OR_REMOVED
    source = "sigma-counting, algorithm 2"
    algebra: Algebra
    epsilon: Fraction

    def __post_init__(self) -> None:
        calibrated({1: 1}, self.epsilon)

    @property
    def noise(self) -> NodeNoise:
        """The noise on each atom."""
        return calibrated({1: 1}, self.epsilon)

    def start(self) -> SigmaState:
        """Nothing is drawn."""
        return SigmaState()

    def check(self, state: SigmaState) -> None:
        """Raises BadState for another number of atoms."""
        if state.noisy is not None:
            check_counts(state.noisy, (self.algebra.atoms,))

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Variance of every atom's count, in rows squared. An answer states its own, of all the atoms it adds up."""
        return self.noise.variance

    def step(self, state: SigmaState, value: Table, noise: Noise) -> tuple[SigmaState, Counts]:
        """value: the table. Returns the noisy counts of its atoms, shape (atoms,), drawn once.

        Raises BudgetExhausted for a second table.
        """
        if state.noisy is not None:
            raise BudgetExhausted("the atoms' noise is drawn, and the budget spent: another table needs another budget")
        true = self.algebra.count(value)
        noisy = true + self.noise.draw(noise, self.algebra.atoms)
        return SigmaState(noisy), noisy.copy()

    def answer(self, state: SigmaState, query: Query) -> NoisyCount | None:
        """The answer to a query of the algebra, which costs nothing more; None for any other query.

        ValueError before the noise is drawn.
        """
        atoms = self.algebra.members(query)
        return None if atoms is None else self.summed(state, atoms)

    def summed(self, state: SigmaState, atoms: Atoms) -> NoisyCount:
        """The answer to the union of these atoms. ValueError before the noise is drawn."""
        if state.noisy is None:
            raise ValueError("there is nothing to answer from yet: draw first (`step`)")
        held = state.noisy[atoms]
        return NoisyCount(int(np.maximum(held, 0).sum()), int(held.sum()), len(atoms), self.noise)


@dataclass(frozen=True, slots=True)
class Assumed:
    """A statement of the caller about the data, which nobody can check.

    Without the entry, the changes of the count from one step to the next are independent of each other, of the first
    count (whose noise hides a row, and not a thousand: it may give them away) and of the entry, and each is distributed
    so that Pr(d + 1) and Pr(d) are within a factor `spread` = e^η for every d. The entry stays in the count, or out of
    it, from one step to the next with probability at least `survival`, whatever was.
    """

    spread: Fraction
    survival: Fraction

    def __post_init__(self) -> None:
        if not self.spread >= 1 or not 0 <= self.survival <= 1:
            raise ValueError(f"needs spread >= 1 and 0 <= survival <= 1, got {self.spread} and {self.survival}")

    def loss(self, steps: int) -> Fraction:
        """The cost of the true differences of so many steps: (steps - 1)·ln(1 + (1 - p)(e^η - 1)) nats, rounded up."""
        growth = 1 + (1 - self.survival) * (self.spread - 1)
        return (steps - 1) * Fraction(log_ratio(growth.numerator, growth.denominator))


@dataclass(frozen=True, slots=True)
class EvolvingState:
    """steps: how many values are released. noise: that stands in all of them, not public."""

    steps: int = 0
    noise: int = field(default=0, repr=False)


@dataclass(frozen=True, slots=True)
class Evolving(Mechanism[EvolvingState, Table, int]):
    """One query over T tables in a row: noise once, then the true differences. Not private but by assumption.

        value_1 = n_1 + Lap(1/ε₁)          value_t = value_{t-1} + n_t - n_{t-1}

    The differences are exact, and deterministic ones are not private: who knows the other rows sees an entry come and
    go. Only where the others' coming and going is itself random noise, and assumed to be, is anything hidden: so this
    is not made without an `Assumed`, which nobody can check. The sound alternative is a release of changes
    (`changeling_central.hierarchy`, `sliding_windows`).

    Guarantee, under the assumptions alone: ε₁ + (T - 1)·ln(1 + (1 - p)(e^η - 1)) for all T values. Neighbours:
    histories that differ in one entry, which is in the count or not as `Assumed` says, against its absence. Proof: a
    path of the entry with J changes of membership costs ε₁ + Jη, as each moves one difference by 1; averaged over
    paths, E e^{ηJ} <= (1 + (1 - p)(e^η - 1))^{T-1}, and E e^{-ηJ} is no farther from 1. Theorem 5's assumptions
    (independent increments, survival p) do not suffice: where the others stand still, the entry's leaving is seen for
    certain, so η is asked for as well.

    epsilon: the budget of all values.
    """

    neighbours = "histories that differ in one entry, if all that is assumed of the data holds"
    source = "sigma-counting, algorithm 5, under `Assumed`"
    query: Query
    steps: int
    epsilon: Fraction
    assumed: Assumed

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"a count is released at least once, got {self.steps} steps")
        if not isinstance(self.assumed, Assumed):
            raise ValueError(
                "true differences are not private: state what is assumed of the data (`Assumed`), or release changes "
                "(`hierarchy`)"
            )
        if self.first <= 0:
            raise ValueError(
                f"what is assumed costs {float(self.assumed.loss(self.steps)):g} over {self.steps} steps: "
                f"nothing of {self.epsilon} is left for the first value"
            )

    @property
    def first(self) -> Fraction:
        """ε₁: what is left of epsilon for the first value."""
        return self.epsilon - self.assumed.loss(self.steps)

    @property
    def noise(self) -> NodeNoise:
        """The noise on the first value, the only one that is drawn."""
        return calibrated({1: 1}, self.first)

    def start(self) -> EvolvingState:
        """Before the first value."""
        return EvolvingState()

    def check(self, state: EvolvingState) -> None:
        """Raises BadState for a number of values that is none."""
        if state.steps < 0:
            raise BadState(f"the state is of {state.steps} values")

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Variance of every value, in rows squared: the first one's noise stands in all of them."""
        return self.noise.variance

    def step(self, state: EvolvingState, value: Table, noise: Noise) -> tuple[EvolvingState, int]:
        """value: the next table. Returns the noisy count of it. Raises BudgetExhausted after the last step."""
        check_left(state.steps, self.steps, "values")
        true = self.query.count(value)
        drawn = state.noise if state.steps else int(self.noise.draw(noise, 1)[0])
        return EvolvingState(state.steps + 1, drawn), true + drawn


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
    """Made by `grouped`. algebras: with a budget ε_g each; Σ ε_g is spent (sequential composition).

    Algebras differ in variance, so `variance` states none and each answer states its own. Order is kept among answers
    that come from one algebra, not between two.
    """

    algebras: tuple[SigmaCounting, ...]

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
        held = ((at, counting, counting.algebra.members(query)) for at, counting in enumerate(self.algebras))
        known = [(len(atoms) * counting.noise.variance, at, atoms) for at, counting, atoms in held if atoms is not None]
        return min(known, key=lambda place: place[0])[1:] if known else None

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
        odometer, answer = benchmark.step(state.odometer, value, noise)
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
