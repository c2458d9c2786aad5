"""Sigma-counting: atoms, order, losses, bias; the evolving count; clusters, their budgets, and what is free."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, pairwise, product
from math import exp, prod

import numpy as np
import pytest
from changeling_central import BadState, BudgetExhausted, OpenDPNoise
from changeling_central.testing import Forbidden, NoNoise, SeededNoise
from changeling_papers import (
    Algebra,
    Assumed,
    Benchmark,
    Domain,
    Evolving,
    OnlineCounting,
    Query,
    SigmaCounting,
    clustered,
    grouped,
)

from tests.central.examples import Listed, stepped

DOMAIN = Domain.of(age=range(4), city=["Paris", "Rome", "Oslo"])
ROWS = list(product(*DOMAIN.values))
NESTED = ["age >= 1", "age >= 2", "age >= 2 and city != 'Oslo'", "age == 3 and city == 'Rome'"]


def table(rows):
    ages, cities = zip(*rows, strict=True) if rows else ((), ())
    return DOMAIN.table({"age": np.array(ages, np.int64), "city": np.array(cities, object)})


def queries(*texts):
    return [Query.of(DOMAIN, text) for text in texts]


def algebra(*texts):
    return Algebra.of(queries(*texts))


@pytest.mark.parametrize(
    "texts", [NESTED, ["city == 'Rome'"], ["age < 2", "city == 'Rome'"], ["age == 1 or city == 'Rome'"], ["age >= 0"]]
)
def test_atoms_are_the_combinations_that_no_query_tells_apart(texts):
    """Two rows lie in one atom exactly if they satisfy the same queries, over all rows the domain can hold."""
    held = algebra(*texts)
    signature = {row: tuple(bool(query.count(table([row]))) for query in queries(*texts)) for row in ROWS}
    atom = {row: int(held.count(table([row])).argmax()) for row in ROWS}
    for one, other in combinations(ROWS, 2):
        assert (atom[one] == atom[other]) == (signature[one] == signature[other])
    assert held.atoms == len(set(signature.values()))


def test_an_algebra_holds_exactly_the_unions_of_its_atoms():
    """Of every query over a list of predicates and their complements: it is the union of its members, or None. One that
    holds of nobody has no atoms, and is answered 0 exactly."""
    held = algebra("age >= 2", "city == 'Rome'")
    asked = ["age >= 2", "age < 2", "city != 'Rome'", "age >= 2 or city == 'Rome'", "age >= 0", "age >= 3"]
    asked += ["city == 'Paris'", "not (age >= 2 and city == 'Rome')", "age > 9"]
    atom = {row: int(held.count(table([row])).argmax()) for row in ROWS}
    for query in queries(*asked):
        inside = {row for row in ROWS if query.count(table([row]))}
        union = {atom[row] for row in inside}
        measurable = all((row in inside) == (atom[row] in union) for row in ROWS)
        members = held.members(query)
        assert (members is not None) == measurable
        if members is not None:
            assert set(members.tolist()) == union
    mechanism, (nobody,) = SigmaCounting(held, Fraction(1)), queries("age > 9")
    state, _ = mechanism.step(mechanism.start(), table(ROWS), OpenDPNoise())
    answer = mechanism.answer(state, nobody)
    assert (answer.value, answer.estimate, answer.standard_error, answer.interval) == (0, 0, 0, (0.0, 0.0))


def test_no_pair_of_queries_of_an_algebra_is_ever_out_of_order():
    """All 2,187 nested pairs of the queries `age in … and city in …`, 40 draws of a sparse table: none inverts.

    Estimates, which are not clipped, often do.
    """
    sides = [[subset for n in range(len(of) + 1) for subset in combinations(of, n)] for of in DOMAIN.values]
    boxes = list(product(*sides))
    nested = [
        (inner, outer)
        for (inner, a), (outer, b) in product(enumerate(boxes), repeat=2)
        if all(set(one) <= set(other) for one, other in zip(a, b, strict=True))
    ]
    assert len(nested) == 3**4 * 3**3
    asked = queries(*(f"age in {list(ages)} and city in {list(cities)}" for ages, cities in boxes))
    mechanism, noise = SigmaCounting(Algebra.of(asked), Fraction(1, 2)), SeededNoise(5)
    broken = broken_estimates = 0
    for _ in range(40):
        state, _ = mechanism.step(mechanism.start(), table([(3, "Rome"), (2, "Paris")]), noise)
        answers = [mechanism.answer(state, query) for query in asked]
        broken += sum(answers[inner].value > answers[outer].value for inner, outer in nested)
        broken_estimates += sum(answers[inner].estimate > answers[outer].estimate for inner, outer in nested)
    assert broken == 0
    assert broken_estimates > 1000


def losses(mechanism, pairs):
    """What the noise of all atoms tells of each pair of tables: Σ |shift| / scale, the largest over transcripts."""
    start = mechanism.start()
    for one, other in pairs:
        a = mechanism.step(start, table(one), NoNoise())[1]
        b = mechanism.step(start, table(other), NoNoise())[1]
        yield Fraction(int(np.abs(a - b).sum())) / Fraction(mechanism.noise.scale)


def test_a_row_more_costs_epsilon_and_a_row_replaced_twice_that():
    """Over all tables of at most two rows and all their neighbours: the stated loss holds and is reached, for both."""
    mechanism = SigmaCounting(algebra(*NESTED), Fraction(1, 2))
    small = [list(rows) for n in range(3) for rows in combinations_with_replacement(ROWS, n)]
    added = [(rows, [*rows, row]) for rows in small for row in ROWS]
    replaced = [([*rows, one], [*rows, other]) for rows in small[:13] for one, other in combinations(ROWS, 2)]
    assert max(losses(mechanism, added)) == mechanism.guarantee.epsilon == Fraction(1, 2)
    assert max(losses(mechanism, replaced)) == 2 * mechanism.guarantee.epsilon


def test_empty_atoms_get_noise_and_estimates_no_bias():
    """4,000 draws of an empty table: values are biased as stated, estimates are not, each within 4.5 standard errors.

    False alarm: 1.4e-5.
    """
    mechanism, noise = SigmaCounting(algebra("age >= 1", "age >= 2"), Fraction(1, 2)), SeededNoise(2)
    (query,) = queries("age >= 0")
    answers = []
    for _ in range(4000):
        state, drawn = mechanism.step(mechanism.start(), table([]), noise)
        assert len(drawn) == 3
        answers.append(mechanism.answer(state, query))
    p = exp(-1 / mechanism.noise.scale)
    bias = p / (1 - p * p)
    values = np.array([answer.value for answer in answers])
    estimates = np.array([answer.estimate for answer in answers])
    assert abs(values.mean() - 3 * bias) < 4.5 * values.std() / 4000**0.5
    assert abs(estimates.mean()) < 4.5 * answers[0].standard_error / 4000**0.5
    assert abs(estimates.std() / answers[0].standard_error - 1) < 0.1


def test_a_benchmark_at_another_price_goes_on_with_what_is_spent():
    """Four answers at a quarter each; then nothing is left at any price. States that spent less than nothing, and
    prices above the budget, are refused."""
    mechanism, (query,) = Benchmark(Fraction(1), Fraction(1, 4)), queries(NESTED[0])
    state = mechanism.start()
    for _ in range(4):
        state, answer = mechanism.step(state, (table(ROWS), query), OpenDPNoise())
        assert answer.noise.scale == 4.0
    dearer = Benchmark(Fraction(1), Fraction(1, 100))
    with pytest.raises(BudgetExhausted):
        dearer.step(dearer.resumed(mechanism.saved(state)), (table(ROWS), query), Forbidden())
    with pytest.raises(BadState):
        mechanism.check(replace(state, spent_epsilon=Fraction(-1)))
    with pytest.raises(ValueError, match="at most 1"):
        Benchmark(Fraction(1), Fraction(2))


def test_too_many_pieces_are_refused_before_they_are_made():
    """Three columns of two hundred values each, all told apart, are eight million combinations."""
    wide = Domain.of(a=range(200), b=range(200), c=range(200))
    found = [Query.of(wide, f"{name} >= {at}") for name in "abc" for at in range(1, 200)]
    with pytest.raises(ValueError, match="group them"):
        Algebra.of(found)
    with pytest.raises(ValueError, match="at least one query"):
        Algebra.of([])


HERE = Domain.of(here=[False, True])
QUERY = Query.of(HERE, "here")
T, REACH = 3, 4
HALF = Fraction(1, 2)
"""The increments' ratio p = e^-η of the discrete Laplace law: η = ln 2."""


