"""What charges come to together: the least way to add up is never below what is possible, nor above any other way."""

from contextlib import nullcontext, suppress
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations_with_replacement, count, product
from math import comb, inf, log, sqrt
from random import Random

import numpy as np
import pytest
from changeling_central import (
    ENTRY,
    Asked,
    BadState,
    BudgetExhausted,
    Charge,
    Composition,
    Loss,
    ReleaseCost,
    counting,
    implied_delta,
    offered,
    pure_of,
    total_cost,
    total_of,
)
from changeling_central.budget import refuse_beyond
from changeling_central.ledger import ReleaseLedger
from changeling_central.noise import gaussian_delta
from changeling_central.testing import Release, Statement, Unit, spending
from changeling_commands import main as run
from changeling_protocol import AtMost, Calendar
from changeling_statistics import read_rows

from .examples import command, forbid_draws, ledger_of, release_of

NONE, SMALL = Fraction(0), Fraction(1, 10**6)


def at_rho(rho):
    return ReleaseCost(NONE, NONE, Fraction(rho))


@pytest.mark.parametrize("rho", ["1/2", "1/10", "3/7", "1e-9", "500", "0.02"])
def test_the_pure_epsilon_of_a_rho_is_the_largest_of_ten_digits(rho):
    """ε²/2 is at most rho, and that of the next number is more."""
    exact = Fraction(rho)
    _, found = pure_of(None, exact)
    assert found**2 <= 2 * exact < (found * (1 + Fraction(2, 10**9))) ** 2
    with pytest.raises(ValueError, match="rho > 0"):
        pure_of(None, "0")


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.5, 30.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
def test_the_epsilon_that_a_rho_implies_is_the_least_that_the_conversion_shows(rho, delta):
    """At it delta is enough, a billionth below it is not; and no more than rho + 2 √(rho ln 1/delta)."""
    epsilon = Composition((), Fraction(rho)).least(delta).epsilon
    assert implied_delta(rho, epsilon) <= delta
    assert epsilon < 1e-15 or delta < implied_delta(rho, epsilon * (1 - 1e-8))
    assert epsilon <= rho + 2 * sqrt(rho * -log(delta)) * (1 + 1e-9)


def test_of_the_ways_to_add_up_each_is_the_least_somewhere_and_none_is_below_the_optimum():
    """One release, few, many, and such at rho; of pure losses the exact sum is the optimum, which bounds the others."""
    cases = {
        "basic": Composition.of(Loss(1.0), Loss(2.0)),
        "exact": Composition.of(Loss(0.1)) * 52,
        "concentrated": Composition((Composition.of(Loss(0.1)) * 20).counts, Fraction(1, 10)),
    }
    for way, composed in cases.items():
        ways = composed.ways(1e-6)
        assert composed.least(1e-6).epsilon == min(ways.values())
        assert ways[way] <= min(ways.values()) * 1.0001
        if not composed.rho:
            assert all(epsilon >= composed.exact_epsilon(1e-6) * (1 - 2e-3) for epsilon in ways.values())
    with_deltas = Composition.of(Loss(0.3, 1e-6)) * 4
    assert "basic" not in with_deltas.ways(1e-6)
    assert set(with_deltas.ways(1e-5)) == {"basic", "exact", "concentrated"}
    assert Composition.of(Loss(1.0)).ways(0.0) == {"basic": 1.0}
    assert Composition((), Fraction(1, 2)).ways(0.0) == {}


@pytest.mark.parametrize("epsilons", [[1000.0, 1000.0], [700.0, 1.0], [1e-9] * 3])
def test_the_largest_and_the_least_epsilons_of_a_release_add_up_too(epsilons):
    """e to the power of the first is no float; of the last a delta of 10^-6 covers all."""
    ways = Composition.of(*map(Loss, epsilons)).ways(1e-6)
    assert min(ways.values()) <= sum(epsilons) * (1 + 1e-12)
    assert ways["basic"] == pytest.approx(sum(epsilons))


