"""What a counting query is answered with, and what two tables told apart differ in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from math import exp, inf, sqrt

import numpy as np
from changeling_central import (
    BadState,
    BudgetExhausted,
    Guarantee,
    Interval,
    Mechanism,
    NodeNoise,
    Noise,
    calibrated,
    check_counts,
    read_state,
    sum_interval,
    written_state,
)
from changeling_protocol import log_ratio
from changeling_statistics import Counts, Floats
from numpy.typing import NDArray

from .queries import MOST_CELLS, Algebra, Atoms, Classes, Domain, Query, Table, firsts_of, shared_classes
from .static import Odometer

ADDED_OR_REMOVED = "tables that differ by one row added or removed"
REPLACED = "tables that differ in one row replaced"


@dataclass(frozen=True, slots=True)
class Answer:
    """How many rows satisfy a query, with noise.

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

    def interval(self, level: float = 0.95) -> Interval:
        """The interval around the estimate; exactly 0 for a query that no row satisfies. level: the coverage wanted."""
        return Interval(0.0, 1.0) if not self.atoms else sum_interval(self.noise, self.atoms, level)


def under_replacement(guarantee: Guarantee) -> Guarantee:
    """What a guarantee about one row added or removed promises where one row is replaced: twice the epsilon.

    A row replaced is a removal and an addition (group privacy). ValueError for a guarantee about other neighbours.
    """
    if guarantee.neighbours != ADDED_OR_REMOVED:
        raise ValueError(f"this guarantee speaks of {guarantee.neighbours}")
    return Guarantee(2 * guarantee.epsilon, Fraction(0), REPLACED, guarantee.source)


