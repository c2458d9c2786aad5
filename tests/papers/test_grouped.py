"""Grouped and online sigma-counting: clusters, shares of the budget, what is free and what pays."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from changeling_central import BadState, BudgetExhausted, OpenDPNoise
from changeling_central.testing import Forbidden, NoNoise
from changeling_papers import Algebra, Domain, OnlineCounting, Query, clustered, grouped

WIDTH = 14
FLAGS = Domain.of(**{f"c{i}": [False, True] for i in range(WIDTH)})
RANDOM = np.random.default_rng(3)
ROWS = RANDOM.integers(0, 2, (50, WIDTH)).astype(bool)
TABLE = FLAGS.table({f"c{i}": ROWS[:, i] for i in range(WIDTH)})
EMPTY = FLAGS.table({f"c{i}": np.zeros(0, bool) for i in range(WIDTH)})


def queries(*texts):
    return [Query.of(FLAGS, text) for text in texts]


def made_up(n, constrained=2):
    found, chance = [], np.random.default_rng(n)  # its own, so that no test depends on which ran before
    for _ in range(n):
        columns = chance.choice(WIDTH, constrained, replace=False)
        found.append(" and ".join(f"{'not ' * int(chance.integers(2))}c{i}" for i in columns))
    return queries(*found)


def test_clusters_hold_every_query_once_and_come_from_the_queries_alone():
    """Whatever the order of the queries, and for repeated ones, the same queries lie in some cluster once."""
    asked = made_up(40)
    keys = [[query.key for query in cluster.queries] for cluster in clustered(asked)]
    assert sorted(key for cluster in keys for key in cluster) == sorted({query.key for query in asked})
    assert keys == [[query.key for query in cluster.queries] for cluster in clustered(asked[::-1] + asked[:7])]


def test_queries_that_constrain_the_same_columns_share_an_algebra():
    """Of two kinds of queries on columns far apart, each kind ends up in one cluster of its own."""
    left = [f"{a}c0 and {b}c1" for a in ("", "not ") for b in ("", "not ")] + ["c0", "c1", "c0 or c1"]
    right = [text.replace("c0", "c5").replace("c1", "c6") for text in left]
    groups = {frozenset(query.text for query in one.queries) for one in clustered(queries(*left, *right))}
    assert groups == {frozenset(left), frozenset(right)}


@pytest.mark.parametrize("n", [2, 5, 40, 200])
def test_clusters_are_never_worse_than_the_benchmark_or_one_algebra(n):
    """Σ A^(1/3), whose cube is the predicted squared error, is at most that of single queries and of one cluster."""
    asked = list({query.key: query for query in made_up(n)}.values())
    found = sum(cluster.root for cluster in clustered(asked))
    assert found <= len(asked) + 1e-9
    whole = Algebra.of(asked)
    assert found <= sum(len(whole.members(query)) for query in asked) ** (1 / 3) + 1e-9


def test_shares_add_up_to_the_budget_and_are_the_best_ones():
    """The sum of budgets is at most epsilon and short of it by 10⁻⁶ at most; no shift between two clusters pays."""
    asked = made_up(60)
    mechanism = grouped(asked, Fraction(2))
    spent = mechanism.guarantee.epsilon
    assert Fraction(2) * (1 - Fraction(1, 10**6)) <= spent <= 2
    clusters = sorted(clustered(asked), key=lambda cluster: -cluster.root)
    atoms = [sum(len(one.algebra.members(q)) for q in one.queries) for one in clusters]
    budgets = [float(one.epsilon) for one in mechanism.algebras]
    assert len(budgets) > 2
    predicted = sum(a / e**2 for a, e in zip(atoms, budgets, strict=True))
    for i in range(len(budgets)):
        for j in range(len(budgets)):
            moved = list(budgets)
            moved[i] += 1e-3 * budgets[j]
            moved[j] -= 1e-3 * budgets[j]
            assert predicted <= sum(a / e**2 for a, e in zip(atoms, moved, strict=True)) * (1 + 1e-6)


def test_the_loss_of_all_algebras_together_is_the_stated_one():
    """Over neighbours by one row of every kind, Σ |shift| / scale over all atoms is at most epsilon, and reaches it."""
    mechanism = grouped(made_up(20), Fraction(1))
    row = {f"c{i}": [False, True] for i in range(WIDTH)}
    losses = []
    for _ in range(30):
        one = FLAGS.table({name: RANDOM.choice(values, 1) for name, values in row.items()})
        told = Fraction(0)
        with_row, _ = mechanism.step(mechanism.start(), one, NoNoise())
        without, _ = mechanism.step(mechanism.start(), EMPTY, NoNoise())
        for part, a, b in zip(mechanism.algebras, with_row.each, without.each, strict=True):
            told += Fraction(int(np.abs(a.noisy - b.noisy).sum())) / Fraction(part.noise.scale)
        losses.append(told)
    assert max(losses) <= mechanism.guarantee.epsilon
    assert max(losses) >= mechanism.guarantee.epsilon * (1 - Fraction(1, 10**9))


def test_grouped_answers_every_query_it_was_made_for_and_resumes():
    """Without noise every answer is the count, also of everybody and of nobody; a saved state answers alike; what no
    algebra holds is None."""
    for texts in (["c0 or not c0"], ["c0 and not c0"], ["c0 or not c0", "c0 and not c0"], ["c0 or not c0", "c1"]):
        every = grouped(queries(*texts), Fraction(1))
        state, _ = every.step(every.start(), TABLE, NoNoise())
        assert [every.answer(state, query).value for query in queries(*texts)] == [
            query.count(TABLE) for query in queries(*texts)
        ]
    with pytest.raises(ValueError, match="no queries to group"):
        grouped([], Fraction(1))
    asked = made_up(30)
    mechanism = grouped(asked, Fraction(1))
    exact, _ = mechanism.step(mechanism.start(), TABLE, NoNoise())
    assert [mechanism.answer(exact, query).value for query in asked] == [query.count(TABLE) for query in asked]
    state, _ = mechanism.step(mechanism.start(), TABLE, OpenDPNoise())
    again = mechanism.resumed(mechanism.saved(state))
    assert all(mechanism.answer(again, query) == mechanism.answer(state, query) for query in asked)
    everything = " and ".join(f"c{i}" for i in range(WIDTH))
    assert mechanism.answer(state, *queries(everything)) is None
    with pytest.raises(BudgetExhausted):
        mechanism.step(again, TABLE, Forbidden())
    with pytest.raises(BadState):
        mechanism.check(replace(state, each=()))


def test_a_query_in_an_algebra_is_free_and_another_pays():
    """Known queries and their unions draw nothing; a new one pays once, asked again it gets the same answer."""
    mechanism = OnlineCounting(FLAGS, Fraction(1), Fraction(1, 10))
    state = mechanism.grouped(mechanism.start(), TABLE, Fraction(1, 2), OpenDPNoise(), queries("c0 and c1", "c0"))
    for query in queries("c0", "c0 and not c1", "not c0"):
        state, _ = mechanism.step(state, (TABLE, query), Forbidden())
    assert state.odometer.spent_epsilon == Fraction(1, 2)
    state, first = mechanism.step(state, (TABLE, *queries("c2 or c3")), OpenDPNoise())
    assert state.odometer.spent_epsilon == Fraction(6, 10)
    state, again = mechanism.step(state, (TABLE, *queries("not (not c3 and not c2)")), Forbidden())
    assert again == first
    assert state.odometer.spent_epsilon == Fraction(6, 10)


def test_an_exhausted_budget_refuses_before_anything_is_drawn():
    """Ten new queries at a tenth; the eleventh, and a grouping, are refused; free ones still answer."""
    mechanism = OnlineCounting(FLAGS, Fraction(1), Fraction(1, 10))
    state, asked = (
        mechanism.start(),
        queries(*(f"c{i} and c{j}" for i, j in combinations_with_replacement(range(4), 2))),
    )
    for query in asked:
        state, _ = mechanism.step(state, (TABLE, query), OpenDPNoise())
    with pytest.raises(BudgetExhausted):
        mechanism.step(state, (TABLE, *queries("c7")), Forbidden())
    with pytest.raises(BudgetExhausted):
        mechanism.grouped(state, TABLE, Fraction(1, 100), Forbidden())
    mechanism.step(state, (TABLE, asked[3]), Forbidden())


def test_grouping_anew_spends_anew_and_takes_the_history():
    """After a grouping of what was asked, all of it and its unions is free, with less noise where it had more."""
    mechanism = OnlineCounting(FLAGS, Fraction(2), Fraction(1, 10))
    with pytest.raises(ValueError, match="no queries to group"):
        mechanism.grouped(mechanism.start(), TABLE, Fraction(1), Forbidden())
    state = mechanism.start()
    for query in queries("c0 and c1", "c0"):
        state, poor = mechanism.step(state, (TABLE, query), OpenDPNoise())
    state = mechanism.grouped(state, TABLE, Fraction(1), OpenDPNoise())
    assert state.odometer.spent_epsilon == Fraction(12, 10)
    state, better = mechanism.step(state, (TABLE, *queries("c0")), Forbidden())
    assert better.standard_error < poor.standard_error
    mechanism.step(state, (TABLE, *queries("c0 and not c1")), Forbidden())


def test_a_query_of_another_domain_never_gets_the_answer_of_this_one():
    """Two domains alike but for a column's name: their queries share keys, and the other's are refused."""
    other = Domain.of(**{f"d{i}": [False, True] for i in range(WIDTH)})
    mechanism = OnlineCounting(FLAGS, Fraction(1), Fraction(1, 10))
    state, _ = mechanism.step(mechanism.start(), (TABLE, *queries("c5")), OpenDPNoise())
    stranger = Query.of(other, "d5")
    assert stranger.key in state.asked
    with pytest.raises(ValueError, match="another domain"):
        mechanism.step(state, (TABLE, stranger), Forbidden())
    with pytest.raises(ValueError, match="another domain"):
        mechanism.grouped(state, TABLE, Fraction(1, 10), Forbidden(), [stranger])
