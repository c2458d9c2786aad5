"""The search for the best mix and its certificate, and the channels it mixes."""

from decimal import Decimal
from math import exp

import numpy as np
import pytest
from changeling_protocol import AtMost, Calendar, Group, Joint, KaryResponse, Odds, SignedSubset, Track, group_cost

from benchmarks.joint_best import (
    ANY,
    MOVES,
    STATES,
    all_histories,
    best_mix,
    best_of,
    distinct,
    held,
    information,
    joint_groups,
    optimum,
    plain_groups,
    response_variance,
)
from tests.enumeration import all_inputs
from tests.joint_enumeration import defined_law


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_the_best_report_of_one_state_of_two_is_randomized_response(epsilon):
    """p(1 - p)/(2p - 1)², and the bound says that nothing is better."""
    histories = all_histories(1, 1)
    best = optimum(histories, epsilon)
    p = exp(epsilon) / (1 + exp(epsilon))
    assert response_variance(best.square, histories) == pytest.approx(p * (1 - p) / (2 * p - 1) ** 2, rel=1e-4)
    assert best.bound <= best.square <= best.bound * (1 + 1e-4)


@pytest.mark.parametrize(("T", "k", "epsilon"), [(2, 1, 1.0), (3, 1, 4.0), (3, 2, 2.0)])
def test_no_channel_and_no_group_is_below_the_bound(T, k, epsilon):
    """Random feasible channels of rows 1 and e^ε, and every joint and sliced group by itself that tells all."""
    histories = all_histories(T, k)
    wanted, bound = held(histories), optimum(histories, epsilon).bound
    generator = np.random.default_rng(7)
    for _ in range(200):
        chosen = generator.choice(2 ** len(histories), generator.choice([3, 10, 100]))
        inside = chosen[:, None] >> np.arange(len(histories)) & 1
        inside = np.concatenate([inside, 1 - inside])  # each with its complement, so that all columns add up alike
        rows = 1 + (exp(epsilon) - 1) * inside
        rows /= rows.sum(axis=0)
        assert np.ptp(np.log(rows), axis=1).max() <= epsilon + 1e-9
        square = mean_square(rows.T @ (rows / rows.mean(axis=1)[:, None]), wanted)
        assert square >= bound
    for groups in (joint_groups(T, k, epsilon), plain_groups(T, k, epsilon)):
        for group in list(groups)[::7]:
            assert mean_square(information(group, histories), wanted) >= bound


def mean_square(information, wanted):
    """Infinite where what is wanted cannot be told from the reports at all."""
    if np.linalg.matrix_rank(information, tol=1e-9) < len(information):
        return np.inf
    return (wanted * np.linalg.solve(information, wanted)).sum() / wanted.shape[1]


def test_the_best_mix_is_no_worse_than_any_other_mix():
    """Against 300 random mixes of the same groups; its weights are a mix, and its bound holds for all."""
    histories = all_histories(3, 1)
    informations = distinct(information(group, histories) for group in joint_groups(3, 1, 2.0))
    best = best_of(informations, histories)
    assert best.weights.min() > 0
    assert best.weights.sum() == pytest.approx(1)
    assert best.square == pytest.approx(
        mean_square(np.tensordot(best.weights, informations, 1), held(histories)), rel=1e-9
    )
    generator = np.random.default_rng(3)
    for _ in range(300):
        weights = generator.dirichlet(np.full(len(informations), 0.05))
        assert mean_square(np.tensordot(weights, informations, 1), held(histories)) >= best.bound


@pytest.mark.parametrize(
    "tracks", [[Track(1, KaryResponse(STATES, ANY), 0, 1)], [Track(1, KaryResponse(STATES, ANY), 0, 2, reported=1)], []]
)
def test_the_information_of_a_group_is_that_of_its_listed_transcripts(tracks):
    """A joint group with all nodes, or one of two states drawn, against the defined law of every transcript."""
    changes = Track(1, SignedSubset(MOVES, ANY), 1, 3)
    group = Group.jointly([*tracks, changes], Joint(Odds(7, 2), 2, (1,) * (len(tracks) + 1), (1,) * len(tracks) + (2,)))
    histories = all_histories(3, 2)
    expected = np.zeros((len(histories), len(histories)))
    draws = [0, 1] if tracks and tracks[0].reported else [None]
    for drawn in draws:
        laws = []
        for states in histories:
            inputs = all_inputs(group, states)
            laws.append(defined_law(group, inputs if drawn is None else ((inputs[0][drawn],), inputs[1])))
        rows = np.array([[float(law[sent]) for law in laws] for sent in laws[0]])
        expected += rows.T @ (rows / rows.mean(axis=1)[:, None]) / len(draws)
    assert information(group, histories) == pytest.approx(expected)


@pytest.mark.parametrize("groups", [joint_groups, plain_groups])
def test_all_candidates_cost_what_they_may(groups):
    """Within the budget, and the joint ones all of it."""
    for group in groups(3, 2, 2.0):
        cost = group_cost(group, Calendar(0, 1, 3), AtMost(3), closed=True)
        assert cost <= 2 + Decimal("1e-12")
        assert not group.joint or cost > 2 - Decimal("1e-9")


def test_joint_groups_reach_the_bound_where_any_sequence_of_states_can_occur():
    """Two periods and one change: as good as anything can be, where slices of the budget are 49% worse."""
    histories = all_histories(2, 1)
    joint, slices = (
        best_of(distinct(information(group, histories) for group in groups(2, 1, 2.0)), histories)
        for groups in (joint_groups, plain_groups)
    )
    bound = response_variance(optimum(histories, 2.0).bound, histories)
    assert response_variance(joint.square, histories) == pytest.approx(bound, rel=1e-4)
    assert response_variance(slices.square, histories) > 1.4 * bound


def test_a_search_that_stops_early_still_has_a_bound_below_it():
    """With a gap as wide as a tenth: the bound is below the square, and below what a longer search finds."""
    histories = all_histories(3, 2)
    informations = distinct(information(group, histories) for group in joint_groups(3, 2, 1.0))
    ones = np.ones((1, len(informations)))
    early, late = (best_mix(informations, held(histories), ones, gap) for gap in (0.1, 1e-7))
    assert early.bound <= late.square <= early.square
