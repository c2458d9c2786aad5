"""The covariance of what entries report, against every way to draw groups and nodes, and every transcript."""

from fractions import Fraction
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from changeling_protocol import (
    BALANCED,
    AtMost,
    AtMostWithin,
    Group,
    History,
    Hybrid,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    TimeBounded,
    Track,
    most_telling,
)
from changeling_statistics import Solution
from changeling_statistics.testing import one_report, transcripts

from tests.true_sampling import true_response_covariance, true_sampling_covariance

from ..protocol.examples import survey
from .graphs import SCALE, calendar, noiseless

ANY, SPOKEN = Odds(9, 1), Fraction(1, 2)
Z, T = 2, 4
CHANGES = KaryResponse(MutationSpace(Z), Odds(9, 1))
STATES = KaryResponse(StateSpace(Z), Odds(9, 1))

LAYERS = ReleasePlan(tuple(Group((Track(w, CHANGES, 0, T),), share=s) for w, s in ((1, 2), (2, 1), (4, 1))))
ONE_SHARE = ReleasePlan((Group((Track(1, CHANGES, 0, T),), 1), Group((Track(4, CHANGES, 0, T),), 3)))
PANEL = ReleasePlan((Group((Track(1, STATES, 0, T, reported=1),)),))
TWICE = ReleasePlan((Group((Track(2, STATES, 0, T),), 1), Group((Track(1, CHANGES, 0, T, reported=3),), 2)))
ANCHORED = ReleasePlan((Group((Track(1, STATES, 0, 1), Track(1, CHANGES, 1, T)), 2), Group((Track(4, CHANGES, 0, T),))))
SHARED = {"layers": LAYERS, "one share": ONE_SHARE, "panel": PANEL, "twice": TWICE, "anchored": ANCHORED}

OPEN = np.array([[0, 1, 1, 2, 2], [0, 0, 1, 1, 1], [0, 2, 2, 1, 2]])
ONCE = np.array([[0, 1, 1, 2, 2], [0, 2, 2, 2, 1], [0, 1, 2, 2, 2], [0, 1, 1, 1, 1]])
CLOSED = np.array([[0, 1, 1, 2, 2], [0, 2, 2, 2, 1], [0, 1, 2, 1, 1], [0, 1, 1, 1, 1]])
WIDER = np.array([[0, 1, 1, 3, 3], [0, 0, 2, 2, 1], [0, 3, 2, 2, 2]])
"""Histories of three answers: changes between four states are not told by balanced signed subsets."""


def choices(plan):
    """(probability, group, chosen (track, number)s) of one entry, all ways."""
    for g, group in enumerate(plan.groups):
        tracks = list(plan.numbered(g))
        draws = [list(combinations(range(1, t.count + 1), t.reports)) for _, t in tracks]
        ways = list(product(*draws))
        for way in ways:
            nodes = {(number, at) for (number, _), chosen in zip(tracks, way, strict=True) for at in chosen}
            yield group.share / plan.total_share / len(ways), g, nodes


def changes(width=1, first=0, reported=None, *, null=True):
    return Track(width, KaryChange(MutationSpace(Z, null=null), ANY), first, T, reported)


def signed(width=1, first=0, *, answers=Z, spoken=Fraction(1)):
    return Track(width, SignedSubset(MutationSpace(answers), ANY, BALANCED, spoken), first, T)


def states(first=0, last=T, reported=None, *, null=True):
    return Track(1, KaryResponse(StateSpace(Z, null=null), ANY), first, last, reported)


def jointly(*tracks, k=5, odds=Odds(12, 1), threshold=1, weights=None, share=1, closed=False):  # noqa: B008
    slots = tuple(most_telling(track, calendar(T), AtMost(k), closed) for track in tracks)
    joint = Joint(odds, threshold, weights or (1,) * len(tracks), slots)
    return Group.jointly(tracks, joint, share)


