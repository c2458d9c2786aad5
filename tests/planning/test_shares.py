"""Optimal shares: against brute force on tiny problems, and their certificate against every feasible plan."""

from itertools import product

import numpy as np
import pytest
from changeling_protocol import Group, ReleasePlan
from changeling_statistics import predict
from changeling_statistics.estimation.entries import expected_moments
from changeling_statistics.planning.candidates import Maker, first_look
from changeling_statistics.planning.shares import ShareProblem, even, optimal_shares, publishable_shares, rounded_shares
from hypothesis import given, settings
from hypothesis import strategies as st

from .wishes import wish

GRID, GAP = 12, 0.003


def problem(of):
    own = np.diagonal(expected_moments(of.answers, of.expected, of.periods).centred)[1:].copy()
    return ShareProblem(list(first_look(Maker(of))), own, of.retrospective, np.arange(1, of.periods + 1))


def best(problem, objective="mean"):
    return optimal_shares(problem, even(len(problem.times)), objective, GAP)


def error(problem, f, objective="mean"):
    found = problem.at(f, even(len(problem.times))).variances
    return found.mean() if objective == "mean" else found.max()


@pytest.mark.parametrize("retrospective", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_the_objective_is_the_variance_that_is_predicted_for_the_plan(retrospective, closed):
    """Joint groups, random nodes and all: the problem at integer shares against the prediction of that plan."""
    of = wish(periods=7, closed=closed, retrospective=retrospective, devices=100)
    whole = problem(of)
    chosen = np.random.default_rng(5).choice(len(whole.candidates), 9, replace=False)
    chosen = np.union1d(chosen, [0, 1])
    shares = np.arange(1, len(chosen) + 1)
    groups = (whole.candidates[i].group for i in chosen)
    plan = ReleasePlan(tuple(Group(g.tracks, int(s), g.joint) for g, s in zip(groups, shares, strict=True)))
    f = np.zeros(len(whole.candidates))
    f[chosen] = shares / shares.sum()
    predicted = predict(of.survey(plan), 100, retrospective=retrospective)
    np.testing.assert_allclose(whole.at(f, even(7)).variances / 100, predicted.errors**2, rtol=1e-6)


@pytest.mark.parametrize(("devices", "closed"), [(200, False), (400, True), (1500, False)])
def test_no_publishable_shares_on_a_grid_do_much_better_than_those_that_are_found(devices, closed):
    """Four groups and a minimum of 100: every division in twelfths with which all nodes are published, within 3%."""
    whole = problem(wish(periods=6, devices=devices, minimum=100, closed=closed, epsilon="2"))
    order = np.argsort(whole.least, kind="stable")
    tiny = whole.restricted(order[np.linspace(0, len(order) - 1, 4).round().astype(int)])
    weights = even(6)
    found = publishable_shares(tiny, optimal_shares(tiny, weights, "mean", GAP), weights, "mean", GAP)
    assert ((found.f == 0) | (found.f >= tiny.least * (1 - 1e-9))).all()
    assert found.f.sum() == pytest.approx(1)
    grid = (np.array(each) / GRID for each in product(range(GRID + 1), repeat=4) if sum(each) == GRID)
    errors = [error(tiny, f) for f in grid if ((f == 0) | (f >= tiny.least)).all()]
    assert found.error == pytest.approx(error(tiny, found.f))
    assert found.error <= 1.03 * min(errors)


@pytest.mark.parametrize(("retrospective", "closed"), [(False, True), (True, False)])
@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_no_shares_on_a_grid_do_better_than_the_optimum(retrospective, objective, closed):
    """Three groups, every division in twelfths: none below the bound, none better than the optimum by a percent."""
    whole = problem(wish(periods=5, retrospective=retrospective, closed=closed))
    kinds = {}
    for candidate in whole.candidates:
        kinds.setdefault(candidate.kind, candidate)
    tiny = ShareProblem(list(kinds.values())[:3], whole.own, retrospective, whole.times)
    found = best(tiny, objective)
    divisions = (np.array([a, b, GRID - a - b]) / GRID for a, b in product(range(GRID + 1), repeat=2) if a + b <= GRID)
    least = min(error(tiny, f, objective) for f in divisions)
    assert found.bound <= least * (1 + 1e-12)
    assert found.error <= 1.012 * least
    assert found.error == pytest.approx(error(tiny, found.f, objective))


@pytest.mark.heavy
@settings(max_examples=6)
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
    found = best(whole, objective)
    bound = found.bound * (1 - 1e-9) - 1e-12  # errors are small differences of figures near 1
    for mixed in (0.0, 0.9, 0.99):
        f = generator.dirichlet(np.full(len(found.f), 0.2))
        assert error(whole, mixed * found.f + (1 - mixed) * f, objective) >= bound
    assert found.error >= bound


@pytest.mark.parametrize(("epsilon", "retrospective"), [("0.5", True), ("30", False)])
def test_the_gap_is_closed_and_rounding_keeps_it_small(epsilon, retrospective):
    """Under 1% before and after the shares are made small integers, with far fewer groups than candidates."""
    whole = problem(wish(periods=16, epsilon=epsilon, retrospective=retrospective))
    found = best(whole)
    assert found.gap < 0.01
    integers = rounded_shares(whole, found, even(16), "mean")
    assert 1 - found.bound / error(whole, integers / integers.sum()) < 0.012
    assert 0 < (integers > 0).sum() < len(integers) / 4
    assert np.gcd.reduce(integers[integers > 0]) == 1
