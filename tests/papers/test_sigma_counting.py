"""Sigma-counting: atoms from predicates, order, loss, bias, and what the benchmark does instead."""

from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from math import exp

import numpy as np
import pytest
from changeling_central.errors import BadState, BudgetExhausted
from changeling_central.noise import OpenDPNoise
from changeling_papers import Algebra, Benchmark, Domain, Query, SigmaCounting, under_replacement

from tests.central.saved_fields import resumed
from tests.central.stand_ins import Forbidden, NoNoise
from tests.seeded_noise import SeededNoise

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
    "texts",
    [NESTED, ["city == 'Rome'"], ["age < 2", "city == 'Rome'"], ["age == 1 or city == 'Rome'"], ["age >= 0"]],
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
    """Of every query over a list of predicates and their complements: it is the union of its members, or None."""
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
    assert held.members(*queries("city == 'Paris'")) is None


def test_no_nested_pair_is_ever_out_of_order_and_the_benchmark_s_often_are():
    """2,000 draws, all pairs of a chain of four: none out of order for sigma-counting, thousands for the benchmark."""
    chain, rows = queries(*NESTED), [(3, "Rome"), (2, "Paris"), (1, "Oslo")]
    counting, each = SigmaCounting(algebra(*NESTED), Fraction(1, 2)), Benchmark(Fraction(1, 2), Fraction(1, 8))
    noise, broken, broken_by_benchmark = SeededNoise(1), 0, 0
    for _ in range(2000):
        state, _ = counting.step(counting.start(), table(rows), noise)
        values = [counting.answer(state, query).value for query in chain]
        paid, noisy = each.start(), []
        for query in chain:
            paid, answer = each.step(paid, (table(rows), query), noise)
            noisy.append(answer.value)
        broken += sum(a < b for a, b in combinations(values, 2))
        broken_by_benchmark += sum(a < b for a, b in combinations(noisy, 2))
    assert broken == 0
    assert broken_by_benchmark > 2000


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


def test_a_query_that_holds_of_nobody_is_answered_0_without_doubt():
    """It has no atoms: 0 exactly, within an interval of no width."""
    mechanism, (nobody,) = SigmaCounting(algebra(*NESTED), Fraction(1)), queries("age > 9")
    state, _ = mechanism.step(mechanism.start(), table(ROWS), OpenDPNoise())
    answer = mechanism.answer(state, nobody)
    assert (answer.value, answer.estimate, answer.standard_error) == (0, 0, 0)
    assert answer.interval().half_width == 0


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
    assert max(losses(mechanism, replaced)) == under_replacement(mechanism.guarantee).epsilon == 1
    with pytest.raises(ValueError, match="speaks of"):
        under_replacement(under_replacement(mechanism.guarantee))


@pytest.mark.parametrize("epsilon", [Fraction(1, 20), Fraction(1), Fraction(3)])
def test_the_bias_of_clipping_an_empty_atom_is_the_one_stated(epsilon):
    """Summed over the law of the noise, and near 1/(2ε) where ε is small."""
    mechanism = SigmaCounting(algebra("age >= 2"), epsilon)
    p = exp(-1 / mechanism.noise.scale)
    law = (1 - p) / (1 + p) * p ** np.arange(4000)
    assert mechanism.clipping_bias == pytest.approx((law * np.arange(4000)).sum(), rel=1e-9)
    if epsilon < 1:
        assert mechanism.clipping_bias == pytest.approx(1 / (2 * float(epsilon)), rel=1e-3)


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
    values = np.array([answer.value for answer in answers])
    estimates = np.array([answer.estimate for answer in answers])
    assert abs(values.mean() - 3 * mechanism.clipping_bias) < 4.5 * values.std() / 4000**0.5
    assert abs(estimates.mean()) < 4.5 * answers[0].standard_error / 4000**0.5
    assert abs(estimates.std() / answers[0].standard_error - 1) < 0.1


def test_the_benchmark_pays_for_every_answer_and_stops():
    """Four answers at a quarter each, resumed between; the fifth is refused before anything is drawn, at any price."""
    mechanism, (query,) = Benchmark(Fraction(1), Fraction(1, 4)), queries(NESTED[0])
    state = mechanism.start()
    for _ in range(4):
        state, answer = mechanism.step(mechanism.resumed(mechanism.saved(state)), (table(ROWS), query), OpenDPNoise())
        assert answer.noise.scale == 4.0
    with pytest.raises(BudgetExhausted):
        mechanism.step(state, (table(ROWS), query), Forbidden())
    dearer = Benchmark(Fraction(1), Fraction(1, 100))
    with pytest.raises(BudgetExhausted):
        dearer.step(dearer.resumed(mechanism.saved(state)), (table(ROWS), query), Forbidden())
    for bad in ({}, {"spent": "-1"}, {"spent": 1}, {"spent": "1/0"}, {"spent": "1", "more": 1}):
        with pytest.raises(BadState):
            resumed(mechanism, bad)
    with pytest.raises(ValueError, match="at most 1"):
        Benchmark(Fraction(1), Fraction(2))


def test_too_many_pieces_are_refused_before_they_are_made():
    """Three columns of a thousand values each, all told apart, are a thousand million combinations."""
    wide = Domain.of(a=range(1000), b=range(1000), c=range(1000))
    found = [Query.of(wide, f"{name} >= {at}") for name in "abc" for at in range(1, 1000)]
    with pytest.raises(ValueError, match="group them"):
        Algebra.of(found)
    with pytest.raises(ValueError, match="at least one query"):
        Algebra.of([])