def table_of_evolving(n):
    return HERE.table({"here": np.ones(n, bool)})


def law(ratio, k):
    """Discrete Laplace: Pr(k) ∝ ratio^|k|, exactly."""
    return (1 - ratio) / (1 + ratio) * ratio ** abs(k)


def outputs(mechanism, paths, moves, ratio):
    """The exact law of the values, over noise, the others' changes and the entry's path; keyed by values."""
    found = {}
    for drawn, path, others in product(range(-REACH, REACH + 1), paths, moves):
        counts = 20 + np.array([0, *np.cumsum([step for step, _ in others])]) + np.array(path)
        chance = law(ratio, drawn) * paths[path]
        for _, likely in others:
            chance *= likely
        said = tuple(stepped(mechanism, map(table_of_evolving, counts), Listed([drawn]))[1])
        found[said] = found.get(said, 0) + chance
    return found


def chain(survival, steps=T, begins=1):
    """Every path of an entry that begins in the count, or out of it, and may come back, with its probability."""
    return {
        path: prod((survival if a == b else 1 - survival for a, b in pairwise(path)), start=Fraction(1))
        for path in product((0, 1), repeat=steps)
        if path[0] == begins
    }


def test_true_differences_are_refused_without_assumptions():
    """No assumption, no mechanism; and none where what is assumed costs more than the budget."""
    with pytest.raises(ValueError, match="true differences are not private"):
        Evolving(QUERY, T, Fraction(1), None)
    with pytest.raises(ValueError, match="nothing of 1 is left"):
        Evolving(QUERY, 1000, Fraction(1), Assumed(Fraction(2), Fraction(9, 10)))
    for bad in ((Fraction(1, 2), HALF), (Fraction(2), Fraction(3, 2)), (Fraction(2), Fraction(-1, 2))):
        with pytest.raises(ValueError, match="needs spread"):
            Assumed(*bad)


