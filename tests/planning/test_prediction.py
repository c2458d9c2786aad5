"""Predicted variances, against enumeration of everything one entry can do, and against the estimator's own."""

from fractions import Fraction
from itertools import combinations, product

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
    counterpart_of,
    optimal_plan,
    predict,
    releases,
)
from changeling_statistics.estimation.entries import SamplingDesign, draws
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


def one_entry(survey, history, row, held):
    """Every (probability, Σ_e K_e {μ_e + (decoded - μ_e) / π_e}, the same of the truth) of one entry, each (z,).

    That is over groups, random nodes and symbols. Estimators are ratios: what is drawn varies about the mean μ_e.
    row: K, in the order of `PlannedEdges`. held: the share of the entries with each answer, shape (T + 1, z).
    """
    plan, edges = survey.plan, PlannedEdges(survey)
    weight = {(track, end): K for track, end, K in zip(edges.track, edges.end, row, strict=True)}
    whole, states = row @ (held[edges.end] - held[edges.start]), np.eye(len(survey.answers) + 1)[history][:, 1:]
    for group, each in enumerate(plan.groups):
        share = each.share / plan.total_share
        numbered = list(plan.numbered(group))
        decoded = [decoded_symbols(track.randomizer) for track in each.tracks]
        drawn = [list(combinations(track.nodes(), track.reports)) for _, track in numbered]
        for nodes in product(*drawn):
            chance = share / np.prod([len(sets) for sets in drawn])
            asked = [
                (place, node, weight[number, node.end] / share * track.count / track.reports, track.reports_changes)
                for place, ((number, track), chosen) in enumerate(zip(numbered, nodes, strict=True))
                for node in chosen
            ]
            for probability, symbols in transcripts(each, [(place, node) for place, node, _, _ in asked], history):
                said, true = whole.copy(), whole.copy()
                for (place, node, worth, changes), symbol in zip(asked, symbols, strict=True):
                    start = node.start if changes else 0
                    mean = held[node.end] - held[start]
                    said += worth * (decoded[place][symbol] - mean)
                    true += worth * (states[node.end] - states[start] - mean)
                yield chance * probability, said, true


def decoded_symbols(randomizer):
    """The estimate from a single report, by its symbol."""
    counterpart = counterpart_of(randomizer)
    tallies = (counterpart.tally(np.array([symbol], np.uint64)) for symbol in range(randomizer.symbols))
    return [counterpart.estimate(tally).values for tally in tallies]


def transcripts(group, asked, history):
    """Every (probability, symbols) of one entry's reports on these nodes, as a device draws them in turn."""
    slots = len(group.tracks)
    told = [(1.0, (), (0,) * slots, 0)]
    for place, node in asked:
        randomizer = group.tracks[place].randomizer
        true = randomizer.space.index(int(history[node.start]), int(history[node.end]))
        further = []
        for probability, symbols, used, score in told:
            telling = group.joint is not None and randomizer.tells(true)
            odds = group.kernel.conditional_odds(place, used, score) if telling else None
            for symbol in range(randomizer.symbols):
                if odds is None:
                    chance, after = randomizer.weight(symbol, true) / randomizer.total(true), score
                else:
                    agrees, p = randomizer.agrees(symbol, true), randomizer.agreement
                    total = odds.favoured * p + odds.other * (1 - p)
                    base = Fraction(1, randomizer.symbols)
                    chance = float(base * (odds.favoured if agrees else odds.other) / total)
                    after = group.kernel.scored(place, score, agrees)
                now = tuple(u + (at == place and odds is not None) for at, u in enumerate(used))
                further.append((probability * chance, (*symbols, symbol), now, after))
        told = further
    return ((probability, symbols) for probability, symbols, _, _ in told)


