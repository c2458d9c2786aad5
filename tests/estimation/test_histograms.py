"""Histograms, windows and series from every release of a survey; who is enrolled and heard; what is known online."""

from fractions import Fraction

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Group,
    History,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    TimeBounded,
    Track,
)
from changeling_statistics import (
    Attendance,
    Gap,
    NodeTally,
    NotEstimable,
    Solution,
    Tallies,
    histogram_change,
    releases,
    series,
    window_figures,
)
from changeling_statistics.estimation.releases import Enrolment

from ..protocol.examples import hierarchical, survey
from .graphs import attended, best_row, calendar, dense_row, expected_tally, random_tallies

T = 12
SURVEY = survey(hierarchical(3, T, (1, 2, 4), Odds(7, 2)), calendar=calendar(T))
CHANGES, STATES = KaryResponse(MutationSpace(3), Odds(9, 2)), KaryResponse(StateSpace(3), Odds(4, 1))
EVERY_KIND = ReleasePlan(
    (
        Group((Track(1, STATES, 0, T, reported=2),), share=3),
        Group((Track(2, CHANGES, 0, T),), share=2),
        Group((Track(1, STATES, 0, 1), Track(1, CHANGES, 1, T), Track(3, CHANGES, 1, T, reported=2))),
    )
)

TOGETHER = ReleasePlan(
    (
        Group.jointly(
            (Track(1, STATES, 0, T, reported=2), Track(1, KaryChange(MutationSpace(3), Odds(2, 1)), 0, T)),
            Joint(Odds(90, 1), 4, (2, 1), (2, 6)),
            share=3,
        ),
        Group((Track(2, CHANGES, 0, T),), share=2),
    )
)


def without(tallies, *keys):
    return Tallies({key: tally for key, tally in tallies.items() if key not in keys}, tallies.attendance)


@pytest.mark.parametrize("retrospective", [False, True])
@pytest.mark.parametrize(
    ("plan", "weights"),
    [
        (SURVEY.plan, lambda known, *times: dense_row(known.network, *times)),
        (EVERY_KIND, best_row),
        (TOGETHER, best_row),
    ],
    ids=["hierarchy", "every kind", "joint"],
)
def test_values_and_covariance_are_the_dense_solution_and_its_sandwich(plan, weights, retrospective):
    """For all times of the series and for windows, response noise by the exact formula with these weights."""
    asked = survey(plan, calendar=calendar(T))
    tallies = random_tallies(asked, np.random.default_rng(5))
    known = releases(asked, tallies)
    every = series(asked, tallies, T, retrospective=retrospective)
    solution = Solution(known, retrospective)
    sampling = solution.sampling
    for t, found in enumerate(every, 1):
        row = weights(known, t, 0, None if retrospective else t)
        np.testing.assert_allclose(found.estimate.values, row @ known.changes, rtol=1e-8, atol=1e-6)
        spread = (
            np.tensordot(row**2, known.covariances, axes=1) + sampling.covariance(row, T if retrospective else t)[0]
        )
        np.testing.assert_allclose(found.estimate.covariance, spread, rtol=1e-7, atol=1e-4)
        alone = solution.estimate(t)
        np.testing.assert_allclose(alone.values, found.estimate.values, rtol=1e-8, atol=1e-6)
        np.testing.assert_allclose(alone.covariance, found.estimate.covariance, rtol=1e-7, atol=1e-4)
    for end in range(5, T + 1):
        row = weights(known, end, end - 5, None if retrospective else end)
        found = solution.estimate(end, end - 5).values
        np.testing.assert_allclose(found, row @ known.changes, rtol=1e-8, atol=1e-6)


def test_weights_do_not_depend_on_what_was_answered():
    """Other symbols, as many reports: the same weights; else the estimate would be biased."""
    one, other = (random_tallies(SURVEY, np.random.default_rng(seed)) for seed in (1, 2))
    rows = [Solution(releases(SURVEY, tallies)).row(7) for tallies in (one, other)]
    np.testing.assert_array_equal(*rows)