def test_the_theorem_s_own_assumptions_do_not_make_it_private():
    """Others who never move are a Markov process with independent increments; the entry's leaving is then certain.

    Values that its absence cannot give come with the probability that it leaves: no epsilon covers that, whatever the
    survival. This fails on the paper's theorem 5, which states a finite one.
    """
    mechanism = Evolving(QUERY, T, Fraction(1), Assumed(Fraction(1), Fraction(9, 10)))
    still = [((0, Fraction(1)), (0, Fraction(1)))]
    survival = Fraction(9, 10)
    present = outputs(mechanism, chain(survival), still, HALF)
    absent = outputs(mechanism, {(0, 0, 0): Fraction(1)}, still, HALF)
    impossible = sum((chance for said, chance in present.items() if said not in absent), Fraction(0))
    within = sum(law(HALF, k) for k in range(-REACH, REACH + 1))
    assert impossible >= (1 - survival**2) * within - 2 * law(HALF, REACH)
    assert impossible > Fraction(1, 10)


@pytest.mark.parametrize(
    ("steps", "survival", "begins"),
    [
        *((2, survival, begins) for survival in (Fraction(0), Fraction(9, 10), Fraction(1)) for begins in (0, 1)),
        (3, HALF, 1),
    ],
    ids=str,
)
def test_under_its_assumptions_no_values_tell_more_than_stated(steps, survival, begins):
    """Exact law of the values, the others' changes two-sided geometric with ratio 2: within the bound, both ways.

    With two values the bound is reached by an entry that is in the count at first. Values are compared where every
    way to them is within reach of the enumeration.
    """
    assumed = Assumed(Fraction(2), survival)
    mechanism = Evolving(QUERY, steps, Fraction(7, 10) + assumed.loss(steps), assumed)
    noise = Fraction(exp(-1 / mechanism.noise.scale)).limit_denominator(10**12)
    moves = list(product([(k, law(HALF, k)) for k in range(-REACH, REACH + 1)], repeat=steps - 1))
    present = outputs(mechanism, chain(survival, steps, begins), moves, noise)
    absent = outputs(mechanism, {(0,) * steps: Fraction(1)}, moves, noise)
    inner = [
        said for said in absent if abs(said[0] - 20) < REACH and all(abs(b - a) < REACH for a, b in pairwise(said))
    ]
    assert len(inner) == (2 * REACH - 1) ** steps
    ratios = [float(present[said] / absent[said]) for said in inner]
    bound = exp(float(mechanism.guarantee.epsilon))
    assert max(*ratios, *(1 / ratio for ratio in ratios)) <= bound * (1 + 1e-9)
    if steps == 2 and begins:
        assert max(ratios) >= bound * (1 - 1e-9)