@pytest.mark.parametrize("retrospective", [False, True])
def test_the_predicted_variance_is_the_one_enumerated_over_groups_nodes_and_symbols(retrospective):
    """For entries with known histories, whose reports are independent: means are the truth, variances as predicted.

    What drawing from so few entries adds is counted n/(n - 1) times, which makes up for their own mean.
    """
    answers, periods = 2, 3
    of = wish(periods=periods, answers=answers, devices=3)
    survey = of.survey(mixed_plan(answers, periods))
    states = np.array([[0, 1, 1, 2], [0, 0, 2, 2], [0, 2, 1, 0]], np.uint16)
    population = Population(survey.answers, states, states, np.ones(3, np.int64))
    predicted = exact_error(population, survey, retrospective=retrospective)
    K, _ = PlannedEdges(survey).weights(retrospective)
    held = population.histogram() / 3
    for at in range(periods):
        mean, variance = np.zeros(answers), 0.0
        for history in states:
            p, x, true = (np.array(each) for each in zip(*one_entry(survey, history, K[at], held), strict=True))
            assert p.sum() == pytest.approx(1)
            mean += p @ x
            drawn = float((p @ true**2 - (p @ true) ** 2).mean())
            variance += float((p @ x**2 - (p @ x) ** 2).mean()) + drawn / 2
        np.testing.assert_allclose(mean, population.histogram()[at + 1], atol=1e-9)
        assert predicted.errors[at] ** 2 == pytest.approx(variance / 9, rel=1e-9)


@pytest.mark.parametrize("retrospective", [False, True])
def test_the_sampling_error_is_what_the_estimator_calls_true(retrospective):
    """In a closed cohort, about the means: against estimation's own figure for everybody's histories."""
    generator = np.random.default_rng(2)
    of = wish(periods=8, answers=3, devices=200, closed=True, retrospective=retrospective)
    survey = of.survey(optimal_plan(of).plan)
    states = np.zeros((200, 9), np.uint16)
    states[:, 1] = generator.integers(1, 4, 200)
    for time in range(2, 9):
        states[:, time] = np.where(generator.random(200) < 0.1, generator.integers(1, 4, 200), states[:, time - 1])
    population = Population(survey.answers, states, states, np.ones(200, np.int64))
    found = exact_error(population, survey, retrospective=retrospective)
    edges = PlannedEdges(survey)
    K, _ = edges.weights(retrospective)
    kept, scatter = draws(survey.plan.tracks)
    design = SamplingDesign(
        start=edges.start,
        end=edges.end,
        group=edges.group,
        track=edges.track,
        expansion=np.array([[survey.plan.total_share / group.share for group in survey.plan.groups]]),
        group_of=np.array([survey.plan.group_of(track) for track in range(len(survey.plan.tracks))]),
        kept=kept,
        scatter=scatter,
        whole=np.ones(1),
        entries=np.array([200.0]),
    )
    for time in range(1, 9):
        exact = true_sampling_covariance(design, K[time - 1], population.frozen, 3)
        assert found.sampling[time - 1] == pytest.approx(np.trace(exact) / 3 / 200**2, rel=1e-6, abs=1e-12)


def test_everybody_on_all_tracks_has_no_sampling_error():
    """One group, all nodes: what is left is the randomizers' noise."""
    of = wish(periods=6)
    survey = of.survey(ReleasePlan((Group((Track(1, KaryResponse(MutationSpace(3), Odds(5, 1)), 0, 6),)),)))
    assert not predict(survey, 100).sampling.any()
    assert (predict(survey, 100).response > 0).all()


def test_four_times_the_devices_halve_the_error_and_devices_needed_follow():
    """Errors fall with the root of the number; devices_for inverts that."""
    of = wish(periods=6)
    survey = of.survey(mixed_plan(3, 6))
    few, many = predict(survey, 1000), predict(survey, 4000)
    np.testing.assert_allclose(few.errors, 2 * many.errors)
    needed = few.devices_for(0.02)
    assert predict(survey, round(needed)).mean == pytest.approx(0.02, rel=1e-3)
    assert many.devices_for(0.02) == pytest.approx(needed)


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


def test_bad_arguments_are_named():
    """Devices, periods and wanted errors that make no sense."""
    of = wish(periods=4)
    survey = of.survey(mixed_plan(3, 4))
    with pytest.raises(ValueError, match="got 0"):
        predict(survey, 0)
    with pytest.raises(ValueError, match="1 to 4, got 5"):
        predict(survey, 1).at(5)
    with pytest.raises(ValueError, match="above 0, got 0"):
        predict(survey, 1).devices_for(0)


def test_a_point_takes_at_least_one_device():
    """At an epsilon of 32 the noise of one device is far below a point: the figure is 1, and never 0."""
    prediction = optimal_plan(wish(1, 2, 1, "32", closed=True, later=0)).option.prediction
    assert prediction.mean * prediction.devices**0.5 < 0.01
    assert prediction.devices_for(0.01) == 1