@dataclass(frozen=True, slots=True)
class BenchmarkState:
    """spent: the epsilon of all answers so far, whatever each of them cost when it was given."""

    spent: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Benchmark(Mechanism[BenchmarkState, tuple[Table, Query], Answer]):
    """Answers to one query a step. epsilon: the budget of all answers. each: what one of them costs (ValueError)."""

    epsilon: Fraction
    each: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.each <= self.epsilon:
            raise ValueError(f"one answer costs more than 0 and at most {self.epsilon}, got {self.each}")

    @property
    def guarantee(self) -> Guarantee:
        """epsilon for all answers together."""
        return Guarantee(self.epsilon, Fraction(0), ADDED_OR_REMOVED, "sigma-counting, algorithm 1")

    @property
    def noise(self) -> NodeNoise:
        """The noise on one answer."""
        return calibrated({1: 1}, self.each)

    def start(self) -> BenchmarkState:
        """Nothing is spent."""
        return BenchmarkState()

    def step(self, state: BenchmarkState, value: tuple[Table, Query], noise: Noise) -> tuple[BenchmarkState, Answer]:
        """value: a table, and the query of it that is answered.

        Raises BudgetExhausted before the answer that would cost more than is left.
        """
        odometer = Odometer(self.epsilon, spent_epsilon=state.spent).charged(self.each)
        table, query = value
        true, law = query.count(table), self.noise
        noisy = true + int(law.draw(noise, 1)[0])
        return BenchmarkState(odometer.spent_epsilon), Answer(noisy, noisy, 1, law)

    def check(self, state: BenchmarkState) -> None:
        """Raises BadState where less than nothing is spent."""
        if state.spent < 0:
            raise BadState("what is spent is not negative")

    def identity(self) -> str:
        """Of any benchmark: the state says itself what is spent, whatever an answer costs."""
        return "Benchmark"

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Of every answer, in rows squared."""
        return self.noise.variance


@dataclass(frozen=True, slots=True, eq=False)
class SigmaState:
    """What was drawn, and of what. Holds no true count.

    noisy: the atoms' counts with noise, not clipped, shape (atoms,); None before they are drawn.

    algebra: its key, so that no other's atoms are ever taken for these. epsilon: what they cost, for the same reason.
    """

    algebra: bytes
    epsilon: Fraction
    noisy: Counts | None = None


@dataclass(frozen=True, slots=True)
class SigmaCounting(Mechanism[SigmaState, Table, Counts]):
    """All queries of an algebra, over one table: one step draws for all atoms, then answers are free."""

    algebra: Algebra
    epsilon: Fraction
    noise: NodeNoise = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", calibrated({1: 1}, self.epsilon))

    @property
    def guarantee(self) -> Guarantee:
        """epsilon for all answers there can be: atoms are disjoint."""
        return Guarantee(self.epsilon, Fraction(0), ADDED_OR_REMOVED, "sigma-counting, algorithm 2")

    @property
    def clipping_bias(self) -> float:
        """What clipping adds to the expected value for each empty atom, in rows; less for others."""
        p = exp(-1 / self.noise.scale)
        return p / (1 - p * p)

    def start(self) -> SigmaState:
        """Nothing is drawn."""
        return SigmaState(self.algebra.key, self.epsilon)

    def check(self, state: SigmaState) -> None:
        """Raises BadState for another algebra's state, other noise's, or another number of atoms."""
        if state.algebra != self.algebra.key or state.epsilon != self.epsilon:
            raise BadState("the state is of another algebra, or of other noise")
        if state.noisy is not None:
            check_counts(state.noisy, (self.algebra.atoms,))

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Of every atom's count, in rows squared. An answer states its own, of all the atoms it adds up."""
        return self.noise.variance

    def step(self, state: SigmaState, value: Table, noise: Noise) -> tuple[SigmaState, Counts]:
        """value: the table. Returns the noisy counts of its atoms, shape (atoms,), drawn once.

        Raises BudgetExhausted for a second table.
        """
        if state.noisy is not None:
            raise BudgetExhausted("the atoms' noise is drawn, and the budget spent: another table needs another budget")
        true = self.algebra.count(value)
        noisy = true + self.noise.draw(noise, self.algebra.atoms)
        return replace(state, noisy=noisy), noisy.copy()

    def answer(self, state: SigmaState, query: Query) -> Answer | None:
        """The answer to a query of the algebra, which costs nothing more; None for any other query.

        ValueError before the noise is drawn.
        """
        atoms = self.algebra.members(query)
        return None if atoms is None else self.summed(state, atoms)

    def summed(self, state: SigmaState, atoms: Atoms) -> Answer:
        """The answer to the union of these atoms. ValueError before the noise is drawn."""
        if state.noisy is None:
            raise ValueError("there is nothing to answer from yet: draw first (`step`)")
        held = state.noisy[atoms]
        return Answer(int(np.maximum(held, 0).sum()), int(held.sum()), len(atoms), self.noise)


SMALL = 2**16
"""So many combinations of classes make one algebra for all queries cheap to try as well."""


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Queries that share an algebra.

    queries: distinct. atoms: how many each query is made of, added up over the queries.
    """

    queries: tuple[Query, ...]
    algebra: Algebra
    atoms: int

    @classmethod
    def of(cls, queries: Sequence[Query]) -> "Cluster":
        """The cluster of these queries."""
        algebra = Algebra.of(queries)
        held = (algebra.members(query) for query in queries)
        return cls(tuple(queries), algebra, sum(max(1, len(atoms)) for atoms in held if atoms is not None))

    @property
    def root(self) -> float:
        """A^(1/3): the cluster's share of the budget is in proportion to it."""
        return float(self.atoms ** (1 / 3))