def test_differences_are_the_true_ones_and_the_noise_is_drawn_once():
    """After the first value nothing is drawn, and its noise does not show in a state that is printed."""
    mechanism = Evolving(QUERY, T, Fraction(1), Assumed(Fraction(2), Fraction(1)))
    state, first = mechanism.step(mechanism.start(), table_of_evolving(5), OpenDPNoise())
    assert "noise" not in repr(state)
    state, second = mechanism.step(state, table_of_evolving(9), Forbidden())
    state, third = mechanism.step(state, table_of_evolving(2), Forbidden())
    assert (second - first, third - second) == (4, -7)
    with pytest.raises(BadState):
        mechanism.check(replace(state, steps=-1))


WIDTH = 14
FLAGS = Domain.of(**{f"c{i}": [False, True] for i in range(WIDTH)})


def flags(rows):
    """The table of rows of bits, shape (rows, WIDTH)."""
    return FLAGS.table({f"c{i}": column for i, column in enumerate(np.asarray(rows, bool).T)})


TABLE = flags(np.random.default_rng(3).integers(0, 2, (50, WIDTH)))


def flag_queries(*texts):
    return [Query.of(FLAGS, text) for text in texts]


def made_up(n, constrained=2):
    found, chance = [], np.random.default_rng(n)  # its own, so that no test depends on which ran before
    for _ in range(n):
        columns = chance.choice(WIDTH, constrained, replace=False)
        found.append(" and ".join(f"{'not ' * int(chance.integers(2))}c{i}" for i in columns))
    return flag_queries(*found)


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
    groups = {frozenset(query.text for query in one.queries) for one in clustered(flag_queries(*left, *right))}
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
    atoms = np.array([sum(len(one.algebra.members(q)) for q in one.queries) for one in clusters])
    budgets = np.array([float(one.epsilon) for one in mechanism.algebras])
    assert len(budgets) > 2
    predicted = sum(atoms / budgets**2)
    for i, j in product(range(len(budgets)), repeat=2):
        moved = np.array(budgets)
        moved[i] += 1e-3 * budgets[j]
        moved[j] -= 1e-3 * budgets[j]
        assert predicted <= sum(atoms / moved**2) * (1 + 1e-6)


def test_the_loss_of_all_algebras_together_is_the_stated_one():
    """Over neighbours by one row of every kind, Σ |shift| / scale over all atoms is at most epsilon, and reaches it."""
    mechanism, chance = grouped(made_up(20), Fraction(1)), np.random.default_rng(3)
    scales = [Fraction(part.noise.scale) for part in mechanism.algebras]
    _, nobody = mechanism.step(mechanism.start(), flags(np.zeros((0, WIDTH))), NoNoise())
    told = []
    for _ in range(30):
        _, one = mechanism.step(mechanism.start(), flags(chance.integers(0, 2, (1, WIDTH))), NoNoise())
        moved = [int(np.abs(a - b).sum()) for a, b in zip(one, nobody, strict=True)]
        told.append(sum(shift / scale for shift, scale in zip(moved, scales, strict=True)))
    assert max(told) <= mechanism.guarantee.epsilon
    assert max(told) >= mechanism.guarantee.epsilon * (1 - Fraction(1, 10**9))


