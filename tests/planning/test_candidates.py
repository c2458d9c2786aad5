"""The groups that a plan may be made of, and their optimal shares: against brute force, and a certificate."""

from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from changeling_protocol import (
    BALANCED,
    SYMBOL_LIMIT,
    AtMost,
    AtMostWithin,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    TimeBounded,
    plan_cost,
    track_cost,
)
from changeling_statistics import class_variances, predict
from changeling_statistics.estimation.entries import expected_moments
from changeling_statistics.planning.candidates import Maker, best_change, best_state, closer_look, first_look
from changeling_statistics.planning.prediction import Span, odds_within, reports_that_tell
from changeling_statistics.planning.shares import ShareProblem, even, optimal_shares, publishable_shares, rounded_shares
from changeling_statistics.randomizers import naming
from changeling_statistics.randomizers import signed_subset as signed
from changeling_statistics.randomizers.counterpart import ONE_CHANGE
from hypothesis import given, settings
from hypothesis import strategies as st

from .wishes import wish


def test_the_least_budget_of_all_has_candidates_and_a_closed_cohort_wastes_nothing_on_null():
    """Nothing in them is infinite; after the first period everybody has an answer."""
    found = list(first_look(Maker(wish(epsilon="0.001", periods=9, closed=True))))
    assert found
    assert all(np.isfinite(candidate.rows).all() for candidate in found)
    for track in (track for candidate in found for track in candidate.group.tracks):
        assert track.randomizer.space.null == (track.reports_changes and track.first == 0)


@pytest.mark.heavy
@pytest.mark.parametrize("closed", [False, True])
def test_every_kind_is_tried_and_every_candidate_is_a_plan_within_the_budget(closed):
    """Each group alone charges at most epsilon, whatever it says; all but single reports are joint."""
    of = wish(periods=12, closed=closed)
    found = list(first_look(Maker(of)))
    found += closer_look(Maker(of), found)
    assert {candidate.kind for candidate in found} == {"panel", "changes", "hierarchy", "mix", "history"}
    for candidate in found:
        group = candidate.group
        assert plan_cost(ReleasePlan((group,)), of.calendar, of.constraint, closed) <= of.epsilon
        assert (group.joint is None) == (sum(track.reports for track in group.tracks) == 1)
    assert any(track.reported and track.reports_changes for candidate in found for track in candidate.group.tracks)


def test_what_has_more_slots_than_a_device_counts_gets_a_budget_for_each_report():
    """Changes that may lie in 300 nodes."""
    of = wish(periods=320, constraint=TimeBounded(300 * 60))
    (candidate,) = Maker(of).candidates("changes", (), (Span(1, 0, 320),), 1)
    assert candidate.group.joint is None
    assert plan_cost(ReleasePlan((candidate.group,)), of.calendar, of.constraint) <= of.epsilon


@pytest.mark.parametrize("moved", [0.001, 0.02, 0.3])
def test_the_chance_to_speak_is_the_best_one(moved):
    """No other u gives less variance for this share of changes."""
    randomizer = signed.best_spoken(MutationSpace(4), Odds(20, 1), 0, moved, False)
    u = float(randomizer.spoken)
    for factor in (0.5, 0.9, 1.1, 2.0):
        if u * factor <= 1:
            other = SignedSubset(randomizer.space, Odds(20, 1), 0, Fraction(u * factor))
            assert class_variances(other, False).mixed(moved) >= class_variances(randomizer, False).mixed(moved) - 1e-12


def test_the_best_state_report_is_no_noisier_than_any_other():
    """At small budgets larger subsets win over k-RR, at large ones k-RR does."""
    small, large = best_state(16, False, Decimal("0.5"), 1), best_state(16, False, Decimal(8), 1)
    assert isinstance(small, SubsetSelection)
    assert isinstance(large, KaryResponse)
    odds = odds_within(Decimal("0.5"), Decimal(1))
    for chosen in range(2, 16):
        rival = SubsetSelection(StateSpace(16, False), odds, chosen)
        assert class_variances(rival, False).came >= class_variances(small, False).came - 1e-12


