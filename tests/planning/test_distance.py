"""The distance from the best of all reports: its population, its bounds, and plans that it must not contradict."""

from itertools import pairwise, product
from math import comb, exp, sinh

import numpy as np
import pytest
from changeling_protocol import AtMost, TimeBounded
from changeling_statistics import Distance, distance_from_best, optimal_plan
from changeling_statistics.planning.distance import AnyReports, CountedChanges

from .wishes import wish

FALSE_ALARMS = 5.0
"""Standard errors within which sampled figures lie; beyond that one of some hundred lies once in 10,000 seeds."""


def every_history(population, periods):
    """All histories of entries that are there from the first period, as answers, with how likely each is."""
    z, gaps = population.answers, periods - 1
    for answers in product(range(z), repeat=periods):
        changes = sum(a != b for a, b in pairwise(answers))
        if changes <= population.most:
            alike = z * comb(gaps, changes) * (z - 1) ** changes
            yield np.eye(z)[list(answers)], population.counts[changes] / alike


def population_of(of):
    return CountedChanges(optimal_plan(of).option.survey)


@pytest.fixture(scope="module")
def population():
    return population_of(wish(5, 3, 3, "2", later=300_000, closed=True))


def test_the_population_keeps_to_the_constraint_and_to_the_expected_changes(population):
    """Two changes at most after the first answer, 1.2 on average, counted in all histories; moments likewise."""
    histories, likely = map(np.array, zip(*every_history(population, 5), strict=True))
    assert likely.sum() == pytest.approx(1)
    changes = (histories[:, 1:] != histories[:, :-1]).any(2).sum(1)
    assert changes.max() == 2
    assert likely @ changes == pytest.approx(1.2)
    products = np.einsum("h,hta,hsa->ts", likely, histories, histories) / 3
    assert np.allclose(population.moments.products[1:, 1:], products)


@pytest.mark.parametrize("constraint", [AtMost(3), TimeBounded(150)])
def test_sampled_histories_have_the_moments_of_the_population(constraint):
    """An open cohort that grows; with a window only the first two gaps have changes."""
    population = population_of(wish(6, 3, 3, "2", later=100_000, first=400_000, constraint=constraint))
    times = np.array([1, 3, 4, 6])
    entries, generator = 40_000, np.random.default_rng(3)
    drawn = generator.choice(len(population.counts), entries, p=population.counts)
    answers = population.sample(times, drawn, generator)
    for a, b in product(range(4), repeat=2):
        same = ((answers[:, a] == answers[:, b]) & (answers[:, a] < 3)).mean() / 3
        expected = population.moments.products[times[a], times[b]]
        assert abs(same - expected) <= FALSE_ALARMS * np.sqrt(expected / 3 / entries)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_no_density_moves_the_whitened_mean_beyond_what_is_certified(population, epsilon):
    """Densities of 1 and e^ε over all histories: half-spaces along random directions, and single histories."""
    histories, likely = map(np.array, zip(*every_history(population, 5), strict=True))
    centred = histories - 1 / 3
    K = np.einsum("h,hta,hsa->ts", likely, centred, centred) / 2
    values, axes = np.linalg.eigh(K)
    whitened = np.einsum("st,hta->hsa", (axes / np.sqrt(values)) @ axes.T, centred).reshape(len(likely), -1)
    generator, farthest = np.random.default_rng(5), 0.0
    for direction in [*generator.standard_normal((200, 15)), *whitened[::7]]:
        along = whitened @ direction
        for cut in np.quantile(along, (0.2, 0.5, 0.8, 0.95, 0.999)):
            density = np.where(along >= cut, exp(epsilon), 1.0) * likely
            farthest = max(farthest, float(np.linalg.norm(density @ whitened) / density.sum()))
    assert 0.3 * np.tanh(epsilon / 2) < farthest <= sinh(epsilon / 2)


@pytest.mark.parametrize(("answers", "epsilon"), [(2, "2"), (3, "0.3"), (6, "9")])
def test_one_question_asked_once_has_its_best_plan_certified(answers, epsilon):
    """The best of all reports is known there; the plan for it is as good, and the sentence says so."""
    distance = optimal_plan(wish(1, answers, 1, epsilon, closed=True, later=0)).distance
    assert distance.certified == pytest.approx(1, abs=1e-6)
    assert distance.words == "No reports that keep epsilon, of any kind, need fewer devices (certified)."


@pytest.mark.parametrize(("periods", "answers", "k"), [(2, 2, 2), (4, 3, 2), (6, 2, 6)])
@pytest.mark.parametrize("epsilon", ["0.5", "2", pytest.param("5", marks=pytest.mark.heavy)])
def test_no_plan_is_better_than_the_best_of_all_reports(periods, answers, k, epsilon):
    """Where plans are next to the best a bound that claims too much would show; the searched one is the tighter."""
    of = wish(periods, answers, k, epsilon, closed=True, later=200_000, retrospective=True)
    distance = optimal_plan(of).distance
    assert 1 - 1e-9 <= distance.searched <= distance.certified < float("inf")
    assert distance.loose == ("no bound is near" in distance.words)


def test_where_epsilon_has_room_for_whole_histories_the_sentence_says_that_no_bound_is_near():
    """Yes or no, 6 periods, one change: 12 histories, between e² and e⁹."""
    made = (optimal_plan(wish(6, 2, 2, e, closed=True, later=100_000, retrospective=True)) for e in ("2", "9"))
    assert [planned.distance.loose for planned in made] == [False, True]


@pytest.mark.heavy
def test_what_is_searched_is_much_closer_where_epsilon_is_not_small():
    """64 periods, 4 answers, 3 changes and ε = 8: within 10 times in devices; the certified bound says hundreds."""
    of = wish(64, 4, 4, "8", 20_000, closed=True, later=23_810, retrospective=True)
    distance = optimal_plan(of).distance
    assert distance.searched < 10 < 100 < distance.certified
    assert "searched, so likely and not proven" in distance.words


def test_a_bound_is_larger_for_less_of_epsilon(population):
    """Every one of the bounds falls with epsilon, in the same population."""
    bounds = [AnyReports(population, np.arange(1, 6), epsilon) for epsilon in (1.0, 4.0)]
    for name in ("by_moments", "by_single_times", "searched"):
        figures = [getattr(each, name) for each in bounds]
        assert figures == sorted(figures, reverse=True)


def test_a_single_answer_has_no_distance():
    """Of one answer only who has it is estimated, of which nothing is bounded."""
    planned = optimal_plan(wish(4, 1, 1, "2", later=0, first=500_000))
    assert distance_from_best(planned.wish, planned.plan) == Distance(float("inf"), float("inf"))
    assert planned.distance.words.endswith("is not known.")
