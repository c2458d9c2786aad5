"""Predicted variances, against those of the estimator for everybody's histories."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from changeling_protocol import (
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Track,
    TrackNumber,
)
from changeling_simulations import Population, exact_error
from changeling_statistics import (
    Attendance,
    NodeTally,
    Solution,
    Tallies,
    conserves,
    counterpart_of,
    optimal_plan,
    predict,
    releases,
    without_sum,
)
from changeling_statistics.estimation.entries import SamplingDesign, draws, ties
from changeling_statistics.planning.prediction import PlannedEdges

from tests.true_sampling import true_sampling_covariance

from .wishes import wish


def mixed_plan(answers, periods):
    """Panels of one and of two random nodes, changes, a mix, and a joint mix, of very different shares."""
    changes, states = MutationSpace(answers), StateSpace(answers)
    return ReleasePlan(
        (
            Group((Track(1, KaryResponse(states, Odds(5, 1)), 0, periods, reported=2),), share=5),
            Group((Track(1, SignedSubset(changes, Odds(9, 2), 0, Fraction(1, 2)), 0, periods),), share=3),
            Group(
                (
                    Track(1, KaryResponse(states, Odds(4, 1)), 0, 1),
                    Track(1, KaryResponse(changes, Odds(3, 1)), 1, periods),
                ),
                share=2,
            ),
            Group.jointly(
                (
                    Track(1, SubsetSelection(states, Odds(2, 1), answers // 2), 0, periods, reported=1),
                    Track(1, KaryChange(changes, Odds(2, 1)), 0, periods, reported=2),
                ),
                Joint(Odds(40, 1), 3, (2, 1), (1, 2)),
                share=4,
            ),
        )
    )


def small():
    """Three entries of an open cohort under a mixed plan."""
    survey = wish(periods=3, answers=2, devices=3).survey(mixed_plan(2, 3))
    return survey, np.array([[0, 1, 1, 2], [0, 0, 2, 2], [0, 2, 1, 0]], np.uint16)


def best():
    """A closed cohort of 200 under the best plan for it."""
    of, generator = wish(periods=8, answers=3, devices=200, closed=True), np.random.default_rng(2)
    states = np.zeros((200, 9), np.uint16)
    states[:, 1] = generator.integers(1, 4, 200)
    for time in range(2, 9):
        states[:, time] = np.where(generator.random(200) < 0.1, generator.integers(1, 4, 200), states[:, time - 1])
    return of.survey(optimal_plan(of).plan), states


def response(survey, edges, row, states):
    """Σ_e K_e² C_e of all entries, from the exact covariance of each report."""
    z, plan = len(survey.answers), survey.plan
    total = np.zeros((z, z))
    for K, start, end, number in zip(row, edges.start, edges.end, edges.track, strict=True):
        track, share = plan.tracks[number], plan.groups[plan.group_of(number)].share / plan.total_share
        for old, new in states[:, [end - track.width, end]].tolist():
            one = counterpart_of(track.randomizer).report_covariance(track.randomizer.space.index(old, new))
            if conserves(survey.closed, track.reports_changes, start):
                one = without_sum(np.zeros(z), one)[1]
            total += K**2 * one * track.count / track.reports / share
    return total


@pytest.mark.parametrize("retrospective", [False, True])
@pytest.mark.parametrize("lived", [small, best])
def test_the_predicted_variance_is_that_of_the_estimator_over_everybody_s_histories(lived, retrospective):
    """Of groups, random nodes and symbols, whose covariance `tests/estimation/test_joint_covariance.py` enumerates.

    What drawing from so few entries adds is counted n/(n - 1) times, which makes up for their own mean.
    """
    survey, states = lived()
    n, z, plan = len(states), len(survey.answers), survey.plan
    population = Population(survey.answers, states, states, np.ones(n, np.int64))
    found = exact_error(population, survey, retrospective=retrospective)
    edges = PlannedEdges(survey)
    K, _ = edges.weights(retrospective)
    kept, scatter = draws(plan.tracks)
    sampled = SamplingDesign(
        start=edges.start,
        end=edges.end,
        group=edges.group,
        track=edges.track,
        expansion=np.array([[plan.total_share / group.share for group in plan.groups]]),
        group_of=np.array([plan.group_of(track) for track in range(len(plan.tracks))]),
        kept=kept,
        scatter=scatter,
        whole=np.ones(1),
        entries=np.array([float(n)]),
    )
    whole = replace(sampled, ties=ties(survey))
    for at, row in enumerate(K):
        of_draws, of_all = (true_sampling_covariance(each, row, states, z) for each in (sampled, whole))
        assert found.sampling[at] == pytest.approx(np.trace(of_draws) / z / n**2, rel=1e-6, abs=1e-12)
        exact = np.trace(of_all + response(survey, edges, row, states)) / z / n**2
        assert found.errors[at] ** 2 == pytest.approx(exact, rel=1e-6, abs=1e-12)


def test_four_times_the_devices_halve_the_error_and_devices_needed_follow():
    """Errors fall with the root of the number; devices_for inverts that. Where everybody is on all tracks what is left
    is the randomizers' noise. Devices, periods and errors that make no sense are named."""
    of = wish(periods=6)
    survey = of.survey(mixed_plan(3, 6))
    few, many = predict(survey, 1000), predict(survey, 4000)
    whole = of.survey(ReleasePlan((Group((Track(1, KaryResponse(MutationSpace(3), Odds(5, 1)), 0, 6),)),)))
    assert not predict(whole, 100).sampling.any()
    assert (predict(whole, 100).response > 0).all()
    np.testing.assert_allclose(few.errors, 2 * many.errors)
    needed = few.devices_for(0.02)
    assert predict(survey, round(needed)).mean == pytest.approx(0.02, rel=1e-3)
    assert many.devices_for(0.02) == pytest.approx(needed)
    for asked, named in (
        (lambda: predict(survey, 0), "got 0"),
        (lambda: few.at(7), "1 to 6, got 7"),
        (lambda: few.devices_for(0), "above 0, got 0"),
    ):
        with pytest.raises(ValueError, match=named):
            asked()