def history(every=1, k=5, *, closed=False, share=1, constraint=None):
    told = History.of(Odds(40, 1), range(1, T + 1, every), constraint or AtMost(k), calendar(T), closed)
    return Group.of_history(told, Z, share)


def asked(*groups, k=5, closed=False, answers=Z, constraint=None):
    names, constraint = tuple("abc"[:answers]), constraint or AtMost(k)
    return survey(ReleasePlan(groups), answers=names, calendar=calendar(T), constraint=constraint, closed=closed)


BOUNDED = (TimeBounded(150), AtMostWithin(3, 150), Hybrid((AtMost(2), TimeBounded(150))))
PLANS = {
    "changes, low threshold": asked(jointly(changes())),
    "changes, high threshold": asked(jointly(changes(), threshold=4)),
    "anchored": asked(jointly(states(last=1), changes(first=1), threshold=2, weights=(2, 1))),
    "every span a node": asked(
        jointly(states(last=1), changes(first=1), changes(2, 1), changes(3, 1), changes(2, 2), threshold=3)
    ),
    "hierarchy": asked(jointly(changes(), changes(2), changes(4), threshold=3, weights=(1, 2, 3))),
    "panel": asked(jointly(states(reported=2), threshold=2)),
    "subsets": asked(
        jointly(Track(2, SubsetSelection(StateSpace(Z), ANY, 1), 0, T), changes(2, reported=1), threshold=2)
    ),
    "random changes": asked(jointly(changes(reported=2))),
    "signed subsets that always speak": asked(jointly(signed())),
    "histories of two widths": asked(history(), history(2, share=2)),
    "a history of few changes": asked(history(k=3), k=3),
    **{f"a history, {each}": asked(history(constraint=each), constraint=each) for each in BOUNDED},
    "a history beside changes": asked(history(k=3), jointly(changes(), k=3), k=3),
    "shares": asked(
        jointly(states(last=1), changes(first=1), threshold=2, share=2),
        jointly(states(reported=2), share=1),
        Group((changes(2),), share=3),
    ),
    **{f"lone, {name}": asked(*plan.groups) for name, plan in SHARED.items()},
}
CLOSED_PLANS = {
    "anchored": asked(
        jointly(states(last=1, null=False), changes(first=1, null=False), threshold=2, closed=True), closed=True
    ),
    "a history": asked(history(k=3, closed=True), k=3, closed=True),
    "histories beside changes": asked(
        history(k=3, closed=True),
        history(2, k=3, closed=True),
        jointly(states(last=1, null=False), changes(first=1, null=False), k=3, closed=True),
        k=3,
        closed=True,
    ),
    "shares": asked(
        jointly(states(last=1, null=False), changes(first=1, null=False), closed=True, share=2),
        jointly(states(reported=1, null=False), changes(2, 2, null=False), closed=True),
        closed=True,
    ),
    **{f"lone, {name}": asked(*plan.groups, closed=True) for name, plan in SHARED.items()},
}


def untold(share, threshold):
    """Changes between four states, which balanced signed subsets do not tell, of one group or two: ρ is negative at a
    threshold of 1 and positive at 4."""
    beside = [Group((Track(2, SignedSubset(MutationSpace(3), ANY, BALANCED, SPOKEN), 0, T),))] * (share > 1)
    return asked(jointly(signed(answers=3, spoken=SPOKEN), threshold=threshold, share=share), *beside, answers=3)


def never_back(threshold):
    """At most one change after the first period, and signed subsets that always speak: no chain is exact."""
    moves = Track(1, SignedSubset(MutationSpace(Z, null=False), ANY), 1, T)
    group = jointly(states(last=1, null=False), moves, k=2, closed=True, threshold=threshold, weights=(2, 1))
    return asked(group, k=2, closed=True)


PUBLISHED = {
    "open": {name: (plan, OPEN) for name, plan in PLANS.items()},
    "closed": {name: (plan, CLOSED) for name, plan in CLOSED_PLANS.items()},
    "untold": {
        **{f"untold, {each}": (untold(*each), WIDER) for each in product((1, 3), (1, 4))},
        "layers, once": (asked(*LAYERS.groups, closed=True, k=2), ONCE),
        **{f"never back, {threshold}": (never_back(threshold), ONCE) for threshold in (1, 3)},
    },
}
"""Surveys with the histories of their entries."""