def test_a_budget_with_a_delta_holds_as_many_releases_as_the_least_sum_allows():
    """40 of epsilon 0.1 in 3, where basic composition ends at 30; what is refused says by which way."""
    ledger = ReleaseLedger("tea", "entry", "3", "1/1000000")
    each, k = Composition.of(Loss(0.1)), 0
    with suppress(BudgetExhausted):
        for k in count():
            ledger = ledger.charged(Charge(str(k), "o", "q", "1/10", "0"))
    with pytest.raises(BudgetExhausted, match="by exact composition, of epsilon 3, delta 1e-06"):
        ledger.charged(Charge("more", "o", "q", "1/10", "0"))
    assert (each * k).exact_epsilon(1e-6) <= 3 < (each * (k + 1)).least(1e-6).epsilon
    assert k > 40
    assert "by exact composition (they add up to epsilon 4" in ledger.said()


ALL, ONE = ReleaseCost(Fraction(9), SMALL), ReleaseCost(Fraction(1))
DELTA = ReleaseCost(Fraction(1), SMALL)


@pytest.mark.parametrize(
    ("budget", "before", "cost", "error", "said"),
    [
        (ALL, None, DELTA, None, ""),
        (ALL, DELTA, DELTA, BudgetExhausted, ""),
        (ALL, DELTA, at_rho("1/100"), BudgetExhausted, ""),
        (ALL, at_rho("1/100"), DELTA, BudgetExhausted, ""),
        (ALL, ONE, at_rho("1/2"), None, ""),
        (ALL, ONE, at_rho(4), BudgetExhausted, "this release costs rho 4; with it all would cost epsilon"),
        (at_rho(1), at_rho("1/2"), ONE, None, ""),
        (at_rho(1), at_rho("6/10"), ONE, BudgetExhausted, r"costs rho 0\.5; left is 0\.4"),
        (at_rho(1), None, DELTA, ValueError, "holds no release with a delta"),
        (ReleaseCost(Fraction(3)), ReleaseCost(Fraction(3)), ONE, BudgetExhausted, "left are 0"),
        (ReleaseCost(Fraction(9)), None, at_rho("1/2"), ValueError, "holds nothing at rho"),
    ],
)
def test_what_is_beyond_a_budget_is_refused_by_every_way_to_add_up(budget, before, cost, error, said):
    """Rhos add up to the last that fits, and a pure epsilon is worth half its square; a cost with a delta has no worth,
    epsilon alone holds no rho, and deltas add up too where something at rho needs a part of them."""
    with pytest.raises(error, match=said or None) if error else nullcontext():
        refuse_beyond(budget, [before] if before else [], cost)
    assert total_cost(at_rho(1), [at_rho("1/2"), ONE]).cost.rho == 1


def test_a_number_is_told_in_few_digits_and_never_as_less():
    """Fractions that people wrote as they are."""
    for exact in (Fraction(1, 3), Fraction(10**9 + 1, 10**9), Fraction(2.0**0.5), Fraction(3), Fraction(1e-7 / 3)):
        told = ReleaseCost(exact).said().removeprefix("epsilon ")
        assert Fraction(told) >= exact
        assert len(told) < 20
    assert [ReleaseCost(exact).said() for exact in (Fraction(1, 3), Fraction(3))] == ["epsilon 1/3", "epsilon 3"]


@pytest.mark.parametrize(("epsilon", "delta", "rho"), [(None, 0, None), (1, 0, 1), (None, "1e-6", 1), (None, 0, 0)])
def test_either_epsilon_or_rho_is_spent(epsilon, delta, rho):
    """Both, neither, or a rho of none are refused; so is a budget that is none."""
    for text in ("rho=0", "rho=-1", "rho=x", "0", "rho"):
        with pytest.raises(ValueError, match="budget"):
            total_of(text)
    with pytest.raises(ValueError, match=r"--epsilon, with a --delta or without, or --rho|rho > 0"):
        spending(ENTRY, epsilon, delta, rho)


