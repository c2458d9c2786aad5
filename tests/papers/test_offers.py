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
from tests.central.examples import histories

from .scripted import Script, ScriptedCounting, charged, followed

CALENDAR, EPSILON = Calendar(0, 10, 6), Fraction(6)
ANSWERS = ["x", "y"]
EACH, COUNT = "each answer in ('x', 'y')", "answer == 'x'"


TWICE = AtMost(2)
COUNTERS = ["counter", "infinite", "partitioning", "dynamic"]


def counter_method(kind, query, calendar, constraint, epsilon):
    return offered(kind).made(Asked(query, calendar, constraint, epsilon))


def method(kind, query=EACH, constraint=TWICE, fixed=False):
    return counter_method(kind, answer_query(query, ANSWERS, fixed=fixed), CALENDAR, constraint, EPSILON)


@pytest.mark.parametrize(
    ("query", "fixed", "k", "items", "columns"),
    [(COUNT, False, 2, 2, 1), (COUNT, False, 3, 3, None), (EACH, False, 2, 3, 2), (EACH, False, 3, 5, None),
     (EACH, True, 2, 2, 1), (EACH, False, 1, 1, 1)],
)  # fmt: skip
def test_an_item_costs_epsilon_over_the_items_an_entry_has(query, fixed, k, items, columns):
    """An insertion is one item, a move two, a deletion one; all columns together. The dynamic mechanism protects an
    entry once for each column that it touches."""
    for kind in COUNTERS[: None if columns else 3]:
        made = method(kind, query, AtMost(k), fixed)
        assert made.each == EPSILON / (columns if kind == "dynamic" else items)
        assert made.guarantee.epsilon == EPSILON
        if kind != "dynamic":
            assert made.mechanism.guarantee.epsilon == made.each


@pytest.mark.parametrize("kind", COUNTERS)
def test_a_counter_for_fewer_mutations_does_not_cover_more(kind):
    """ε₁ for an entry's insertion alone, where entries may mutate twice."""
    query = answer_query(EACH, ANSWERS)
    for k in (1, 2):
        assert method(kind, constraint=AtMost(2)).covers(query, CALENDAR, AtMost(k))
        assert method(kind, constraint=AtMost(1)).covers(query, CALENDAR, AtMost(k)) == (k == 1)


@pytest.mark.parametrize("kind", ["partitioning", "dynamic"])
def test_whether_a_counter_takes_a_sum_does_not_depend_on_the_answers_that_came(kind):
    """A sum from 0 to 5 of answers that are all 0 or 1: refused like any other, or one entry's 2 would show."""
    for answers in (["0", "1"], ["0", "2"]):
        with pytest.raises(ValueError, match="no sums"):
            counter_method(kind, answer_query("sum of answer from 0 to 5", answers), CALENDAR, AtMost(2), EPSILON)


def test_what_a_counter_does_not_take_is_refused():
    """Sums, other constraints, entries that come again; named, nothing drawn. The pan-private counter is not offered:
    beside a changelog nothing could be promised of a seized memory."""
    for name in ("abacus", "pan-private"):
        with pytest.raises(ValueError, match=f"there is no mechanism '{name}'"):
            method(name)
    for kind in ("partitioning", "dynamic"):
        with pytest.raises(ValueError, match="--at-most"):
            method(kind, constraint=TimeBounded(5))
    with pytest.raises(ValueError, match="come once and go once"):
        method("dynamic", constraint=AtMost(3))
    log = changelog_of([("a", 1, "x"), ("a", 2, ""), ("a", 3, "x")])
    query = answer_query(COUNT, log.answers)
    made = counter_method("dynamic", query, CALENDAR, AtMost(2), EPSILON)
    (part,) = log.mutations().by_period(0, 10, 1)
    with pytest.raises(ConstraintBroken, match="inserts an entry again"):
        made.step(made.start(), PeriodChange(log, part, query), Forbidden())


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
    made, worst = counter_method(kind, query, SHORT, constraint, epsilon), Fraction(0)
    every = list(histories(2, constraint, 8, query.fixed))
    for states in every[:: max(1, len(every) // 15)]:
        moves = enumerate(pairwise((0, *states)), 1)
        rows = [*OTHERS, *(("e", t, ["", *A_OR_B][b]) for t, (a, b) in moves if a != b)]
        worst = max(worst, charged(calls_of(made, query, OTHERS), calls_of(made, query, rows))[0])
    assert worst <= epsilon
    if constraint == AtMost(1) and kind == "counter":
        assert worst == epsilon