def test_a_missing_node_raises_the_variance_and_where_it_disconnects_is_named():
    """The solve goes round it where it can; what nothing reaches answers NotEstimable, the rest is not disturbed."""
    whole = random_tallies(SURVEY, np.random.default_rng(4))
    tallies = without(whole, (1, 3))
    variances = [each.row(6) ** 2 @ each.variance for each in (releases(SURVEY, t).network for t in (tallies, whole))]
    assert variances[0] > variances[1]
    assert Solution(releases(SURVEY, tallies)).reaches(6)
    tallies = without(whole, (0, 7))
    known = releases(SURVEY, tallies)
    with pytest.raises(NotEstimable, match=r"period 7 .* \(6, 7\] of track 0"):
        Solution(known).estimate(7)
    found = series(SURVEY, tallies, 12)
    assert found.pop(6) == Gap(Node(0, 7), (0, Node(6, 7)))
    assert [each.period for each in found] == [*range(1, 7), *range(8, 13)]
    assert Solution(known, True).reaches(7)
    with pytest.raises(NotEstimable, match=r"window \(3, 7\] .* \(6, 7\] of track 0"):
        Solution(known).estimate(7, 3)
    with pytest.raises(ValueError, match="13"):
        series(SURVEY, tallies, 13)
    wide = survey(hierarchical(3, T, (2, 4), Odds(3, 1)), calendar=calendar(T))
    with pytest.raises(NotEstimable, match="no nodes of the plan that close by period 3"):
        Solution(releases(wide, random_tallies(wide, np.random.default_rng(1)))).estimate(3)
    with pytest.raises(ValueError, match="one period wide, got 0"):
        window_figures(Solution(known), 0, 12)


def test_a_window_needs_no_way_back_to_the_start():
    """With its own nodes alone it is estimable, and the histograms at its ends are not."""
    nodes = {(0, at): t for (_, at), t in random_tallies(SURVEY, np.random.default_rng(1)).items() if 5 <= at <= 8}
    tallies = attended(SURVEY, nodes)
    solution = Solution(releases(SURVEY, tallies))
    window = solution.estimate(7, 4)
    assert [used.number for used in solution.used(7, 4)] == [5, 6, 7]
    parts = [histogram_change(tallies[0, at], SURVEY.plan.tracks[0].randomizer) for at in (5, 6, 7)]
    np.testing.assert_allclose(window.values, sum(part.values for part in parts), atol=1e-6)
    np.testing.assert_allclose(window.covariance, sum(part.covariance for part in parts))
    with pytest.raises(NotEstimable, match=r"of track \d"):
        solution.estimate(7)


@pytest.mark.parametrize("closed", [False, True])
def test_a_node_below_the_minimum_leaves_no_trace(closed):
    """Whatever was reported on it, all estimates are those without it: no difference reveals it."""
    asked = survey(EVERY_KIND, calendar=calendar(T), minimum=10, closed=closed)
    generator = np.random.default_rng(2)
    tallies = random_tallies(asked, generator)
    few = generator.multinomial(9, np.full(CHANGES.symbols, 1 / CHANGES.symbols))
    with_few = Tallies({**tallies, (1, 3): NodeTally(9, few)}, tallies.attendance)
    for retrospective in (False, True):
        pair = (series(asked, each, T, retrospective=retrospective) for each in (with_few, without(tallies, (1, 3))))
        for one, other in zip(*pair, strict=True):
            np.testing.assert_array_equal(one.estimate.values, other.estimate.values)
            np.testing.assert_array_equal(one.estimate.covariance, other.estimate.covariance)
            assert all((used.track, used.number) != (1, 3) for used in one.basis.nodes)


def test_a_report_stands_for_those_who_are_heard_over_those_who_report():
    """Whatever the shares say, in open cohorts as in closed ones."""
    for closed in (False, True):
        asked = survey(EVERY_KIND, calendar=calendar(T), closed=closed)
        counted = random_tallies(asked, np.random.default_rng(2))
        tallies = Tallies({**counted, (2, 1): NodeTally(400, counted[2, 1].slots)}, counted.attendance)
        known = releases(asked, tallies)
        heard = 500 * 12 / 2 + 500 + 500
        assert known.enrolment.enrolled[T] == heard
        of = {(u.track, u.number): x for u, x in zip(known.nodes, known.expansion, strict=True)}
        assert of[2, 1] == pytest.approx(heard / 400)
        assert of[0, 1] == of[3, 1] == pytest.approx(heard / 500)