def moments(group, nodes, history, worth):
    """Mean and second moment of what one entry's transcript is worth, over all its symbols, as a device draws them.

    nodes: those it reports, as (place of the track in the group, number). worth: of each symbol, on each of them.
    """
    asked = []
    for place, number in nodes:
        track = group.tracks[place]
        node = track.node(number)
        asked.append((place, track.randomizer.space.index(int(history[node.start]), int(history[node.end]))))

    @cache
    def from_here(at, memory):
        mean, second = np.zeros(Z), np.zeros((Z, Z))
        if at == len(nodes):
            return mean, second
        for (symbol,), (chance, left) in transcripts(group, asked[at : at + 1], memory).items():
            rest, squares = from_here(at + 1, left)
            said = worth[at][symbol]
            mean = mean + float(chance) * (said + rest)
            cross = np.outer(said, said) + np.outer(said, rest) + np.outer(rest, said)
            second = second + float(chance) * (cross + squares)
        return mean, second

    return from_here(0, None)


@cache
def decoded(randomizer):
    """What each symbol decodes to in an open cohort, shape (symbols, z)."""
    return np.array([one_report(randomizer, symbol).values for symbol in range(randomizer.symbols)])


def enumerated(known, row, history):
    """Mean and covariance of Σ_e K_e y_e about the mean of the entries, over groups, drawn nodes and one's symbols."""
    plan, z = known.survey.plan, len(known.survey.answers)
    edge = {(used.track, used.number): e for e, used in enumerate(known.nodes)}
    x = (OPEN[:, :, None] == np.arange(1, z + 1)).astype(float).mean(0)
    centre = x[known.network.end] - x[known.network.start]
    mean, second = np.zeros(z), np.zeros((z, z))
    for chance, g, drawn in choices(plan):
        group, first = plan.groups[g], plan.numbered(g)[0][0]
        nodes = sorted((track - first, number) for track, number in drawn)
        worth = [
            row[e] * known.expansion[e] * (decoded(group.tracks[place].randomizer) - centre[e])
            for place, number in nodes
            for e in [edge[first + place, number]]
        ]
        first_moment, second_moment = moments(group, nodes, history, worth)
        mean += chance * first_moment
        second += chance * second_moment
    return mean, second - np.outer(mean, mean)


def response(known, row, histories):
    return true_response_covariance(
        known.survey, known.track, known.network.end, known.expansion, row, np.asarray(histories)
    )


def estimable(known, retrospective):
    """(solution, the time asked for, the one it is compared with) wherever nodes connect them."""
    solution = Solution(known, retrospective)
    for plus, minus in [(t, 0) for t in range(1, T + 1)] + [(3, 1), (4, 2)]:
        if solution.reaches(plus, minus):
            yield solution, plus, minus


@pytest.mark.parametrize("name", PLANS)
def test_the_formula_is_the_covariance_over_all_transcripts(name):
    """Given the histories, for every time and window: responses, who is asked, and what the joint response ties."""
    known = noiseless(PLANS[name], OPEN)
    for solution, plus, minus in estimable(known, retrospective=False):
        row = solution.row(plus, minus)
        one_by_one = [enumerated(known, row, history) for history in OPEN]
        x = (OPEN[:, [plus, minus]][:, :, None] == [1, 2]).astype(float)
        told = x[:, 0] - x[:, 1]
        np.testing.assert_allclose([mean for mean, _ in one_by_one], told - told.mean(0), atol=1e-9)
        sampled = true_sampling_covariance(solution.sampling.design(np.array([plus])), row, OPEN, Z, fixed=False)
        stated = response(known, row, OPEN) + sampled
        exact = sum(covariance for _, covariance in one_by_one)
        np.testing.assert_allclose(stated, exact, atol=1e-9 * abs(exact).max())


