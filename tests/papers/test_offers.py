"""Counters in a release: what an entry costs, enumerated; files, refusals."""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import pytest
from changeling_central import Asked, ConstraintBroken, LinearQuery, PeriodChange, answer_query, offered
from changeling_central.testing import Forbidden
from changeling_papers import InfiniteMechanism, Partitioning, binary_mechanism
from changeling_protocol import AtMost, Calendar, Hybrid, TimeBounded
from changeling_statistics import read_rows as changelog_of

from tests.central.examples import CALENDAR as SHORT
from tests.central.examples import QUERIES as COUNTED
from tests.central.examples import histories, made_for

from .scripted import Script, ScriptedCounting, charged, followed

COUNTERS = ["counter", "infinite", "partitioning", "dynamic"]


@pytest.mark.parametrize(
    ("query", "k", "items", "columns"),
    [("count", 2, 2, 1), ("count", 3, 3, None), ("histogram", 2, 3, 2), ("histogram", 3, 5, None), ("fixed", 2, 2, 1),
     ("histogram", 1, 1, 1)],
)  # fmt: skip
def test_an_item_costs_epsilon_over_the_items_an_entry_has(query, k, items, columns):
    """An insertion is one item, a move two, a deletion one; all columns together. The dynamic mechanism protects an
    entry once for each column that it touches."""
    for kind in COUNTERS[: None if columns else 3]:
        made = made_for(kind, query, 6, k, 6)
        assert made.each == Fraction(6, columns if kind == "dynamic" else items)
        assert made.guarantee.epsilon == 6
        if kind != "dynamic":
            assert made.mechanism.guarantee.epsilon == made.each


@pytest.mark.parametrize("kind", COUNTERS)
def test_a_counter_for_fewer_mutations_does_not_cover_more(kind):
    """ε₁ for an entry's insertion alone, where entries may mutate twice."""
    for k in (1, 2):
        asked = COUNTED["histogram"], Calendar(0, 1, 6), AtMost(k)
        assert made_for(kind, "histogram", 6, 2).covers(*asked)
        assert made_for(kind, "histogram", 6, 1).covers(*asked) == (k == 1)


@pytest.mark.parametrize("kind", ["partitioning", "dynamic"])
def test_what_a_counter_does_not_take_is_refused(kind):
    """Sums, other constraints, entries that come again; named, nothing drawn. Whether it takes a sum from 0 to 5 does
    not depend on the answers that came: if all are 0 or 1 it is refused like any other, or one entry's 2 would show.
    The pan-private counter is not offered: beside a changelog nothing could be promised of a seized memory."""
    for name in ("abacus", "pan-private"):
        with pytest.raises(ValueError, match=f"there is no mechanism '{name}'"):
            made_for(name, "count", 6, 2)
    for answers in (["0", "1"], ["0", "2"]):
        with pytest.raises(ValueError, match="no sums"):
            made_for(kind, answer_query("sum of answer from 0 to 5", answers), 6, 2)
    with pytest.raises(ValueError, match="--at-most"):
        made_for(kind, "histogram", 6, TimeBounded(5))
    with pytest.raises(ValueError, match="come once and go once"):
        made_for("dynamic", "histogram", 6, 3)
    log, made = changelog_of([("a", 1, "a"), ("a", 2, ""), ("a", 3, "a")]), made_for("dynamic", "count", 6, 2)
    (part,) = log.mutations().by_period(0, 10, 1)
    with pytest.raises(ConstraintBroken, match="inserts an entry again"):
        made.step(made.start(), PeriodChange(log, part, COUNTED["count"]), Forbidden())


A_OR_B = ["a", "b"]
OVERLAPPING = LinearQuery(("p", "q", "r"), ((0, 0, 0), (1, 1, 0), (1, 0, 1)), (1, 1), (1, 1))
QUERIES = {**{name: COUNTED[name] for name in ("count", "histogram", "fixed")}, "overlapping": OVERLAPPING}
OTHERS = [("z", 1, "a"), ("z", 5, "")]
CASES = [(kind, AtMost(k)) for kind in ("counter", "infinite", "partitioning", "dynamic") for k in (1, 2)]
CASES += [("partitioning", AtMost(3)), ("counter", TimeBounded(3)), ("infinite", Hybrid((AtMost(2), TimeBounded(2))))]


@dataclass(frozen=True)
class ScriptedCuts(Partitioning):
    """Ends segments as the script says; every update that neighbours differ by costs its epsilon."""

    script: Script | None = None

    def step(self, state, value, noise):  # noqa: ARG002
        ends = self.script.next("cut", value, self.epsilon, Fraction(0)) > 0
        return replace(state, time=state.time + 1, segment=state.segment + ends), ends


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


def calls_of(made, query, rows):
    log = changelog_of(sorted(rows, key=lambda row: row[1]), answers=A_OR_B)
    parts = log.mutations().by_period(SHORT.start, SHORT.period, SHORT.periods)
    changes = [PeriodChange(log, part, query) for part in parts]
    return followed(lambda script: scripted(made, script), changes, spread=5)[0]


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(("kind", "constraint"), CASES, ids=str)
def test_no_history_of_an_entry_costs_more_than_epsilon(kind, constraint, name):
    """Several mutations in a period, moves between columns and columns that overlap included; about 15 histories spread
    over all there are. The counter of entries with one mutation reaches the whole of it: ε₁ is no less than need be."""
    query, epsilon = QUERIES[name], Fraction(1)
    made, worst = offered(kind).made(Asked(query, SHORT, constraint, epsilon)), Fraction(0)
    every = list(histories(2, constraint, 8, query.fixed))
    for states in every[:: max(1, len(every) // 15)]:
        moves = enumerate(pairwise((0, *states)), 1)
        rows = [*OTHERS, *(("e", t, ["", *A_OR_B][b]) for t, (a, b) in moves if a != b)]
        worst = max(worst, charged(calls_of(made, query, OTHERS), calls_of(made, query, rows))[0])
    assert worst <= epsilon
    if constraint == AtMost(1) and kind == "counter":
        assert worst == epsilon