@pytest.mark.parametrize("odds", [Odds(3, 1), Odds(10**12, 1)])
def test_reports_that_can_never_differ_are_weighed_all_the_same(odds):
    """A closed group whose entries may change for two periods only says the same six times: weights add up to 1, none
    is wild, and the variance is that of one of them."""
    eight, bound = calendar(8), TimeBounded(100)
    group = Group.of_history(History.of(odds, range(1, 9), bound, eight, True), 3)
    assert group.joint.limits.span == 2
    asked = survey(ReleasePlan((group,)), calendar=eight, constraint=bound, closed=True)
    solution = Solution(releases(asked, random_tallies(asked, np.random.default_rng(1))))
    row = solution.row(8)
    assert row.sum() == pytest.approx(1, abs=1e-6)
    assert np.abs(row).sum() == pytest.approx(1, abs=1e-6)
    assert solution._best.planned[8, 8] == pytest.approx(solution._best.planned[4, 4], rel=1e-6)


CERTAIN = Odds(10**6, 1)


def attendance(*closings):
    """Of one group: (heard, new, missed) at the closings 1, 2, …; None where nobody is heard."""
    return {(0, period): Attendance(*there) for period, there in enumerate(closings, 1) if there}


def counted_from(there, periods, *, closed=False):
    states = KaryResponse(StateSpace(1), CERTAIN)
    plan = ReleasePlan((Group((Track(1, states, 0, periods),)),))
    return Enrolment.of(there, survey(plan, answers=("a",), calendar=calendar(periods), closed=closed))


COUNTED = {
    "where nobody is silent units are entries, arrivals included": (
        attendance((100, 100), (100, 0), (130, 30), (137, 7)),
        {"stands_for": [100, 100, 100, 130, 137], "enrolled": [0, 100, 100, 130, 137], "silence": 0, "recent": 0},
    ),
    "who comes back raises neither m nor who is enrolled": (
        attendance((100, 100), (80, 0), (100, 0)),
        {"stands_for": 100, "enrolled": [0, 100, 100, 100]},
    ),
    "who enrols raises both": (
        attendance((100, 100), (80, 0), (100, 20)),
        {"stands_for": [100, 100, 100, 125], "enrolled": [0, 100, 100, 120], "latest": [0, 100, 80, 100]},
    ),
    "who is first heard after a late start was missed, and is no newcomer": (
        attendance(None, None, (90, 0, 90), (100, 0, 10)),
        {"stands_for": 90, "enrolled": [0, 0, 0, 90, 100], "scales": [0, 0, 0, 1, 10 / 9]},
    ),
    "silence that grows lasts, and one bad day strikes afresh": (
        attendance((100, 100), (80, 0), (80, 0), (10, 0), (80, 0)),
        {"lasting": [0, 0, 0.125, 0.25, 0.25, 0.25], "silence": [0, 0, 0.125, 0, 8.75, 0]},
    ),
    "silence that is there from the start strikes others each time": (
        attendance((80, 80), (80, 0, 20), (80, 0), (80, 0)),
        {"lasting": 0, "silence": [0, 0, 0.2, 0.2, 0.2]},
    ),
    "who enrolled while nobody was heard is new afterwards": (
        attendance((100, 100), None, (130, 10, 20)),
        {"stands_for": [100, 100, 100, 130]},
    ),
    "where a closing before was heard, who is missed was offline": (
        attendance((100, 100), (100, 0), (130, 10, 20)),
        {"stands_for": [100, 100, 100, 100 * 130 / 120]},
    ),
    "if only newcomers are heard one is taken to be there, and m stays finite": (
        attendance((50, 50), (200, 200)),
        {"stands_for": [50, 50, 50 * 201], "enrolled": [0, 50, 250]},
    ),
    "whoever is heard is enrolled though nothing said so": (
        attendance((5, 0), (100, 90, 5), (120, 0), (80, 1)),
        {"enrolled": [0, 5, 100, 120, 120], "by_group": [[0, 5, 100, 120, 120]]},
    ),
}


@pytest.mark.parametrize("case", COUNTED)
def test_enrolment_is_what_attendance_tells(case):
    """Units m, who is enrolled, and silence, at the times from 0 on; all of it finite."""
    there, wanted = COUNTED[case]
    counted = counted_from(there, max(period for _, period in there))
    for name, figures in wanted.items():
        np.testing.assert_allclose(getattr(counted, name), figures, atol=1e-12, err_msg=name)
    closed = attendance((100, 100), (100, 50), None, (90, 0, 10))
    assert (counted_from(closed, 4, closed=True).stands_for == 100).all(), "nobody is new later on in a closed cohort"
    assert np.isfinite([counted.stands_for, counted.scales, counted.silence, counted.recent, counted.lasting]).all()


