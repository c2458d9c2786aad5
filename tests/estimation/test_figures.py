"""The figures of many times at once are those of the estimates one by one."""

from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    Node,
    NodeNumber,
    Odds,
    ReleasePlan,
    StateSpace,
    SubsetSelection,
    Track,
    TrackNumber,
)
from changeling_simulations import closed_cohort, sample_tallies
from changeling_statistics import (
    POINT,
    Attendance,
    Gap,
    ShownAs,
    Solution,
    Tallies,
    Wish,
    counterpart_of,
    false_entries,
    histogram_figures,
    many_shown,
    optimal_plan,
    releases,
    series,
    span_figures,
    window_figures,
)
from changeling_statistics.estimation.figures import influences, largest_values
from changeling_statistics.testing import one_report

from ..protocol.examples import hierarchical, joint_plan, mixed, survey


def windows(solution, width, until):
    """The span and the estimate of the change over each window whose ends are connected, one by one."""
    spans = [Node(end - width, end) for end in range(width, until + 1)]
    return [(span, solution.estimate(span.end, span.start)) for span in spans if solution.reaches(span.end, span.start)]


PERIODS, ENTRIES, SEED = 16, 3000, 5
PLANS = {
    "everybody, a hierarchy": hierarchical(3, PERIODS, (1, 2, 4, 8), Odds(20, 1)),
    "everybody, states": ReleasePlan((Group((Track(1, SubsetSelection(StateSpace(3), Odds(9, 1), 1), 0, PERIODS),)),)),
    "groups": mixed(3, PERIODS),
    "joint": joint_plan(3, PERIODS),
}


def published(plan, *, silent, lost):
    """A survey and tallies of symbols drawn uniformly, some entries silent at times, some nodes lost."""
    generator = np.random.default_rng(SEED)
    asked = survey(plan, calendar=Calendar(1_800_000_000, 60, PERIODS), constraint=AtMost(3), minimum=10)
    attendance = {}
    for group in range(len(plan.groups)):
        for period in range(1, PERIODS + 1):
            away = int(generator.integers(0, 300)) if silent else 0
            missed = 4 if silent and period == 7 else 0
            attendance[group, period] = Attendance(ENTRIES - away, ENTRIES - away if period == 1 else 0, missed)
    nodes = {}
    for number, track in enumerate(plan.tracks):
        for at in track.node_numbers():
            heard = attendance[plan.group_of(number), track.node(at).end].heard
            symbols = generator.integers(0, track.randomizer.symbols, heard * track.reports // track.count)
            nodes[TrackNumber(number), NodeNumber(at)] = counterpart_of(track.randomizer).tally(
                symbols.astype(np.uint64)
            )
    for key in list(nodes)[2 : 2 + lost]:
        del nodes[key]
    return asked, Tallies(nodes, attendance)


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
    for at, basis in enumerate(each.basis for each in there):
        np.testing.assert_allclose(figures.bounds[at], basis.bounds(), rtol=1e-6, atol=1e-4)
        silence = figures.enrolled[at], figures.heard[at], figures.known_until[at]
        assert silence == (basis.enrolled, basis.heard, basis.known_until)
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
    calendar, once = Calendar(1_800_000_000, 60, 4), AtMost(1)
    cohort = closed_cohort(6, 2, calendar.periods, once.k, np.random.default_rng(SEED))
    plan = optimal_plan(Wish(2, calendar, once, Decimal(2), 2000)).plan
    asked = survey(plan, answers=cohort.answers, calendar=calendar, constraint=once)
    drawn = (sample_tallies(cohort, asked, np.random.default_rng(seed)) for seed in range(100))
    tried = (Solution(releases(asked, tallies)) for tallies in drawn)
    figured = ((solution, *histogram_figures(solution, 4)) for solution in tried)
    solution, figures, gaps = next(each for each in figured if (each[1].variances < 0).any())
    rows = many_shown(solution, 4, figures, gaps, ShownAs("online", "enrolled", 0.95, 4, 1, 4))["series"]
    for row, of_answers in zip((row for row in rows if row["values"]), figures.variances, strict=True):
        assert [error is None for error in row["standard_errors"]] == (of_answers < 0).tolist()
        assert np.isfinite(row["intervals"]).all()
