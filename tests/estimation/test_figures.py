"""Figures of many times at once are those of the estimates one by one; and whether their tallies are possible."""

from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Group,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Track,
)
from changeling_simulations import closed_cohort, sample_tallies
from changeling_statistics import (
    POINT,
    Attendance,
    Gap,
    NodeTally,
    ShownAs,
    Solution,
    Tallies,
    Wish,
    counterpart_of,
    diagnosed,
    false_entries,
    histogram_figures,
    many_shown,
    optimal_plan,
    releases,
    series,
    shown,
    span_figures,
    window_figures,
)
from changeling_statistics.estimation.figures import influences, largest_values
from changeling_statistics.testing import matrices, one_report
from scipy.stats import binom

from ..protocol.examples import hierarchical, joint_plan, mixed, survey
from .graphs import answered, calendar

PERIODS, ENTRIES, SEED = 16, 3000, 5
STATES = SubsetSelection(StateSpace(3), Odds(9, 1), 1)
SIGNED = SignedSubset(MutationSpace(3), Odds(20, 1)), SignedSubset(MutationSpace(3), Odds(3, 1))
PLANS = {
    "everybody, a hierarchy": hierarchical(3, PERIODS, (1, 2, 4, 8), Odds(20, 1)),
    "everybody, states": ReleasePlan((Group((Track(1, STATES, 0, PERIODS),)),)),
    "signed subsets of two odds": ReleasePlan((Group(tuple(Track(w, SIGNED[w - 1], 0, PERIODS) for w in (1, 2))),)),
    "groups": mixed(3, PERIODS),
    "joint": joint_plan(3, PERIODS),
}


def asking(plan, **others):
    return survey(plan, calendar=calendar(PERIODS), minimum=10, **others)


def windows(solution, width, until):
    """The span and the estimate of the change over each window whose ends are connected, one by one."""
    spans = [Node(end - width, end) for end in range(width, until + 1)]
    return [(span, solution.estimate(span.end, span.start)) for span in spans if solution.reaches(span.end, span.start)]


def published(plan, *, silent, lost):
    """A survey and tallies of symbols drawn uniformly, some entries silent at times, some nodes lost."""
    generator, asked, attendance = np.random.default_rng(SEED), asking(plan), {}
    for group in range(len(plan.groups)):
        for period in range(1, PERIODS + 1):
            away = int(generator.integers(0, 300)) if silent else 0
            missed = 4 if silent and period == 7 else 0
            attendance[group, period] = Attendance(ENTRIES - away, (ENTRIES - away) * (period == 1), missed)
    tallies = answered(asked, attendance, generator)
    return asked, Tallies(dict([*tallies.items()][:2] + [*tallies.items()][2 + lost :]), attendance)


@pytest.mark.parametrize(("silent", "lost", "retrospective"), [(False, 0, False), (True, 4, False), (True, 4, True)])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_figures_are_those_of_the_estimates_one_by_one(plan, silent, lost, retrospective):
    """Values, variances, bounds, who is enrolled and heard, and the same gaps, for histograms and windows."""
    asked, tallies = published(plan, silent=silent, lost=lost)
    solution = Solution(releases(asked, tallies), retrospective)
    figures, gaps = histogram_figures(solution, PERIODS)
    one_by_one = series(asked, tallies, PERIODS, retrospective=retrospective)
    assert gaps == [each for each in one_by_one if isinstance(each, Gap)]
    there = [each for each in one_by_one if not isinstance(each, Gap)]
    assert [span.end for span in figures.spans] == [each.period for each in there]
    agree(figures, [each.estimate for each in there])
    for at, each in enumerate(there):
        alone = each.basis.figures
        np.testing.assert_allclose(figures.bounds[at], alone.bounds[0], rtol=1e-6, atol=1e-4)
        silence = figures.enrolled[at], figures.heard[at], figures.known_until[at]
        assert silence == (each.basis.enrolled, alone.heard, alone.known_until)
    changes, gaps = window_figures(solution, 3, PERIODS)
    spans, estimates = zip(*windows(solution, 3, PERIODS), strict=True)
    assert (changes.spans, len(gaps)) == (spans, PERIODS - 2 - len(spans))
    agree(changes, estimates)