@pytest.mark.parametrize("arrivals", [0, 30])
@pytest.mark.parametrize("silent", [0.0, 0.25])
def test_shares_are_right_when_people_come_and_fall_silent(arrivals, silent):
    """From tallies without noise: a quarter is silent each time, and newcomers are like those who are there.

    States are 0 for NULL, 1 and 2; whoever enrols changes from nothing to the state that it has.
    """
    periods, kept = 6, 1 - silent
    response = KaryResponse(MutationSpace(2), CERTAIN)
    moves = np.array([[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    shares, nodes, there = [np.array([0.1, 0.6, 0.3])], {}, {}
    for period in range(1, periods + 1):
        new = 1200 if period == 1 else arrivals
        old = 1200 + arrivals * (period - 2) if period > 1 else 0
        shares.append(shares[-1] @ moves if period > 1 else shares[-1])
        counts = np.zeros(response.space.size)
        for before, after in np.ndindex(3, 3):
            counts[response.space.index(before, after)] += kept * old * shares[-2][before] * moves[before, after]
        for after in range(3):
            counts[response.space.index(0, after)] += kept * new * shares[-1][after]
        nodes[0, period] = expected_tally(response, counts)
        there[0, period] = Attendance(round(kept * (old + new)), round(kept * new))
    asked = survey(
        ReleasePlan((Group((Track(1, response, 0, periods),)),)),
        answers=("a", "b"),
        calendar=calendar(periods),
        constraint=AtMost(9),
    )
    for each in series(asked, Tallies(nodes, there), periods):
        fractions = each.estimate.values / each.basis.enrolled
        np.testing.assert_allclose(fractions, shares[each.period][1:], atol=2e-3)


def lived(asked, generator):
    """Random tallies of a survey whose entries come, go and are silent: of each group its own."""
    whole = random_tallies(asked, generator)
    closings = sorted({period for _, period in whole.attendance})
    there = {}
    for group in range(len(asked.plan.groups)):
        for at, period in enumerate(closings):
            heard = int(generator.integers(300, 500))
            new = heard if at == 0 else int(generator.integers(0, 40))
            there[group, period] = Attendance(heard, new, 0 if at == 0 else int(generator.integers(0, 9)))
    return Tallies(whole.nodes, there)


def known_by(asked, tallies, period):
    """What of the tallies was known when a period closed."""
    tracks = asked.plan.tracks
    nodes = {key: tally for key, tally in tallies.items() if tracks[key[0]].node(key[1]).end <= period}
    return Tallies(nodes, {key: there for key, there in tallies.attendance.items() if key[1] <= period})


SUBSETS_AFTER_STATES = ReleasePlan(
    (
        Group(
            (
                Track(1, KaryResponse(StateSpace(3), Odds(4, 1)), 0, 4),
                Track(1, SignedSubset(MutationSpace(3), Odds(9, 2), spoken=Fraction(1)), 4, T),
            )
        ),
    )
)
"""States tell their covariance; of the signed subsets that follow it is bounded, from the first of them on."""


@pytest.mark.parametrize("plan", [SURVEY.plan, EVERY_KIND, TOGETHER, SUBSETS_AFTER_STATES], ids="hmjs")
@pytest.mark.parametrize("closed", [False, True])
def test_an_online_estimate_is_the_same_when_more_is_known(plan, closed):
    """Values, covariance and whether it is a bound, bounds and who was heard, to the last bit but for the order of
    sums; a node is lost too."""
    asked = survey(plan, calendar=calendar(T), closed=closed)
    tallies = without(lived(asked, np.random.default_rng(3)), (0, 4 if plan is not SUBSETS_AFTER_STATES else 99))
    later = series(asked, tallies, T)
    for period in (1, 2, 4, 5, 8, 11):
        then = series(asked, known_by(asked, tallies, period), period)[-1]
        now = later[period - 1]
        assert type(then) is type(now)
        if isinstance(then, Gap):
            assert then == now
            continue
        scale = np.abs(now.estimate.covariance).max()
        np.testing.assert_allclose(then.estimate.values, now.estimate.values, rtol=1e-7, atol=1e-6)
        np.testing.assert_allclose(then.estimate.covariance, now.estimate.covariance, atol=1e-7 * scale)
        one, other = then.basis.figures, now.basis.figures
        np.testing.assert_allclose(one.bounds, other.bounds, rtol=1e-6, atol=1e-4)
        assert (one.heard, one.enrolled) == (other.heard, other.enrolled)
        assert then.estimate.upper_bound == now.estimate.upper_bound
        assert plan is not SUBSETS_AFTER_STATES or closed or now.estimate.upper_bound == (period > 4)


def test_one_client_alone_at_a_closing_moves_estimates_by_little_more_than_itself():
    """A thousand hold the first answer for good and are all silent at closing 3, where a stranger says that it is new.

    Taken for half of all there are, it would halve what is known of the first two periods.
    """
    response = KaryResponse(MutationSpace(2), CERTAIN)
    came, stayed = np.zeros((2, response.space.size))
    came[response.space.index(0, 1)], stayed[response.space.index(1, 1)] = 1000, 1000
    spans = {(0, 1): came, (0, 2): stayed, (0, 4): stayed, (1, 1): came, (1, 2): stayed}
    nodes = {key: expected_tally(response, counts) for key, counts in spans.items()}
    asked = survey(hierarchical(2, 4, (1, 2), CERTAIN), answers=("a", "b"), calendar=calendar(4), minimum=100)
    honest = attendance((1000, 1000), (1000, 0), None, (1000, 0))
    alone = series(asked, Tallies(nodes, honest), 4)[-1].estimate.values
    np.testing.assert_allclose(alone, [1000, 0], atol=1)
    beside = series(asked, Tallies(nodes, {**honest, (0, 3): Attendance(1, 1)}), 4)[-1].estimate.values
    np.testing.assert_allclose(beside, alone, atol=10)


def test_the_bounds_hold_whatever_the_silent_hold():
    """Without noise: of every kind of silent entries, those that would move the histogram most."""
    states = KaryResponse(StateSpace(1), CERTAIN)
    changes = KaryResponse(MutationSpace(1), CERTAIN)
    asked = survey(
        ReleasePlan((Group((Track(1, states, 0, 2), Track(2, changes, 0, 2))),)),
        answers=("a",),
        calendar=calendar(2),
        constraint=AtMost(2),
    )
    heard, silent = 1000, 200
    for holding in (0, 500, 1000):
        tally = expected_tally(states, np.array([heard - holding, holding]))
        inserted = np.zeros(changes.space.size)
        inserted[changes.space.index(0, 0)] += heard - holding
        inserted[changes.space.index(0, 1)] += holding
        nodes = {(0, 1): tally, (0, 2): tally, (1, 1): expected_tally(changes, inserted)}
        there = {(0, 1): Attendance(heard + silent, heard + silent), (0, 2): Attendance(heard)}
        last = series(asked, Tallies(nodes, there), 2)[-1]
        figures = last.basis.figures
        assert (last.basis.enrolled, figures.heard) == (heard + silent, heard)
        lower, upper = figures.bounds[0, 0]
        for silent_with_it in (0, silent):
            assert lower - 1e-6 <= holding + silent_with_it <= upper + 1e-6
        assert upper - lower < silent + 1


def test_a_gap_names_the_first_node_of_the_shortest_way():
    """Online what has not closed is no way; in the end it is."""
    tallies = without(random_tallies(SURVEY, np.random.default_rng(1)), (0, 3), (0, 4), (1, 2), (2, 1))
    online, late = (series(SURVEY, tallies, T, retrospective=each) for each in (False, True))
    assert online[2] == Gap(Node(0, 3), (0, Node(2, 3)))
    assert online[3].missing in {(1, Node(2, 4)), (2, Node(0, 4))}
    assert late[4].missing == online[3].missing
    assert all(isinstance(each, Gap) for each in online[3:])


@pytest.mark.heavy
def test_a_node_whose_count_is_low_by_chance_does_not_pull_the_estimate():
    """Ratio estimators with weights from expected counts: unbiased however few report, given how many do."""
    asked = survey(
        ReleasePlan((Group((Track(1, KaryResponse(StateSpace(1), Odds(3, 1)), 0, 4, reported=1),)),)),
        answers=("a",),
        calendar=calendar(4),
        constraint=AtMost(1),
        minimum=8,
    )
    generator = np.random.default_rng(5)
    share, entries, found = 0.25, 40, []
    chance = (3 * share + (1 - share)) / 4
    for _ in range(250):
        reports = generator.multinomial(entries, np.full(4, 0.25))
        nodes = {}
        for number, count in enumerate(reports.tolist(), 1):
            ones = generator.binomial(count, chance)
            nodes[0, number] = NodeTally(count, np.array([count - ones, ones]))
        there = {(0, period): Attendance(entries, entries * (period == 1)) for period in range(1, 5)}
        (value,) = Solution(releases(asked, Tallies(nodes, there))).values(4)[-1]
        found += [] if np.isnan(value) else [value / entries]
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - share) < 4 * error  # a false alarm in 16,000
