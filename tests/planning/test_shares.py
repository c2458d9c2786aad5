"""Optimal shares: against brute force on tiny problems, and their certificate against every feasible plan."""

from itertools import product

import numpy as np
import pytest
from changeling_statistics.planning.candidates import candidates
from changeling_statistics.planning.design_problem import Problem
from changeling_statistics.planning.shares import optimal_shares, rounded_shares
from hypothesis import given, settings
from hypothesis import strategies as st

from .wishes import wish

GRID = 12


def problem(of):
    return Problem(candidates(of), of.periods, of.retrospective)


def value(problem, f, objective="mean"):
    found = problem.at(f, np.full(problem.periods, 1 / problem.periods)).resistances
    return found.mean() if objective == "mean" else found.max()


@pytest.mark.parametrize("retrospective", [False, True])
@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("closed", [False, True])
def test_no_shares_on_a_grid_do_better_than_the_optimum(retrospective, objective, closed):
    """Three groups, every division in twelfths: none below the bound, none better than the optimum by a percent."""
    few = problem(wish(periods=5, retrospective=retrospective, closed=closed))
    kinds = {}
    for candidate in few.candidates:
        kinds.setdefault(candidate.kind, candidate)
    tiny = Problem(list(kinds.values())[:3], 5, retrospective)
    found = optimal_shares(tiny, objective)
    least = min(
        value(tiny, np.array([a, b, GRID - a - b]) / GRID, objective)
        for a, b in product(range(GRID + 1), repeat=2)
        if a + b <= GRID
    )
    assert found.bound <= least
    assert found.value <= 1.012 * least
    assert found.value == pytest.approx(value(tiny, found.f, objective))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    closed=st.booleans(),
    retrospective=st.booleans(),
    objective=st.sampled_from(["mean", "worst"]),
)
def test_the_bound_is_never_above_what_any_shares_reach(seed, closed, retrospective, objective):
    """The dual certificate, against random shares near and far from the optimum."""
    generator = np.random.default_rng(seed)
    of = wish(
        periods=int(generator.integers(1, 9)),
        k=int(generator.integers(1, 5)),
        epsilon=f"{generator.uniform(0.1, 20):.3f}",
        closed=closed,
        retrospective=retrospective,
    )
    whole = problem(of)
    found = optimal_shares(whole, objective)
    for mixed in (0.0, 0.9, 0.99):
        f = generator.dirichlet(np.full(len(found.f), 0.2))
        assert value(whole, mixed * found.f + (1 - mixed) * f, objective) >= found.bound * (1 - 1e-9)
    assert found.value >= found.bound * (1 - 1e-9)


@pytest.mark.parametrize("retrospective", [False, True])
@pytest.mark.parametrize("epsilon", ["0.5", "4", "30"])
def test_the_gap_is_closed_and_rounding_keeps_it_small(epsilon, retrospective):
    """Under 1% before and after the shares are made small integers, with far fewer groups than candidates."""
    whole = problem(wish(periods=40, epsilon=epsilon, retrospective=retrospective))
    found = optimal_shares(whole)
    assert found.gap < 0.01
    integers, reached = rounded_shares(whole, found)
    assert reached == pytest.approx(value(whole, integers / integers.sum()))
    assert 1 - found.bound / reached < 0.012
    assert 0 < (integers > 0).sum() < len(integers) / 4
    assert np.gcd.reduce(integers[integers > 0]) == 1


def test_slopes_are_the_derivatives_of_the_mean_resistance():
    """φ_g = -∂R/∂f_g, by finite differences, and R = Σ f φ."""
    whole = problem(wish(periods=6, closed=True))
    generator = np.random.default_rng(1)
    f, w = generator.dirichlet(np.ones(len(whole.candidates))), np.full(6, 1 / 6)
    point = whole.at(f, w)
    assert point.value == pytest.approx(f @ point.slopes)
    for g in generator.integers(0, len(f), 8):
        step = np.zeros(len(f))
        step[g] = 1e-6
        slope = (whole.at(f - step * (f[g] > 1e-6), w).value - whole.at(f + step, w).value) / (
            1e-6 * (1 + (f[g] > 1e-6))
        )
        assert slope == pytest.approx(point.slopes[g], rel=1e-3)