def test_a_persons_rho_is_shared_by_the_square_of_their_entries():
    """Group privacy of concentrated privacy; pure noise costs a person no more than that."""
    spent = spending(Unit("user", 3), None, 0, Fraction(9, 10))
    assert spent.rho == Fraction(1, 10)
    assert (3 * spent.epsilon) ** 2 / 2 <= Fraction(9, 10)


@pytest.mark.parametrize("mechanism", ["square-root", "ahead", "hdcr", None])
def test_a_release_at_rho_costs_rho_and_no_more(mechanism):
    """The Gaussian's length squared over two, or the pure epsilon's; a mechanism that costs more is refused."""
    query, calendar, spent = counting(["a"], ["a"], "a"), Calendar(0, 1, 40), spending(ENTRY, None, 0, "1/2")
    made = offered(mechanism).made(Asked(query, calendar, AtMost(2), *spent.each, rho=spent.rho))
    stated = made.guarantee
    assert (stated.rho or stated.epsilon**2 / 2) <= Fraction(1, 2)
    assert made.covers(query, calendar, AtMost(2))
    if mechanism is None:
        assert made.made_with()["kind"] == "optimised", "less noise than a pure epsilon of 1 over 40 periods"
    changelog = read_rows([("x", 1, "a")])
    with pytest.raises(ValueError, match="more than the budget"):
        Release(changelog, Statement("q", query, calendar, AtMost(2), replace(spent, rho=Fraction(1, 4))), made, None)


def released(log, name, epsilon=None, **more):
    return release_of(log, name, epsilon, **{"mechanism": "fresh", **more})


def test_a_release_at_rho_is_charged_stated_and_goes_on_at_rho(log, monkeypatch):
    """In its head with the epsilon that follows, in its ledger; another rho, or epsilon, is another release."""
    first = released(log, "one.csv", rho="1/2", budget="rho=1", through="2026-01-01T08:00")
    again = released(log, "one.csv", rho=0.5)
    assert dict(first.about) == dict(again.about)
    assert dict(first.about)["guarantee"].startswith("rho 0.5 (zCDP), so epsilon 5.2")
    assert (again.published, again.ledger.spent_rho, again.guarantee.rho) == (4, Fraction(1, 2), Fraction(1, 2))
    assert "cost an entry rho 0.5 of 1" in again.ledger.said()
    forbid_draws(monkeypatch)
    for other, words in (({"rho": "1/4"}, "another rho"), ({"epsilon": 1}, "another budget, rho")):
        with pytest.raises(BadState, match=words):
            released(log, "one.csv", **other)
    with pytest.raises(BudgetExhausted, match=r"costs rho 0\.6; left is 0\.5"):
        released(log, "two.csv", rho="0.6")
    with pytest.raises(ValueError, match="set once, as rho 1"):
        released(log, "two.csv", epsilon="0.1", budget=3)
    assert len(ledger_of(log).charges) == 1


def test_a_pure_release_at_rho_says_the_epsilon_that_it_is_by(log):
    """Which promises more; of a person with two entries, twice that of an entry."""
    one = released(log, "one.csv", rho="1/2", mechanism="dcr")
    assert dict(one.about)["guarantee"] == "epsilon 1, which is worth rho 0.5 (zCDP), for the whole release"
    assert (one.guarantee.epsilon, one.guarantee.delta) == (1, 0)
    with pytest.raises(ValueError, match="at rho dcr is released with laplace noise"):
        released(log, "two.csv", rho="1/2", mechanism="dcr", law="gaussian")


