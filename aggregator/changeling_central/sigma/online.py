"""Online sigma-counting: queries that arrive one by one, free where an algebra holds them, else at their own price.

Guarantee: epsilon for everything, however many queries; the odometer refuses what it does not cover before anything is
drawn. Grouping, and grouping anew from the history, spends what it is given; a query in no algebra spends `each`; one
that was answered before gets the same answer again, until a grouping has a better one. Neighbours: tables that differ
by one row added or removed; one replaced costs at most twice. What is asked, and when, counts as public.
Source: sigma-counting, algorithm 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ..errors import BadState
from ..mechanism import Guarantee, Mechanism
from ..noise import Noise
from ..odometer import Odometer
from ..states import read_state, written_state
from .answer import ADDED_OR_REMOVED, Answer
from .benchmark import Benchmark, BenchmarkState
from .domain import Domain, Table
from .grouped import Grouped, GroupedState, grouped
from .query import Query


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