def test_a_period_that_nothing_connects_is_predicted_to_have_no_finite_error():
    """Pairs of periods alone tell of every second time only, until a later one is known."""
    of = wish(periods=4)
    survey = of.survey(ReleasePlan((Group((Track(2, KaryResponse(MutationSpace(3), Odds(5, 1)), 0, 4),)),)))
    found = predict(survey, 100)
    assert np.isfinite(found.errors).tolist() == [False, True, False, True]
    assert found.devices_for() == np.inf


@pytest.mark.parametrize("retrospective", [False, True])
def test_parts_that_float_are_weighed_as_the_estimator_does(retrospective):
    """Changes from period 1 on with the state at period 3 alone: before it nothing is known, after it everything."""
    of = wish(periods=5, retrospective=retrospective)
    changes, states = KaryResponse(MutationSpace(3), Odds(5, 1)), KaryResponse(StateSpace(3), Odds(5, 1))
    tracks = (Track(1, changes, 1, 5), Track(3, changes, 1, 5), Track(1, states, 2, 3))
    survey = of.survey(ReleasePlan((Group(tracks),)))
    found = predict(survey, 100, retrospective=retrospective)
    assert np.isfinite(found.errors).tolist() == [retrospective] * 2 + [True] * 3
    tally_of = {
        (TrackNumber(number), node): NodeTally(100, np.full(track.randomizer.symbols, 100))
        for number, track in enumerate(survey.plan.tracks)
        for node in track.node_numbers()
    }
    attendance = {(0, period): Attendance(100, 100 if period == 2 else 0) for period in range(2, 6)}
    solution = Solution(releases(survey, Tallies(tally_of, attendance)), retrospective)
    planned = solution.releases.network.variance
    for time in (3, 4, 5):
        assert found.errors[time - 1] ** 2 == pytest.approx(solution.row(time) ** 2 @ planned / 100**2)


def test_a_point_takes_at_least_one_device():
    """At an epsilon of 32 the noise of one device is far below a point: the figure is 1, and never 0."""
    prediction = optimal_plan(wish(1, 2, 1, "32", closed=True, later=0)).option.prediction
    assert prediction.mean * prediction.devices**0.5 < 0.01
    assert prediction.devices_for(0.01) == 1