def test_few_changes_are_told_by_signed_subsets_and_a_budget_that_says_nothing_by_none():
    """A change costs a signed subset once and k-RR twice; below the least epsilon there is no report."""
    span = Span(1, 0, 16)
    assert isinstance(best_change(wish(), span, Decimal(6), 0.01), SignedSubset)
    assert best_change(wish(), span, Decimal("0.0005"), 0.01) is None
    assert best_state(3, True, Decimal("0.0005"), 1) is None


@pytest.mark.parametrize("span", [Span(1, 0, 16), Span(5, 0, 16), Span(3, 1, 16), Span(2, 0, 16, 3), Span(16, 0, 16)])
def test_reports_that_tell_are_counted_as_the_charge_counts_them(span):
    """Odds from the inverse of cost(κ, N) charge at most the budget, and all of it where anything tells."""
    constraints = AtMost(1), AtMost(3), AtMost(9), TimeBounded(150), AtMostWithin(3, 1500)
    for closed, constraint in product((False, True), constraints):
        spends_what_it_may(wish(constraint=constraint, closed=closed), span)


def spends_what_it_may(of, span):
    budget = Decimal(5)
    truth_odds = odds_within(budget, reports_that_tell(of, span, naming.UNIT_LOSSES))
    sign_odds = odds_within(budget, reports_that_tell(of, span, ONE_CHANGE))
    for randomizer, unit in (
        (KaryResponse(MutationSpace(3), truth_odds), naming.UNIT_LOSSES),
        (signed.best_spoken(MutationSpace(3), sign_odds, 0, 0.1, False), ONE_CHANGE),
    ):
        track = span.track(randomizer)
        cost = track_cost(track, of.calendar, of.constraint, of.closed)
        assert cost <= budget
        if reports_that_tell(of, span, unit):
            assert cost > budget * Decimal("0.999")


@pytest.mark.parametrize("answers", [65, 66, 99])
def test_only_what_can_be_made_is_offered(answers):
    """From 66 answers on balanced vectors do not fit into a symbol; vectors of fewer signs do, and are taken."""
    best = best_change(wish(answers=answers), Span(1, 0, 16), Decimal(6), 0.01)
    assert best.symbols < SYMBOL_LIMIT
    offered = {offer.pluses for offer in signed.changes(MutationSpace(answers), Odds(12, 1), 0.01, False)}
    assert (BALANCED in offered) == (answers < 66)
    assert 1 in offered


GRID, GAP = 12, 0.003


def problem(of, chosen=slice(None)):
    own = np.diagonal(expected_moments(of.answers, of.expected, of.periods).centred)[1:].copy()
    return ShareProblem(list(first_look(Maker(of)))[chosen], own, of.retrospective, np.arange(1, of.periods + 1))


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
    some = problem(of, slice(None, None, 9))
    shares = np.arange(1, len(some.candidates) + 1)
    groups = (candidate.group for candidate in some.candidates)
    plan = ReleasePlan(tuple(Group(g.tracks, int(s), g.joint) for g, s in zip(groups, shares, strict=True)))
    assert any(group.joint for group in plan.groups)
    assert any(track.reported for track in plan.tracks)
    predicted = predict(of.survey(plan), 100, retrospective=retrospective)
    np.testing.assert_allclose(some.at(shares / shares.sum(), even(7)).variances / 100, predicted.errors**2, rtol=1e-6)


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


@pytest.mark.parametrize(
    ("epsilon", "retrospective"), [("0.5", True), pytest.param("30", False, marks=pytest.mark.heavy)]
)
def test_the_gap_is_closed_and_rounding_keeps_it_small(epsilon, retrospective):
    """Under 1% before and after the shares are made small integers, with far fewer groups than candidates."""
    whole = problem(wish(periods=16, epsilon=epsilon, retrospective=retrospective))
    found = best(whole)
    assert found.gap < 0.01
    integers = rounded_shares(whole, found, even(16), "mean")
    assert 1 - found.bound / error(whole, integers / integers.sum()) < 0.012
    assert 0 < (integers > 0).sum() < len(integers) / 4
    assert np.gcd.reduce(integers[integers > 0]) == 1