def test_the_commands_take_a_rho(log, capsys, monkeypatch):
    """release, ask and count; a cost in both is refused in a line."""
    assert command(log, "--rho", "1/2", "--budget", "rho=1", "--changelog-id", "tea") == 0
    said = capsys.readouterr().err
    assert "the whole release costs an entry at most rho 1/2\n" in said
    assert "1 release of the changelog tea cost an entry rho 0.5 of 1" in said
    assert command(log, "--rho", "1/2", "--epsilon", "1") == 1
    assert "--epsilon, with a --delta or without, or --rho" in capsys.readouterr().err
    table = log.with_name("table.csv")
    table.write_text("age\n30\n40\n")
    asked = ["ask", str(table), "--column", "age=0..99", "--query", "age >= 18", "-o", str(log.parent / "b.csv")]
    assert run([*asked, "--rho", "0.02", "--budget", "rho=0.1"]) == 0
    assert "cost an entry rho 0.02 of 0.1" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", iter(["3\n"]))
    counted = ["count", "--periods", "8", "--rho", "1/2", "--at-most", "2", "--memory", str(log.parent / "memory")]
    assert run(counted) == 0
    assert "epsilon 1 for an entry" in capsys.readouterr().err


def test_a_composition_of_compositions_is_the_one_of_all_base_queries():
    """Pan 2023, theorem 2.1 and corollary 2.1: counts add up before anything is computed."""
    one, other = Loss(0.2, 1e-7), Loss(0.4)
    nested = (Composition.of(one) * 2 + Composition.of(other)) + Composition.of(one) * 3
    assert nested == Composition.of(one, one, one, one, one, other)
    assert (nested.basic().epsilon, nested.basic().delta) == (pytest.approx(1.4), pytest.approx(5e-7))
    assert Composition().basic() == Loss(0.0)


@pytest.mark.parametrize("arguments", [(-1.0, 0.0), (1.0, 1.0), (float("inf"), 0.0), (1.0, -0.1)])
def test_impossible_losses_are_refused(arguments):
    """Named with their values; also a sum of deltas that promises nothing, and a delta below the queries' own."""
    with pytest.raises(ValueError, match="got"):
        Loss(*arguments)
    with pytest.raises(ValueError, match="delta < 1"):
        (Composition.of(Loss(0.1, 0.4)) * 3).basic()
    with pytest.raises(ValueError, match="deltas of their own"):
        (Composition.of(Loss(0.1, 1e-5)) * 3).least(1e-6)


def test_a_persons_share_of_the_largest_budget_is_a_number():
    """e^1000 is none; and for the others the share is what it was."""
    for epsilon in (Fraction(1, 1000), Fraction(3), Fraction(1000)):
        for most in (2, 7):
            each, delta = Unit("user", most).of_an_entry(epsilon, Fraction(1, 10))
            assert each * most == epsilon
            with localcontext(prec=60):
                e = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
                exact = ((e / most).exp() - 1) / (e.exp() - 1) / 10
                given = Decimal(delta.numerator) / Decimal(delta.denominator)
                assert given <= exact <= given * (1 + Decimal("1e-9")) + Decimal("1e-300")


@pytest.mark.parametrize(
    "losses",
    [[0.3] * 3, [0.01] * 300, [5.0] * 3, [0.1] * 5 + [0.25] * 6, [0.1] * 10, [0.1], [0.5] * 7, [1e-4] * 100],
    ids=lambda losses: f"{len(losses)} of {losses[0]}",
)
def test_the_exact_composition_is_the_optimum_and_never_below_it_however_small_the_delta(losses):
    """The law of the worst mechanisms' loss (Kairouz, Oh, Viswanath 2015), summed to 50 digits: floats of the
    transforms hide nothing, and the grid costs a thousandth a release at most."""
    composed = Composition.of(*map(Loss, losses))
    with localcontext(prec=50):
        law = {Decimal(0): Decimal(1)}
        for epsilon in sorted(set(losses)):
            e, k = Decimal(epsilon), losses.count(epsilon)
            right = e.exp() / (1 + e.exp())
            each = [((k - 2 * i) * e, comb(k, i) * right ** (k - i) * (1 - right) ** i) for i in range(k + 1)]
            sums: dict[Decimal, Decimal] = {}
            for (loss, p), (more, q) in product(law.items(), each):
                sums[loss + more] = sums.get(loss + more, Decimal(0)) + p * q
            law = sums

        def optimum(epsilon):
            return sum(p * (1 - (Decimal(epsilon) - loss).exp()) for loss, p in law.items() if loss > epsilon)

        for delta in (1e-3, 1e-6, 1e-9, 1e-12, 1e-14, 1e-15, 1e-16, 1e-25):
            epsilon = composed.exact_epsilon(delta)
            assert epsilon == inf or optimum(epsilon) <= Decimal(delta)
            assert optimum(composed.least(delta).epsilon * (1 + 1e-15)) <= Decimal(delta)
            if delta >= 1e-6 and epsilon > 1e-3 * len(losses):
                assert optimum(epsilon - 1e-3 * len(losses)) > Decimal(delta - 1e-9)


