"""Budgets, ledgers and queries at their edges: nothing is given back, charged once for two, or told by a refusal."""

import os
import shutil
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb, inf, sqrt
from random import Random
from threading import Barrier, Thread

import numpy as np
import polars as pl
import pytest
from changeling_central import (
    BadState,
    BudgetExhausted,
    Charge,
    Composition,
    Loss,
    ReleaseCost,
    answer_query,
    counting,
    release,
    square_root,
    total_cost,
)
from changeling_central.budget import Unit
from changeling_central.ledger import ReleaseLedger
from changeling_protocol import AtMost, Calendar
from scipy.special import log_ndtr

from .examples import DCR, TEA, forbid_draws, ledger_of, release_of


@pytest.mark.parametrize("mechanism", ["ahead", None])
@pytest.mark.parametrize("delta", ["-1e-6", "1", "2"])
def test_a_delta_that_is_none_is_refused_by_mechanisms_that_need_none_too(log, mechanism, delta, monkeypatch):
    """Below 0 it would give back what other releases have cost; nothing is drawn, and no ledger is written."""
    forbid_draws(monkeypatch)
    with pytest.raises(ValueError, match="0 <= delta < 1"):
        release_of(log, "one.csv", delta=delta, mechanism=mechanism)
    assert not log.with_name("log.csv.ledger").exists()
    for cost in (("1", "-1/9"), ("-1", "0")):
        with pytest.raises(ValueError, match="not negative"):
            ReleaseLedger("x", "entry").charged(Charge("a", "o", "q", *cost))


@pytest.mark.parametrize("mechanism", ["fresh", "dcr", None])
def test_noise_that_no_sampler_draws_is_refused_before_it_is_charged(log, mechanism):
    """A scale of 2^56 and more: neither a ledger nor an output is written, and no budget is gone."""
    far = {"epsilon": "1/1000000000", "output": log.parent / "far.csv", **DCR, "mechanism": mechanism}
    with pytest.raises(ValueError, match=r"at most 2\^56"):
        release(log, f"sum of answer from 0 to {9 * 10**15}", **far)
    assert sorted(path.suffix for path in log.parent.iterdir()) == [".csv"]


def test_a_ledger_that_is_a_link_stays_one_ledger(log):
    """Charged by either of its names, it adds up, so that a third release is too much."""
    real, link = log.parent / "real.ledger", log.parent / "link.ledger"
    release_of(log, "a.csv", ledger=real, budget=2)
    link.symlink_to(real)
    assert release_of(log, "b.csv", ledger=link).ledger.spent == (2, 0)
    assert link.is_symlink()
    with pytest.raises(BudgetExhausted):
        release_of(log, "c.csv", ledger=real)


def test_a_copy_of_a_state_does_not_draw_for_what_is_charged_once(log, monkeypatch):
    """Beside the original it is refused before drawing; moved, even where another release took the old name, it goes
    on."""
    release_of(log, "a.csv", through="2026-01-01T04:00", budget=2)
    for end in ("", ".state"):
        shutil.copy(log.parent / f"a.csv{end}", log.parent / f"b.csv{end}")
    with monkeypatch.context() as patch:
        forbid_draws(patch)
        with pytest.raises(BadState, match="a copy of the state"):
            release_of(log, "b.csv")
    for end in ("", ".state"):
        os.remove(log.parent / f"a.csv{end}")
    release_of(log, "a.csv", through="2026-01-01T04:00")
    assert release_of(log, "b.csv").published == 5
    assert ledger_of(log).spent == (2, 0)


def test_of_two_releases_at_once_that_are_too_much_together_one_draws(log):
    """Both see that there is enough before either is charged."""
    release_of(log, "first.csv", budget=2)
    done, start = [], Barrier(2)

    def run(name):
        start.wait()
        try:
            done.append(len(release_of(log, name).rows()))
        except BudgetExhausted:
            done.append(0)

    threads = [Thread(target=run, args=(name,)) for name in ("a.csv", "b.csv")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 6]
    assert ledger_of(log).spent == (2, 0)


def test_that_the_changelog_goes_on_is_said_to_the_curator_alone(log):
    """One entry's mutation beyond the end would be seen in it."""
    asides = []
    for rows in (TEA, {key: [*values, more] for (key, values), more in zip(TEA.items(), LATE, strict=True)}):
        pl.DataFrame(rows).write_csv(log)
        released = release_of(log, "a.csv")
        assert not released.notes
        asides.append(any("goes on after the calendar's end" in said for said in released.asides))
    assert asides == [False, True]


LATE = ("x", "2026-03-01T00:00:00Z", "tea", "x")


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