def clustered(queries: Sequence[Query]) -> list[Cluster]:
    """The clusters of these queries, in an order that does not depend on theirs. Queries that mean the same are one.

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
    clusters = [Cluster.of(group) for group in groups if group]
    if split.sum() <= np.log(SMALL):
        whole = Cluster.of(distinct)
        if whole.root < sum(cluster.root for cluster in clusters):
            return [whole]
    return clusters


def _join(groups: list[list[Query]], columns: Sequence[int], classes: dict[int, Classes], split: Floats) -> None:
    """Joins the groups in place, the best pair first; those that joined another are left empty."""
    state = _Groups(
        np.array([np.isin(columns, group[0].columns) for group in groups], np.float64).reshape(len(groups), -1),
        np.log([max(1.0, sum(_pieces(query, classes) for query in group)) for group in groups]),
        np.array([float(len(group)) for group in groups]),
        split,
    )
    best, mate = state.best_of_all()
    stale = np.zeros(len(groups), np.bool_)  # what joined can only have lost: `best` is then a bound from above
    while best.max(initial=-np.inf) > 1e-9:
        one = int(best.argmax())
        if stale[one]:
            gains = state.gains(one)
            best[one], mate[one], stale[one] = gains.max(), gains.argmax(), False
            continue
        other = int(mate[one])
        state.join(one, other)
        groups[one], groups[other] = groups[one] + groups[other], []
        stale |= (mate == one) | (mate == other)
        gains = state.gains(one)
        gains[other] = best[other] = -np.inf
        best[one], mate[one], stale[one] = gains.max(), gains.argmax(), False
        better = gains > best
        better[one] = False
        best[better], mate[better], stale[better] = gains[better], one, False


def _pieces(query: Query, classes: dict[int, Classes]) -> float:
    """How many combinations of the shared classes of its columns the query holds."""
    held = query.mask.astype(np.float64)
    for column, parts in zip(query.columns, query.classes, strict=True):
        held = np.tensordot(np.bincount(parts[firsts_of(classes[column])]).astype(np.float64), held, axes=(0, 0))
    return float(held)


@dataclass(slots=True)
class _Groups:
    """What joining needs to know of every group.

    bits: which columns each constrains, (groups, columns). pieces: ln of the combinations that its queries hold.

    sizes: how many queries; 0 for a group that joined another. split: ln of the classes of each column.
    """

    bits: Floats
    pieces: Floats
    sizes: Floats
    split: Floats

    def join(self, one: int, other: int) -> None:
        self.pieces[one] = self.joined(one)[other]
        self.bits[one] = np.maximum(self.bits[one], self.bits[other])
        self.sizes[one] += self.sizes[other]
        self.sizes[other] = 0

    def joined(self, row: int) -> Floats:
        """`pieces` of `row` with each: what either lacks splits it finer."""
        mine = self.bits[row]
        together: Floats = np.logaddexp(
            self.pieces[row] + (self.bits * (1 - mine)) @ self.split,
            self.pieces + ((1 - self.bits) * mine) @ self.split,
        )
        return together

    def gains(self, row: int) -> Floats:
        """By how much Σ A^(1/3) falls if `row` and each other are joined."""
        sizes = self.sizes
        gain = _root(self.pieces[row : row + 1], sizes[row : row + 1]) + _root(self.pieces, sizes)
        gain -= _root(self.joined(row), sizes[row] + sizes)
        too_fine = np.maximum(self.bits, self.bits[row]) @ self.split > np.log(MOST_CELLS)
        gain[(sizes == 0) | too_fine] = -np.inf
        gain[row] = -np.inf
        return gain

    def best_of_all(self) -> tuple[Floats, NDArray[np.int64]]:
        """Of each group the gain with the best other one, and which that is."""
        best, mate = np.empty(len(self.sizes)), np.zeros(len(self.sizes), np.int64)
        for row in range(len(self.sizes)):
            gains = self.gains(row)
            mate[row] = gains.argmax()
            best[row] = gains[mate[row]]
        return best, mate


def _root(pieces: Floats, sizes: Floats) -> Floats:
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
    """Made by `grouped`. algebras: with a budget each, the largest first.

    Algebras differ in variance, so `variance` states none and each answer states its own.
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
        """What the algebras cost, added up."""
        epsilon = sum((counting.epsilon for counting in self.algebras), Fraction(0))
        return Guarantee(epsilon, Fraction(0), ADDED_OR_REMOVED, "sigma-counting, algorithm 3")

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
        """Which algebra answers it with the least variance, and its atoms there; None where none holds it."""
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

    def answer(self, state: GroupedState, query: Query) -> Answer | None:
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