def agree(figures, estimates):
    for at, each in enumerate(estimates):
        np.testing.assert_allclose(figures.values[at], each.values, rtol=1e-6, atol=1e-4)
        np.testing.assert_allclose(figures.variances[at], np.diag(each.covariance), rtol=1e-6, atol=1e-4)
        assert figures.upper_bound[at] == each.upper_bound


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_figures_of_a_survey_that_goes_on_are_those_of_the_estimates_one_by_one(plan):
    """Of its nodes those have closed that end by period 11; windows of several widths; one span, with its nodes."""
    asked, tallies = published(plan, silent=True, lost=0)
    closed = {key: tally for key, tally in tallies.nodes.items() if plan.tracks[key[0]].node(key[1]).end <= 11}
    there = {closing: each for closing, each in tallies.attendance.items() if closing[1] <= 11}
    solution = Solution(releases(asked, Tallies(closed, there)))
    histograms, gaps = histogram_figures(solution, 13)
    assert [gap.span.end for gap in gaps] == [12, 13]
    assert histograms.variances.shape == (11, 3)
    for width in (1, 5, 10):
        figures, _ = window_figures(solution, width, 13)
        spans, estimates = zip(*windows(solution, width, 13), strict=True)
        assert figures.spans == spans
        agree(figures, estimates)
        alone, nodes = span_figures(solution, spans[-1])
        np.testing.assert_allclose(alone.values[0], figures.values[-1], rtol=1e-9)
        assert nodes == solution.used(spans[-1].end, spans[-1].start)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_no_false_entry_moves_an_estimate_further_than_its_influence(plan):
    """The worst symbols that one entry of any group may add on all its nodes, enumerated node by node."""
    asked, tallies = published(plan, silent=False, lost=0)
    known = releases(asked, tallies)
    solution = Solution(known)
    row = solution.row(PERIODS)
    influence = influences(known, np.abs(row)[None, :])[0]
    for answer in range(3):
        worst = []
        for group in range(len(plan.groups)):
            moved = 0.0
            for edge in np.flatnonzero(known.group == group):
                randomizer = plan.tracks[known.nodes[edge].track].randomizer
                decoded = [one_report(randomizer, symbol).values[answer] for symbol in range(randomizer.symbols)]
                moved += abs(row[edge]) * known.expansion[edge] * np.abs(decoded).max()
            worst.append(moved)
        assert max(worst) <= influence[answer] * (1 + 1e-9)
    needed = false_entries(influence[None, :], np.array([float(ENTRIES)]))[0]
    assert needed * (influence.max() + 1) >= POINT * ENTRIES > (needed - 1) * (influence.max() + 1)


def test_the_largest_value_of_a_large_alphabet_is_found_without_listing_it():
    """Symbols that treat all answers alike: a few have the largest value somewhere."""
    small, large = (hierarchical(z, 4, (1,), Odds(20, 1)).tracks[0].randomizer for z in (5, 90))
    assert len(set(np.round(largest_values(small), 9))) == 1
    assert len(set(largest_values(large))) == 1


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("retrospective", [False, True])
def test_figures_about_those_heard_have_the_same_shares(kind, retrospective):
    """Where entries fall silent: values, errors and intervals are those of all who enrolled,
    scaled to how many were heard; so are bounds, as shares. Nothing changes where everybody is heard."""
    asked, tallies = published(PLANS[kind], silent=True, lost=False)
    everybody, _ = histogram_figures(Solution(releases(asked, tallies), retrospective), PERIODS)
    heard = everybody.of_heard()
    assert (heard.entries == heard.heard).all()
    assert (heard.entries < everybody.entries).any()
    ratio = (heard.heard / everybody.summed)[:, None]
    np.testing.assert_allclose(heard.values, everybody.values * ratio)
    np.testing.assert_allclose(heard.variances, everybody.variances * ratio**2)
    np.testing.assert_allclose(heard.intervals(), everybody.intervals() * ratio[..., None], rtol=2e-3)
    shares = [each.bounds / each.entries[:, None, None] for each in (heard, everybody)]
    np.testing.assert_allclose(*shares)
    there, _ = histogram_figures(Solution(releases(*published(PLANS[kind], silent=False, lost=False))), PERIODS)
    np.testing.assert_allclose(there.of_heard().values, there.values)


def test_a_variance_that_came_out_below_zero_shows_a_null_error_and_an_interval_all_the_same():
    """Six entries in an open cohort, whose variances are estimated from a report or two each."""
    four, once = calendar(4), AtMost(1)
    cohort = closed_cohort(6, 2, 4, once.k, np.random.default_rng(SEED))
    plan = optimal_plan(Wish(2, four, once, Decimal(2), 2000)).plan
    asked = survey(plan, answers=cohort.answers, calendar=four, constraint=once)
    drawn = (sample_tallies(cohort, asked, np.random.default_rng(seed)) for seed in range(100))
    tried = (Solution(releases(asked, tallies)) for tallies in drawn)
    figured = ((solution, *histogram_figures(solution, 4)) for solution in tried)
    solution, figures, gaps = next(each for each in figured if (each[1].variances < 0).any())
    rows = many_shown(solution, 4, figures, gaps, ShownAs("online", "enrolled", 0.95, 4, 1, 4))["series"]
    for row, of_answers in zip((row for row in rows if row["values"]), figures.variances, strict=True):
        assert [error is None for error in row["standard_errors"]] == (of_answers < 0).tolist()
        assert np.isfinite(row["intervals"]).all()


