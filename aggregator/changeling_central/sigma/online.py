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
from typing import Any

from ..errors import BadState
from ..mechanism import Guarantee
from ..noise import Noise
from ..odometer import Odometer
from .answer import ADDED_OR_REMOVED, Answer
from .benchmark import Benchmark, BenchmarkState
from .domain import Domain, Table
from .grouped import Grouped, GroupedState, grouped
from .query import Query


@dataclass(frozen=True, slots=True)
class Batch:
    """Queries that were grouped together, the algebras they made and what these drew."""

    queries: tuple[Query, ...]
    mechanism: Grouped
    state: GroupedState
    epsilon: Fraction


@dataclass(frozen=True, slots=True)
class OnlineState:
    """asked: the history by the queries' keys, each with its noisy answer where it paid for itself; never changed."""

    odometer: Odometer
    batches: tuple[Batch, ...] = ()
    asked: Mapping[bytes, tuple[Query, int | None]] = field(default_factory=dict)

    def as_fields(self) -> dict[str, Any]:
        return {
            "spent": str(self.odometer.spent_epsilon),
            "batches": [
                {"queries": [q.text for q in b.queries], "epsilon": str(b.epsilon), "state": b.state.as_fields()}
                for b in self.batches
            ],
            "asked": [[query.text, answer] for query, answer in self.asked.values()],
        }


@dataclass(frozen=True, slots=True)
class OnlineCounting:
    """epsilon: the budget of all. each: what a query in no algebra costs. benchmark: what answers it."""

    domain: Domain
    epsilon: Fraction
    each: Fraction

    benchmark: Benchmark = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "benchmark", Benchmark(self.epsilon, self.each))

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, Fraction(0), ADDED_OR_REMOVED, "sigma-counting, algorithm 4")

    def start(self) -> OnlineState:
        return OnlineState(Odometer(self.epsilon))

    def grouped(
        self, state: OnlineState, table: Table, epsilon: Fraction, noise: Noise, known: Sequence[Query] = ()
    ) -> OnlineState:
        """Groups the history and the queries known ahead, and draws for their algebras; spends epsilon.

        Raises BudgetExhausted where that is more than is left, ValueError where there is nothing to group.
        """
        for query in known:
            self._check(query)
        odometer = state.odometer.charged(epsilon)
        queries = tuple({q.key: q for q in (*(q for q, _ in state.asked.values()), *known)}.values())
        if not queries:
            raise ValueError("there are no queries to group: none was asked, and none is given")
        mechanism = grouped(queries, epsilon)
        drawn, _ = mechanism.step(mechanism.start(), table, noise)
        return replace(state, odometer=odometer, batches=(*state.batches, Batch(queries, mechanism, drawn, epsilon)))

    def step(self, state: OnlineState, value: tuple[Table, Query], noise: Noise) -> tuple[OnlineState, Answer]:
        """The answer to one query. Raises BudgetExhausted where it is in no algebra and `each` is not left.

        ValueError for a query of another domain: its key may be that of a query of this one.
        """
        query = value[1]
        self._check(query)
        _, paid = state.asked.get(query.key, (query, None))
        free = [batch.mechanism.answer(batch.state, query) for batch in state.batches]
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

    def resumed(self, fields: Any) -> OnlineState:
        """The state that `as_fields` wrote. Raises BadState for any other, and for one of another `each`."""
        try:
            if set(fields) != {"spent", "batches", "asked"}:
                raise BadState("not the state of an online sigma-counting")
            batches = []
            for batch in fields["batches"]:
                queries = tuple(Query.of(self.domain, text) for text in batch["queries"])
                epsilon = Fraction(batch["epsilon"])
                mechanism = grouped(queries, epsilon)
                batches.append(Batch(queries, mechanism, mechanism.resumed(batch["state"]), epsilon))
            history = [(Query.of(self.domain, text), answer) for text, answer in fields["asked"]]
            spent = Fraction(fields["spent"])
        except (TypeError, KeyError, AttributeError, ValueError, ZeroDivisionError) as error:
            raise BadState("not the state of an online sigma-counting") from error
        if any(answer is not None and type(answer) is not int for _, answer in history):
            raise BadState("not the state of an online sigma-counting")
        paid = sum(answer is not None for _, answer in history)
        if spent != sum((batch.epsilon for batch in batches), paid * self.each):
            raise BadState("what is spent is not what the groupings and the answers of this state cost")
        odometer = Odometer(self.epsilon, spent_epsilon=spent)
        return OnlineState(odometer, tuple(batches), {query.key: (query, answer) for query, answer in history})

    def _check(self, query: Query) -> None:
        if query.domain != self.domain:
            raise ValueError(f"the query {query.text!r} is of another domain")
