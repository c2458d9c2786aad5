"""What an entry costs in a release of counters, charge by charge: every history of one entry against its absence."""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from changeling_central.changes.answer_query import answer_query
from changeling_central.changes.linear_query import LinearQuery
from changeling_central.releasing.method import PeriodChange
from changeling_papers import InfiniteMechanism, Partitioning, PartitionState, SparseVectorState, binary_mechanism
from changeling_protocol import AtMost, Hybrid, TimeBounded
from changeling_statistics import read_rows

from tests.central.examples import CALENDAR, histories
from tests.central.stand_ins import Forbidden

from .scripted import Script, ScriptedCounting
from .test_release_counters import counter_method

ANSWERS = ["a", "b"]
OVERLAPPING = LinearQuery(("p", "q", "r"), ((0, 0, 0), (1, 1, 0), (1, 0, 1)), (1, 1), (1, 1))
QUERIES = {
    "count": answer_query("answer == 'a'", ANSWERS),
    "histogram": answer_query("each answer in ('a', 'b')", ANSWERS),
    "fixed": answer_query("each answer in ('a', 'b')", ANSWERS, fixed=True),
    "overlapping": OVERLAPPING,
}
OTHERS = [("z", 1, "a"), ("z", 5, "")]
CASES = [(kind, AtMost(k)) for kind in ("counter", "infinite", "partitioning", "dynamic") for k in (1, 2)]
CASES += [("partitioning", AtMost(3)), ("counter", TimeBounded(3)), ("infinite", Hybrid((AtMost(2), TimeBounded(2))))]


@dataclass(frozen=True)
class ScriptedCuts(Partitioning):
    """Ends segments as the script says; every update that neighbours differ by costs its epsilon."""

    script: Script | None = None

    def step(self, state, value, noise):  # noqa: ARG002
        ends = self.script.next("cut", value, self.epsilon, Fraction(0)) > 0
        after = PartitionState(state.time + 1, state.segment + ends, state.limit, 0, SparseVectorState())
        return after, ends


def scripted(made, script):
    """The method with every mechanism at its price, what it releases being the script's."""
    m, counting = made.mechanism, ScriptedCounting(script)
    if made.counter.name == "counter":
        return replace(made, mechanism=binary_mechanism(counting, m.periods, m.guarantee.epsilon))
    if made.counter.name == "infinite":
        return replace(made, mechanism=InfiniteMechanism(counting, m.epsilon))
    cuts = ScriptedCuts(m.partitioning.epsilon, m.partitioning.failure, m.partitioning.periods, script)
    if made.counter.name == "partitioning":
        return replace(made, mechanism=replace(m, partitioning=cuts, release=replace(m.release, static=counting)))
    return replace(
        made, mechanism=replace(m, partitioning=cuts, tree=replace(m.tree, static=counting, counting=counting))
    )


def calls_of(made, query, rows, seed):
    log, script = read_rows(sorted(rows, key=lambda row: row[1]), answers=ANSWERS), Script(seed, 5)
    method = scripted(made, script)
    state = method.start()
    for part in log.mutations().by_period(CALENDAR.start, CALENDAR.period, CALENDAR.periods):
        state, _ = method.step(state, PeriodChange(log, part, query), Forbidden())
    return script.calls


def cost(one, other):
    assert [(name, *price) for name, _, *price in one] == [(name, *price) for name, _, *price in other]
    pairs = zip(one, other, strict=True)
    return sum((int(np.abs(a[1] - b[1]).sum()) * a[2] for a, b in pairs), Fraction(0))


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(("kind", "constraint"), CASES, ids=str)
def test_no_history_of_an_entry_costs_more_than_epsilon(kind, constraint, name):
    """Several mutations in a period, moves between columns and columns that overlap included; about 40 histories spread
    over all there are. The counter of entries with one mutation reaches the whole of it: ε₁ is no less than need be."""
    query, epsilon = QUERIES[name], Fraction(1)
    made, worst = counter_method(kind, query, CALENDAR, constraint, epsilon), Fraction(0)
    every = list(histories(2, constraint, 8, query.fixed))
    for states in every[:: max(1, len(every) // 40)]:
        moves = enumerate(pairwise((0, *states)), 1)
        rows = [*OTHERS, *(("e", t, ["", *ANSWERS][b]) for t, (a, b) in moves if a != b)]
        for seed in range(2):
            worst = max(worst, cost(calls_of(made, query, OTHERS, seed), calls_of(made, query, rows, seed)))
    assert worst <= epsilon
    if constraint == AtMost(1) and kind == "counter":
        assert worst == epsilon
