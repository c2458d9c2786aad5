"""The sampling error of shares against every way in which entries can draw their groups and nodes."""

from itertools import combinations, product

import numpy as np
import pytest
from changeling_protocol import AtMost, Group, KaryResponse, MutationSpace, Odds, ReleasePlan, StateSpace, Track
from changeling_statistics import Solution, releases
from changeling_statistics.estimation.entries import forms

from tests.true_sampling import true_sampling_covariance

from ..protocol.examples import survey
from .graphs import attended, calendar, expected_tally, inputs_of

Z, T = 2, 4
SCALE = 1200
"""How many entries have each history, where tallies stand for what is expected."""
CHANGES = KaryResponse(MutationSpace(Z), Odds(9, 1))
STATES = KaryResponse(StateSpace(Z), Odds(9, 1))

LAYERS = ReleasePlan(tuple(Group((Track(w, CHANGES, 0, T),), share=s) for w, s in ((1, 2), (2, 1), (4, 1))))
ONE_SHARE = ReleasePlan((Group((Track(1, CHANGES, 0, T),), 1), Group((Track(4, CHANGES, 0, T),), 3)))
PANEL = ReleasePlan((Group((Track(1, STATES, 0, T, reported=1),)),))
TWICE = ReleasePlan((Group((Track(2, STATES, 0, T),), 1), Group((Track(1, CHANGES, 0, T, reported=3),), 2)))
ANCHORED = ReleasePlan((Group((Track(1, STATES, 0, 1), Track(1, CHANGES, 1, T)), 2), Group((Track(4, CHANGES, 0, T),))))
PLANS = {"layers": LAYERS, "one share": ONE_SHARE, "panel": PANEL, "twice": TWICE, "anchored": ANCHORED}

OPEN = np.array([[0, 1, 1, 2, 2], [0, 0, 1, 1, 1], [0, 2, 2, 1, 2]])
CLOSED = np.array([[0, 1, 1, 2, 2], [0, 2, 2, 2, 1], [0, 1, 2, 1, 1], [0, 1, 1, 1, 1]])


def of(plan, *, closed=False, k=5):
    return survey(plan, answers=("a", "b"), calendar=calendar(T), constraint=AtMost(k), closed=closed)


def noiseless(asked, states):
    """Releases as if everybody reported everything and without noise, but expanded as the plan says."""
    tallies = {}
    shares = np.array([g.share for g in asked.plan.groups]) / asked.plan.total_share
    for group in range(len(asked.plan.groups)):
        for number, track in asked.plan.numbered(group):
            for at, node in enumerate(track.nodes(), 1):
                counts = inputs_of(track, node, states) * SCALE
                pi = shares[group] * track.reports / track.count
                full = expected_tally(track.randomizer, counts)
                tallies[number, at] = type(full)(round(full.reports * pi), full.slots * pi)
    return releases(asked, attended(asked, tallies))


def choices(plan):
    """(probability, group, chosen (track, number)s) of one entry, all ways."""
    for g, group in enumerate(plan.groups):
        tracks = list(plan.numbered(g))
        draws = [list(combinations(range(1, t.count + 1), t.reports)) for _, t in tracks]
        ways = list(product(*draws))
        for way in ways:
            nodes = {(number, at) for (number, _), chosen in zip(tracks, way, strict=True) for at in chosen}
            yield group.share / plan.total_share / len(ways), g, nodes


def contributions(known, row, states):
    """K_e δ_ie of every entry and edge, shape (entries, E, z)."""
    x = (states[:, :, None] == np.arange(1, Z + 1)).astype(float)
    return row[None, :, None] * (x[:, known.network.end] - x[:, known.network.start])


def test_who_reports_everything_has_no_sampling_error():
    """One group of tracks without random nodes: no sampling error and no bound."""
    known = noiseless(of(ReleasePlan((Group((Track(1, CHANGES, 0, T), Track(2, CHANGES, 0, T))),))), OPEN)
    solution = Solution(known)
    assert not solution.sampling.design(np.array([T])).needed[0]
    assert not solution.sampling.covariance(solution.row(3), T)[0].any()


def test_a_closed_cohort_that_changes_once_is_exact_everywhere():
    """Where nobody can come back the nodes' changes add up, and no figure is a bound."""
    states = np.array([[0, 1, 1, 2, 2], [0, 2, 2, 2, 1], [0, 1, 2, 2, 2], [0, 1, 1, 1, 1]])
    known = noiseless(of(LAYERS, closed=True, k=2), states)
    solution = Solution(known)
    for t in range(1, T + 1):
        row = solution.row(t)
        exact = true_sampling_covariance(
            solution.sampling.design(np.array([T])), row, np.repeat(states, SCALE, axis=0), Z
        )
        estimated, bounded = solution.sampling.covariance(row, T)
        assert not bounded
        np.testing.assert_allclose(estimated, exact, atol=1e-3)


def test_ratio_estimators_have_neymans_variance():
    """In a closed cohort, over all splits into groups of given sizes, exactly."""
    asked = of(ReleasePlan((Group((Track(1, CHANGES, 0, T),)), Group((Track(2, CHANGES, 0, T),)))), closed=True)
    known = noiseless(asked, CLOSED)
    row = Solution(known).row(4)
    a, n = contributions(known, row, CLOSED), len(CLOSED)
    values = []
    for first in combinations(range(n), 2):
        inside = np.isin(np.arange(n), first)
        mine = np.where(known.group[None, :] == 0, inside[:, None], ~inside[:, None])
        values.append((a * mine[:, :, None]).sum((0, 1)) * n / 2)
    spread = np.cov(np.array(values).T, bias=True)
    design = Solution(known).sampling.design(np.array([T]))
    np.testing.assert_allclose(design.expansion, 2, atol=1e-9)
    np.testing.assert_allclose(true_sampling_covariance(design, row, CLOSED, Z), spread, atol=1e-9)


@pytest.mark.parametrize("name", PLANS)
def test_long_calendars_look_only_at_times_that_matter(name, monkeypatch):
    """Above some hundreds of times ways are found between the weighed ones alone, with the same result."""
    known = noiseless(of(PLANS[name]), OPEN)
    row = Solution(known).row(4)
    whole = Solution(known).sampling.covariance(row, T)
    monkeypatch.setattr("changeling_statistics.estimation.sampling.WHOLE", 0)
    some = Solution(known).sampling.covariance(row, T)
    np.testing.assert_allclose(some[0], whole[0], atol=1e-9)
    assert some[1] == whole[1]


def test_in_a_closed_cohort_the_sum_over_answers_has_no_error():
    """Everybody has one answer, so what is bounded or exact adds up to nothing over all answers."""
    known = noiseless(of(LAYERS, closed=True), CLOSED)
    for t in (2, 3, 4):
        spread, _ = Solution(known).sampling.covariance(Solution(known).row(t), T)
        np.testing.assert_allclose(spread.sum(0), 0, atol=1e-6 * SCALE)


def test_forms_add_up_to_what_is_estimated():
    """Unbiasedness: the groups' parts of an entry sum to its state."""
    known = noiseless(of(LAYERS), OPEN)
    found = forms(Solution(known).sampling.design(np.array([T])), Solution(known).row(3)[None], T)
    groups = found.c[0, : len(LAYERS.groups)].sum(0)
    np.testing.assert_allclose(groups, [-1, 0, 0, 1, 0], atol=1e-9)