@pytest.mark.parametrize("texts", [["c0 or not c0"], ["c0 and not c0"], ["c0 or not c0", "c0 and not c0"], None])
def test_grouped_answers_every_query_it_was_made_for(texts):
    """Without noise every answer is the count, also of everybody and of nobody; what no algebra holds is None."""
    asked = made_up(30) if texts is None else flag_queries(*texts)
    mechanism = grouped(asked, Fraction(1))
    state, _ = mechanism.step(mechanism.start(), TABLE, NoNoise())
    assert [mechanism.answer(state, query).value for query in asked] == [query.count(TABLE) for query in asked]
    assert mechanism.answer(state, *flag_queries(" and ".join(f"c{i}" for i in range(WIDTH)))) is None
    with pytest.raises(ValueError, match="no queries to group"):
        grouped([], Fraction(1))
    with pytest.raises(BadState):
        mechanism.check(replace(state, each=()))


def test_a_query_in_an_algebra_is_free_and_another_pays():
    """Known queries and their unions draw nothing; a new one pays once, asked again it gets the same answer."""
    mechanism = OnlineCounting(FLAGS, Fraction(1), Fraction(1, 10))
    state = mechanism.grouped(mechanism.start(), TABLE, Fraction(1, 2), OpenDPNoise(), flag_queries("c0 and c1", "c0"))
    for query in flag_queries("c0", "c0 and not c1", "not c0"):
        state, _ = mechanism.step(state, (TABLE, query), Forbidden())
    assert state.odometer.spent_epsilon == Fraction(1, 2)
    state, first = mechanism.step(state, (TABLE, *flag_queries("c2 or c3")), OpenDPNoise())
    assert state.odometer.spent_epsilon == Fraction(6, 10)
    state, again = mechanism.step(state, (TABLE, *flag_queries("not (not c3 and not c2)")), Forbidden())
    assert again == first
    assert state.odometer.spent_epsilon == Fraction(6, 10)


def test_an_exhausted_budget_refuses_before_anything_is_drawn():
    """Ten new queries at a tenth; the eleventh, and a grouping, are refused; free ones still answer."""
    mechanism = OnlineCounting(FLAGS, Fraction(1), Fraction(1, 10))
    state = mechanism.start()
    asked = flag_queries(*(f"c{i} and c{j}" for i, j in combinations_with_replacement(range(4), 2)))
    for query in asked:
        state, _ = mechanism.step(state, (TABLE, query), OpenDPNoise())
    with pytest.raises(BudgetExhausted):
        mechanism.step(state, (TABLE, *flag_queries("c7")), Forbidden())
    with pytest.raises(BudgetExhausted):
        mechanism.grouped(state, TABLE, Fraction(1, 100), Forbidden())
    mechanism.step(state, (TABLE, asked[3]), Forbidden())


def test_grouping_anew_spends_anew_and_takes_the_history():
    """After a grouping of what was asked, all of it and its unions is free, with less noise where it had more."""
    mechanism = OnlineCounting(FLAGS, Fraction(2), Fraction(1, 10))
    with pytest.raises(ValueError, match="no queries to group"):
        mechanism.grouped(mechanism.start(), TABLE, Fraction(1), Forbidden())
    state = mechanism.start()
    for query in flag_queries("c0 and c1", "c0"):
        state, poor = mechanism.step(state, (TABLE, query), OpenDPNoise())
    state = mechanism.grouped(state, TABLE, Fraction(1), OpenDPNoise())
    assert state.odometer.spent_epsilon == Fraction(12, 10)
    state, better = mechanism.step(state, (TABLE, *flag_queries("c0")), Forbidden())
    assert better.standard_error < poor.standard_error
    mechanism.step(state, (TABLE, *flag_queries("c0 and not c1")), Forbidden())


def test_a_query_of_another_domain_never_gets_the_answer_of_this_one():
    """Two domains alike but for a column's name: their queries share keys, and the other's are refused."""
    other = Domain.of(**{f"d{i}": [False, True] for i in range(WIDTH)})
    mechanism = OnlineCounting(FLAGS, Fraction(1), Fraction(1, 10))
    state, _ = mechanism.step(mechanism.start(), (TABLE, *flag_queries("c5")), OpenDPNoise())
    stranger = Query.of(other, "d5")
    assert stranger.key in state.asked
    with pytest.raises(ValueError, match="another domain"):
        mechanism.step(state, (TABLE, stranger), Forbidden())
    with pytest.raises(ValueError, match="another domain"):
        mechanism.grouped(state, TABLE, Fraction(1, 10), Forbidden(), [stranger])