STUFFED = {"honest": 0, "a few made up": 40, "many made up": 600}


def alike(track, reports, generator):
    """The tally of so many who say the same, as it is drawn."""
    counterpart, counts = counterpart_of(track.randomizer), np.zeros(track.randomizer.space.size, np.int64)
    counts[int(generator.integers(len(counts)))] = reports
    return counterpart.sample(counts, generator)


def stuffed(plan, generator, more=0):
    """Everybody says the same throughout; into one node so many reports of the likeliest symbol are put besides."""
    asked = asking(plan)
    everybody = {
        (group, period): Attendance(400, 400 * (period == 1))
        for group in range(len(plan.groups))
        for period in range(1, PERIODS + 1)
    }
    tallies = answered(asked, everybody, generator, alike)
    key, tally = [*tallies.items()][3]
    slots = tally.slots + more * (np.arange(len(tally.slots)) == tally.slots.argmax())
    return releases(asked, Tallies({**tallies, key: NodeTally(tally.reports + more, slots)}, everybody))


def dense(known):
    """By node the smallest tail, and how many tails there are in all; every count is asked both ways."""
    smallest, asked = {}, 0
    for used, tally in zip(known.nodes, known.tallies, strict=True):
        P, _ = matrices(known.survey.plan.tracks[used.track].randomizer)
        low = binom.cdf(tally.slots, tally.reports, P.min(1))
        high = binom.sf(tally.slots - 1, tally.reports, P.max(1))
        smallest[used] = min(low.min(), high.min())
        asked += 2 * len(P)
    return smallest, asked


@pytest.mark.parametrize("more", STUFFED)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_test_is_that_of_all_tails_one_by_one(plan, more):
    """The p-value to nine digits, the nodes that flag, the strangest first, and theirs."""
    flagged = 0
    for seed in range(2):
        known = stuffed(plan, np.random.default_rng(seed), STUFFED[more])
        smallest, asked = dense(known)
        told = diagnosed(known)
        least = min(smallest.values())
        assert (told["tested_nodes"], told["untested_nodes"]) == (len(known), 0)
        assert told["p_value"] == pytest.approx(
            min(1.0, least * asked) if least < shown.FALSE_ALARMS else 1.0, rel=1e-9
        )
        strange = sorted((tail, used) for used, tail in smallest.items() if tail * asked < shown.FALSE_ALARMS)
        for each, (tail, used) in zip(told["suspects"], strange[:10], strict=True):
            assert (each["track"], each["start"], each["end"]) == (used.track, used.node.start, used.node.end)
            assert each["p_value"] == pytest.approx(tail * asked, rel=1e-9)
        assert told["impossible"] == bool(strange)
        flagged += told["impossible"]
    assert flagged == {"honest": 0, "many made up": 2}.get(more, flagged)


@pytest.mark.parametrize("expected", [7, 8.5, 8.8, 10])
def test_a_symbol_that_never_came_is_asked_for_however_little_is_asked(expected):
    """One node of three symbols has six tails. A symbol that was to come 8.8 times at least, and never did, is
    off by fewer than three standard deviations, and yet too strange."""
    randomizer = KaryResponse(StateSpace(2), Odds(900, 1))
    plan = ReleasePlan((Group((Track(PERIODS, randomizer, 0, PERIODS),)),))
    asked = asking(plan, answers=("yes", "no"))
    n, double = round(902 * expected), round(2 * expected)
    tally = NodeTally(n, np.array([n - double, double, 0], np.int64))
    known = releases(asked, Tallies({(0, 1): tally}, {(0, PERIODS): Attendance(n, n, 0)}))
    smallest, tails = dense(known)
    assert diagnosed(known)["impossible"] == (min(smallest.values()) * tails < shown.FALSE_ALARMS) == (expected > 8.7)


def test_honest_devices_are_flagged_no_more_often_than_stated(monkeypatch):
    """At a level of 5%, which can be sampled: of 600 surveys whose devices all say the same, so that every bound is
    reached, at most 30 are expected to be flagged; 52 or more would come once in ten thousand runs. And some are."""
    level, surveys = 0.05, 600
    monkeypatch.setattr(shown, "FALSE_ALARMS", level)
    generator, plan = np.random.default_rng(11), hierarchical(3, 8, (1,), Odds(5, 1))
    flagged = sum(diagnosed(stuffed(plan, generator))["impossible"] for _ in range(surveys))
    assert surveys * level / 10 < flagged < 52