def test_noise_below_what_the_lattice_holds_is_refused():
    """At epsilon 10^10 C's coefficients take more than 64 bits; at the largest budget of a release they do not."""
    count, calendar = counting("ab", "a", "a"), Calendar(0, 1, 7)
    with pytest.raises(ValueError, match="hides nothing"):
        square_root(count, calendar, AtMost(2), Fraction(10**10), Fraction(1, 10**6))
    assert square_root(count, calendar, AtMost(1), Fraction(1000), Fraction(999, 1000)).bits <= 54


@pytest.mark.parametrize("tenth", range(1, 10))
def test_no_number_that_somebody_gives_stops_a_mean(tenth):
    """Units far finer than a float of the bounds: the bounds count as they are written."""
    answers = ["1e308", "-1e308", "1000000.05", "nan", "inf", "1e400", "9" * 400, "weird", ""]
    query = answer_query(f"mean of answer from 1000000 to 1000000.{tenth} by 0.0000000000001", answers)
    assert np.abs(query.cells).max() == query.appearing[0]
    assert query.table[4:] == ((0, 0),) * 6


@pytest.mark.parametrize("losses", [[0.3] * 3, [0.01] * 300, [5.0] * 3, [0.1] * 5 + [0.25] * 6, [0.1] * 10])
def test_the_exact_composition_is_never_below_the_optimum_however_small_the_delta(losses):
    """The law of the worst mechanisms' loss, summed to 50 digits; floats of the transforms hide nothing."""
    composed = Composition.of(*map(Loss, losses))
    with localcontext(prec=50):
        law = {Decimal(0): Decimal(1)}
        for epsilon in sorted(set(losses)):
            e, k = Decimal(epsilon), losses.count(epsilon)
            right = e.exp() / (1 + e.exp())
            each = [((k - 2 * i) * e, comb(k, i) * right ** (k - i) * (1 - right) ** i) for i in range(k + 1)]
            sums: dict[Decimal, Decimal] = {}
            for loss, p in law.items():
                for more, q in each:
                    sums[loss + more] = sums.get(loss + more, Decimal(0)) + p * q
            law = sums

        def optimum(epsilon):
            return sum(p * (1 - (Decimal(epsilon) - loss).exp()) for loss, p in law.items() if loss > epsilon)

        for delta in (1e-3, 1e-6, 1e-9, 1e-12, 1e-14, 1e-15, 1e-16, 1e-25):
            epsilon = composed.exact_epsilon(delta)
            assert epsilon == inf or optimum(epsilon) <= Decimal(delta)
            assert optimum(composed.least(delta).epsilon * (1 + 1e-15)) <= Decimal(delta)
        for part in (0.0, 0.25, 0.5, 0.9, 0.99, 1.0):
            assert optimum(part * sum(losses)) <= Decimal(composed.exact_delta(part * sum(losses)))


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


def gaussian_delta(length, epsilon):
    """Of a shift of this length under normal noise of scale 1."""
    if not length:
        return max(0.0, -np.expm1(epsilon))
    with_it, without = log_ndtr(length / 2 - epsilon / length), epsilon + log_ndtr(-length / 2 - epsilon / length)
    return float(-np.exp(with_it) * np.expm1(min(0.0, without - with_it)))


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
    length = sqrt(2 * sum(float(cost.rho or 0) for cost in costs))
    return 1 - kept + kept * sum(p * gaussian_delta(length, epsilon - loss) for loss, p in losses.items())


KINDS = [
    *(
        ReleaseCost(Fraction(e), Fraction(d))
        for e, d in (("0.1", 0), ("1/3", "1e-7"), (1, 0), ("1/2", "1e-6"), (2, "1e-3"))
    ),
    *(ReleaseCost(Fraction(0), Fraction(0), Fraction(rho)) for rho in ("1/20", "1/2")),
]


@pytest.mark.parametrize("size", [1, 2, pytest.param(3, marks=pytest.mark.heavy)])
def test_what_a_ledger_adds_up_is_between_the_optimum_and_the_basic_sum(size):
    """Every one, two and three of seven kinds of release, pure, with a delta and at rho, under three deltas."""
    for costs, delta in product(combinations_with_replacement(KINDS, size), ("1e-6", "1e-5", "1e-2")):
        added = total_cost(ReleaseCost(Fraction(1000), Fraction(delta)), costs)
        if added is None:
            continue
        assert optimum(costs, float(added.cost.epsilon)) <= float(added.cost.delta) * (1 + 1e-9) + 1e-15
        if all(cost.rho is None for cost in costs):
            assert added.cost.epsilon <= sum(cost.epsilon for cost in costs)