@pytest.mark.parametrize("retrospective", [False, True])
@pytest.mark.parametrize("kind", PUBLISHED)
def test_what_is_published_is_unbiased_or_a_labelled_bound(kind, retrospective):
    """Published figures are linear in tallies, so those of expected tallies are their means: the exact covariance
    where they are not labelled; where they are, no answer's variance is below it. And so is, by itself, what reports of
    one entry have in common; of layers in a closed cohort it adds up to nothing, as everybody has one answer, and where
    nobody can come back, so that the nodes' changes add up, no histogram's is a bound."""
    labels = set()
    for name, (plan, histories) in PUBLISHED[kind].items():
        z, many, known = len(plan.answers), np.repeat(histories, SCALE, axis=0), noiseless(plan, histories)
        for solution, plus, minus in estimable(known, retrospective):
            row = solution.row(plus, minus)
            tied = true_sampling_covariance(solution.sampling.design(np.array([T])), row, many, z)
            exact = tied + SCALE * response(known, row, histories)
            estimate = solution.estimate(plus, minus)
            in_common, bounded = solution.sampling.covariance(row, T)
            assert (np.diag(in_common) >= np.diag(tied) - 1e-6 * SCALE).all()
            assert bounded or np.allclose(in_common, tied)
            if plan.closed and "layers" in name:
                np.testing.assert_allclose(in_common.sum(0), 0, atol=1e-6 * SCALE)
            assert not (bounded and name == "layers, once" and minus == 0)
            if estimate.upper_bound:
                labels.add((name, minus > 0))
                assert (np.diag(estimate.covariance) >= np.diag(exact) * (1 - 1e-9)).all()
            else:
                np.testing.assert_allclose(estimate.covariance, exact, atol=1e-6 * abs(exact).max())
    told = {("every span a node", False), ("every span a node", True), ("panel", False), ("subsets", False)}
    assert labels.isdisjoint(told)


def test_reports_whose_changes_are_not_told_are_tied_both_ways():
    designs = (Solution(noiseless(untold(1, each), WIDER)).sampling.design(np.array([T])) for each in (1, 4))
    assert [design.ties[0].rho[0, 0] < 0 for design in designs] == [True, False]


def test_ratio_estimators_have_neymans_variance():
    """In a closed cohort, over all splits into groups of given sizes, exactly."""
    known = noiseless(asked(Group((Track(1, CHANGES, 0, T),)), Group((Track(2, CHANGES, 0, T),)), closed=True), CLOSED)
    row, n = Solution(known).row(4), len(CLOSED)
    x = (CLOSED[:, :, None] == np.arange(1, Z + 1)).astype(float)
    moved = row[None, :, None] * (x[:, known.network.end] - x[:, known.network.start])
    values = []
    for first in combinations(range(n), 2):
        inside = np.isin(np.arange(n), first)
        mine = np.where(known.group[None, :] == 0, inside[:, None], ~inside[:, None])
        values.append((moved * mine[:, :, None]).sum((0, 1)) * n / 2)
    design = Solution(known).sampling.design(np.array([T]))
    np.testing.assert_allclose(design.expansion, 2, atol=1e-9)
    spread = np.cov(np.array(values).T, bias=True)
    np.testing.assert_allclose(true_sampling_covariance(design, row, CLOSED, Z), spread, atol=1e-9)


def test_long_calendars_look_only_at_times_that_matter(monkeypatch):
    """Above some hundreds of times ways are found between the weighed ones alone, with the same result."""
    for plan in SHARED.values():
        known = noiseless(asked(*plan.groups), OPEN)
        row = Solution(known).row(4)
        with monkeypatch.context() as patched:
            whole = Solution(known).sampling.covariance(row, T)
            patched.setattr("changeling_statistics.estimation.sampling.WHOLE", 0)
            some = Solution(known).sampling.covariance(row, T)
        np.testing.assert_allclose(some[0], whole[0], atol=1e-9)
        assert some[1] == whole[1]