def test_a_basic_sum_is_never_rounded_below_what_it_adds_up():
    """Where one delta is all of the budget's, nothing is less than the sum of the epsilons: no float of it may be."""
    random, delta = Random(1), Fraction(1, 2**20)
    for _ in range(40):
        costs = [
            ReleaseCost(Fraction(random.randrange(1, 1000)), delta),
            ReleaseCost(Fraction(random.randrange(1, 10**6), 10**9)),
        ]
        exact = costs[0].epsilon + costs[1].epsilon
        rounded = Fraction(float(costs[0].epsilon) + float(costs[1].epsilon))
        for allowed in (rounded, exact):
            added = total_cost(ReleaseCost(allowed, delta), costs)
            assert added is not None
            assert added.cost.epsilon >= exact
            assert added.fits(ReleaseCost(allowed, delta)) == (exact <= allowed)
        below = [Loss(float(cost.epsilon), float(cost.delta)) for cost in costs]
        assert Composition.of(*below).basic().epsilon >= sum(Fraction(loss.epsilon) for loss in below)


def optimum(costs, epsilon):
    """The least delta of the worst mechanisms together: each tells all with its delta, else it is randomized response
    (Kairouz, Oh, Viswanath 2015); those at rho are Gaussian noise."""
    losses, kept = {0.0: 1.0}, 1.0
    for cost in costs:
        right, each = 1 / (1 + np.exp(-float(cost.epsilon))), {}
        for (loss, p), sign in product(losses.items(), (1, -1)):
            more = round(loss + sign * float(cost.epsilon), 12)
            each[more] = each.get(more, 0.0) + p * (right if sign > 0 else 1 - right)
        losses, kept = each, kept * (1 - float(cost.delta))
    length = sqrt(2 * sum(float(cost.rho or 0) for cost in costs)) or 1e-15
    return 1 - kept + kept * sum(p * gaussian_delta(length, epsilon - loss) for loss, p in losses.items())


EPSILONS = [("0.1", 0), ("1/3", "1e-7"), (1, 0), ("1/2", "1e-6"), (2, "1e-3")]
KINDS = [*(ReleaseCost(Fraction(e), Fraction(d)) for e, d in EPSILONS), at_rho("1/20"), at_rho("1/2")]


@pytest.mark.parametrize("size", [1, 2, pytest.param(3, marks=pytest.mark.heavy)])
def test_what_a_ledger_adds_up_is_between_the_optimum_and_the_basic_sum(size):
    """Every one, two and three of seven kinds of release, pure, with a delta and at rho: three under one delta."""
    deltas = ("1e-6", "1e-5", "1e-2") if size < 3 else ("1e-6",)
    for costs, delta in product(combinations_with_replacement(KINDS, size), deltas):
        added = total_cost(ReleaseCost(Fraction(1000), Fraction(delta)), costs)
        if added is None:
            continue
        assert optimum(costs, float(added.cost.epsilon)) <= float(added.cost.delta) * (1 + 1e-9) + 1e-15
        if all(cost.rho is None for cost in costs):
            assert added.cost.epsilon <= sum(cost.epsilon for cost in costs)