@dataclass(frozen=True, slots=True)
class Grouping:
    """Queries that were grouped together: the mechanism of their algebras, what it drew, and what that cost."""

    queries: tuple[Query, ...]
    mechanism: Grouped
    state: GroupedState
    epsilon: Fraction


@dataclass(frozen=True, slots=True)
class OnlineState:
    """odometer: what is spent. groupings: so far, the oldest first.

    asked: the history by the queries' keys, each with its noisy answer where it paid for itself; never changed.
    """

    odometer: Odometer
    groupings: tuple[Grouping, ...] = ()
    asked: Mapping[bytes, tuple[Query, int | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SavedGrouping:
    """A grouping as it is saved: its queries as they were written; the mechanism follows from them."""

    queries: tuple[str, ...]
    epsilon: Fraction
    state: GroupedState


@dataclass(frozen=True, slots=True)
class SavedOnline:
    """An online state as it is saved. spent: epsilon. asked: each query as it was written, with its paid answer."""

    spent: Fraction
    groupings: tuple[SavedGrouping, ...]
    asked: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class OnlineCounting(Mechanism[OnlineState, tuple[Table, Query], Answer]):
    """Answers to queries as they arrive.

    epsilon: the budget of all. each: what a query in no algebra costs. benchmark: what answers such a query.

    Answers differ in variance, so `variance` states none and each answer states its own.
    """

    domain: Domain
    epsilon: Fraction
    each: Fraction

    benchmark: Benchmark = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "benchmark", Benchmark(self.epsilon, self.each))

    @property
    def guarantee(self) -> Guarantee:
        """epsilon for all groupings and answers together."""
        return Guarantee(self.epsilon, Fraction(0), ADDED_OR_REMOVED, "sigma-counting, algorithm 4")

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
        queries = tuple({q.key: q for q in (*(q for q, _ in state.asked.values()), *known)}.values())
        if not queries:
            raise ValueError("there are no queries to group: none was asked, and none is given")
        mechanism = grouped(queries, epsilon)
        drawn, _ = mechanism.step(mechanism.start(), table, noise)
        grouping = Grouping(queries, mechanism, drawn, epsilon)
        return replace(state, odometer=odometer, groupings=(*state.groupings, grouping))

    def step(self, state: OnlineState, value: tuple[Table, Query], noise: Noise) -> tuple[OnlineState, Answer]:
        """value: the table, and the query of it that is answered.

        Raises BudgetExhausted where the query is in no algebra and `each` is not left, and ValueError for a query of
        another domain: its key may be that of a query of this one.
        """
        query = value[1]
        self._check_domain(query)
        _, paid = state.asked.get(query.key, (query, None))
        free = [grouping.mechanism.answer(grouping.state, query) for grouping in state.groupings]
        known = [answer for answer in free if answer is not None]
        if paid is not None:
            known.append(Answer(paid, paid, 1, self.benchmark.noise))
        if known:
            asked = state.asked if query.key in state.asked else {**state.asked, query.key: (query, None)}
            return replace(state, asked=asked), min(known, key=lambda answer: answer.standard_error)
        after, answer = self.benchmark.step(BenchmarkState(state.odometer.spent_epsilon), value, noise)
        odometer = replace(state.odometer, spent_epsilon=after.spent)
        asked = {**state.asked, query.key: (query, answer.value)}
        return replace(state, odometer=odometer, asked=asked), answer

    def check(self, state: OnlineState) -> None:
        """Raises BadState also where what is spent is not what the groupings and the paid answers cost."""
        for grouping in state.groupings:
            grouping.mechanism.check(grouping.state)
        paid = sum(answer is not None for _, answer in state.asked.values())
        spent = sum((grouping.epsilon for grouping in state.groupings), paid * self.each)
        if state.odometer != Odometer(self.epsilon, spent_epsilon=spent):
            raise BadState("what is spent is not what the groupings and the answers of this state cost")

    def saved(self, state: OnlineState) -> bytes:
        """The state as bytes: queries as they were written, and what was drawn for them."""
        groupings = tuple(
            SavedGrouping(tuple(query.text for query in grouping.queries), grouping.epsilon, grouping.state)
            for grouping in state.groupings
        )
        asked = tuple((query.text, answer) for query, answer in state.asked.values())
        return written_state(self.identity(), SavedOnline(state.odometer.spent_epsilon, groupings, asked))

    def resumed(self, saved: bytes) -> OnlineState:
        """The state that `saved` wrote. Raises BadState for any other, and for one of another `each`."""
        plain = read_state(saved, self.identity(), SavedOnline)
        try:
            groupings = tuple(self._grouping(grouping) for grouping in plain.groupings)
            history = [(Query.of(self.domain, text), answer) for text, answer in plain.asked]
            odometer = Odometer(self.epsilon, spent_epsilon=plain.spent)
        except ValueError as error:
            raise BadState("the state holds what is no query of this domain") from error
        state = OnlineState(odometer, groupings, {query.key: (query, answer) for query, answer in history})
        self.check(state)
        return state

    def _grouping(self, plain: SavedGrouping) -> Grouping:
        queries = tuple(Query.of(self.domain, text) for text in plain.queries)
        return Grouping(queries, grouped(queries, plain.epsilon), plain.state, plain.epsilon)

    def _check_domain(self, query: Query) -> None:
        if query.domain != self.domain:
            raise ValueError(f"the query {query.text!r} is of another domain")


@dataclass(frozen=True, slots=True)
class Assumed:
    """What the caller states of the data, as nobody can check it.

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
        """What the true differences of so many steps cost: (steps - 1)·ln(1 + (1 - p)(e^η - 1)) nats, rounded up."""
        growth = 1 + (1 - self.survival) * (self.spread - 1)
        return (steps - 1) * Fraction(log_ratio(growth.numerator, growth.denominator))


@dataclass(frozen=True, slots=True)
class EvolvingState:
    """What was released last, and what it stands for.

    steps: how many values are released. before: the last one, which is public. true: the count it stands for, which is
    not.

    query: its key, first: what the noise cost, so that it never serves another query, or a lower promise.
    """

    query: bytes
    first: Fraction
    steps: int = 0
    before: int = 0
    true: int = field(default=0, repr=False)


@dataclass(frozen=True, slots=True)
class Evolving(Mechanism[EvolvingState, Table, int]):
    """One query over T tables in a row. epsilon: the budget of all values, under the assumptions."""

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
                "(`changes.hdcr`)"
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
    def guarantee(self) -> Guarantee:
        """epsilon for all values together, if what is assumed holds."""
        told = "histories that differ in one entry, if all that is assumed of the data holds"
        return Guarantee(self.epsilon, Fraction(0), told, "sigma-counting, algorithm 5, under `Assumed`")

    @property
    def noise(self) -> NodeNoise:
        """The noise on the first value, the only one that is drawn."""
        return calibrated({1: 1}, self.first)

    def start(self) -> EvolvingState:
        """Before the first value."""
        return EvolvingState(self.query.key, self.first)

    def check(self, state: EvolvingState) -> None:
        """Raises BadState for another query's state, or other noise's."""
        if state.query != self.query.key or state.first != self.first:
            raise BadState("the state is of another query, or of other noise")
        if state.steps < 0:
            raise BadState(f"the state is of {state.steps} values")

    def identity(self) -> str:
        """Of any evolving count: the state says itself of which query it is, and at what cost."""
        return "Evolving"

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Of every value, in rows squared: the first one's noise stands in all of them."""
        return self.noise.variance

    def step(self, state: EvolvingState, value: Table, noise: Noise) -> tuple[EvolvingState, int]:
        """value: the next table. Returns the noisy count of it. Raises BudgetExhausted after the last step."""
        if state.steps >= self.steps:
            raise BudgetExhausted(f"the guarantee covers {self.steps} values, and all of them are released")
        true = self.query.count(value)
        noisy = state.before - state.true if state.steps else int(self.noise.draw(noise, 1)[0])
        released = true + noisy
        return replace(state, steps=state.steps + 1, before=released, true=true), released
