"""The (ε, δ) of whole transcripts against every pair of changelogs, and against dp-accounting."""

from fractions import Fraction
from math import log

import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    TimeBounded,
    Track,
    UnaryEncoding,
    plan_cost,
)
from changeling_statistics import delta_at, epsilon_at, loss_statement
from changeling_statistics.accounting import group_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.enumeration import enumerated_loss

from ..contracts.randomizers import steep
from ..protocol.examples import survey
from .exactly import transcript_curve, worst_transcript_curve

EPSILONS = [0.0, 0.1, 0.35, 0.8, 1.2, 2.0, 3.1, 4.4, 6.0]
ROUNDING = 1e-8


def surveyed(*groups, answers, periods, k=2, closed=False):
    names = tuple("abcdefgh"[:answers])
    calendar = Calendar(0, 60, periods)
    return survey(ReleasePlan(groups), answers=names, calendar=calendar, constraint=AtMost(k), closed=closed)


def flat(randomizer, periods, **more):
    return Group((Track(1, randomizer, 0, periods, **more),))


def layered(randomizer, periods, widths):
    return Group(tuple(Track(width, randomizer, 0, periods) for width in widths))


def kary(z, a=3, b=1):
    return KaryResponse(MutationSpace(z), Odds(a, b))


def signed(z, u=Fraction(1)):
    return SignedSubset(MutationSpace(z), Odds(5, 2), spoken=u)


SMALL = [
    (flat(kary(1), 4), 1, 4, 1, False),
    (flat(kary(1), 4), 1, 4, 2, False),
    (flat(kary(2), 4), 2, 4, 2, False),
    (flat(kary(2), 3), 2, 3, 2, False),
    (flat(kary(2), 4), 2, 4, 2, True),
    (layered(kary(2), 4, (1, 2, 4)), 2, 4, 2, False),
    (Group((Track(1, kary(1), 0, 4), Track(2, kary(1, 7, 4), 0, 4))), 1, 4, 2, False),
    (flat(signed(2, Fraction(1, 2)), 4), 2, 4, 2, False),
    (flat(signed(2, Fraction(1, 3)), 4), 2, 4, 3, True),
    (layered(signed(2, Fraction(1, 3)), 4, (1, 2)), 2, 4, 2, False),
    (flat(steep(MutationSpace(1)), 4), 1, 4, 2, True),
    (flat(SubsetSelection(StateSpace(2), Odds(4, 1), 2), 3), 2, 3, 2, False),
    (flat(UnaryEncoding(StateSpace(2), Odds(4, 1)), 2), 2, 2, 2, False),
    (
        Group((Track(1, KaryResponse(StateSpace(2, False), Odds(4, 1)), 0, 1), Track(1, signed(2), 1, 4))),
        2,
        4,
        2,
        True,
    ),
]

REACHED = [0, 1, 2, 3, 4, 5, 8]
"""k-RR with nodes enough and with too few, in an open and a closed cohort, hierarchies whose layers are worst
together, and signed subsets in a closed cohort. (In an open one an entry's first mutation is an insertion, and two
insertions differ less than the mutations that are charged.)"""


@pytest.mark.parametrize("case", range(len(SMALL)))
def test_no_pair_of_changelogs_is_told_apart_beyond_the_stated_curve(case):
    """Over every pair of changelogs and every transcript, the exact δ(ε) stays within the stated one; on the named
    cases some pair has exactly that, at every ε."""
    group, z, T, k, closed = SMALL[case]
    stated = surveyed(group, answers=z, periods=T, k=k, closed=closed)
    exact = worst_transcript_curve(group, z, T, k, closed)
    for epsilon in EPSILONS:
        found = delta_at(stated, epsilon)
        assert exact.delta_at(epsilon) <= found
        if case in REACHED:
            assert found == pytest.approx(exact.delta_at(epsilon), rel=ROUNDING, abs=1e-12)


def test_of_several_groups_the_worst_counts():
    """Everybody sees which group an entry drew: δ(ε) is the largest of all groups', whatever their shares."""
    groups = (Group(flat(kary(2), 4).tracks, 99), Group(flat(kary(2, 20), 1).tracks, 1))
    stated = surveyed(*groups, answers=2, periods=4, k=1)
    exact = [worst_transcript_curve(group, 2, 4, 1) for group in groups]
    worst = [max(curve.delta_at(epsilon) for curve in exact) for epsilon in EPSILONS]
    assert len({max(range(2), key=lambda i: exact[i].delta_at(epsilon)) for epsilon in EPSILONS}) == 2
    for epsilon, delta in zip(EPSILONS, worst, strict=True):
        assert delta_at(stated, epsilon) == pytest.approx(delta, rel=ROUNDING, abs=1e-12)
        assert delta_at(stated, epsilon) >= delta
        assert epsilon_at(stated, 0.01) == max(group_epsilon(stated, group, 0.01) for group in groups)


def test_random_nodes_count_as_the_worst_draw():
    """With r of N nodes drawn and public, any set of r is no worse than the stated curve, and the worst one is it."""
    randomizer = kary(1)
    stated = surveyed(flat(randomizer, 4, reported=2), answers=1, periods=4, k=2)
    worst = transcript_curve(flat(randomizer, 2), (0, 1, 0), (0, 0, 1))
    for epsilon in EPSILONS:
        assert delta_at(stated, epsilon) == pytest.approx(worst.delta_at(epsilon), rel=ROUNDING, abs=1e-12)


@pytest.mark.parametrize("n", [4, 20])
def test_the_trap_of_dp_accounting_is_not_ours(n):
    """PLDAccountant.compose(RandomizedResponseDpEvent, n) counts one report; n reports cost what
    from_randomized_response(...).self_compose(n) says, and so do ours."""
    import dp_accounting
    from dp_accounting.pld import pld_privacy_accountant, privacy_loss_distribution

    response = kary(2, 9, 2)
    m, delta = response.symbols, 1e-3
    noise = m * 2 / response.total()
    stated = epsilon_at(surveyed(flat(response, n), answers=2, periods=n, k=n // 2), delta)
    composed = privacy_loss_distribution.from_randomized_response(noise, m).self_compose(n)
    assert stated == pytest.approx(composed.get_epsilon_for_delta(delta), abs=n * 1e-4)

    trapped = pld_privacy_accountant.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    trapped.compose(dp_accounting.dp_event.RandomizedResponseDpEvent(noise, m), n)
    assert trapped.get_epsilon(delta) < stated / 2


@pytest.mark.parametrize(
    "randomizer",
    [kary(2, 11, 10), signed(2, Fraction(1, 3)), signed(3), SignedSubset(MutationSpace(2), Odds(11, 10))],
)
def test_plans_of_a_hundred_changes_are_answered_at_once(randomizer):
    """κ = 100 of N = 10,000 nodes, and of too few of them: ε at small deltas, below the pure cost."""
    for T in (10_000, 150):
        stated = surveyed(flat(randomizer, T), answers=randomizer.space.answers, periods=T, k=100)
        epsilon = epsilon_at(stated, 1e-6)
        assert epsilon < 0.9 * float(stated.cost)
        assert delta_at(stated, epsilon) <= 1e-6


def test_a_custom_matrix_of_many_kinds_stays_below_pure():
    """Off every lattice the grid rounds up, and the figure is still never above the pure one."""
    stated = surveyed(flat(steep(MutationSpace(2)), 40), answers=2, periods=40, k=6)
    previous = float("inf")
    for delta in (0.0, 1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.9):
        epsilon = epsilon_at(stated, delta)
        assert epsilon <= min(previous, float(stated.cost) * (1 + 1e-15))
        previous = epsilon


@given(
    k=st.integers(1, 6),
    T=st.integers(1, 20),
    a=st.integers(2, 30),
    closed=st.booleans(),
    deltas=st.lists(st.floats(1e-12, 0.5), min_size=2, max_size=2),
)
@settings(max_examples=40)
def test_more_delta_fewer_changes_and_less_loss_never_cost_more(k, T, a, closed, deltas):
    """ε(δ) falls with δ, and rises with k and with the odds; never above the pure cost."""
    low, high = sorted(deltas)

    def at(k, a, delta):
        made = surveyed(flat(kary(2, a), T), answers=2, periods=T, k=k, closed=closed)
        epsilon = epsilon_at(made, delta)
        assert 0 <= epsilon <= float(made.cost) * (1 + 1e-15)
        return epsilon

    assert at(k, a, high) <= at(k, a, low)
    assert at(k, a, low) <= at(k + 1, a, low) * (1 + ROUNDING) + 1e-12
    assert at(k, a, low) <= at(k, a + 1, low) * (1 + ROUNDING) + 1e-12


def test_time_bounded_entries_count_their_span():
    """B of two periods reaches three nodes, and costs what k = 3 costs."""
    group = flat(kary(2), 16)
    by_time = survey(
        ReleasePlan((group,)), answers=("a", "b"), calendar=Calendar(0, 60, 16), constraint=TimeBounded(120)
    )
    by_count = surveyed(group, answers=2, periods=16, k=3)
    assert epsilon_at(by_time, 1e-4) == epsilon_at(by_count, 1e-4)


def test_bad_arguments_are_named():
    """Negative epsilons, and deltas that promise nothing."""
    stated = surveyed(flat(kary(1), 2), answers=1, periods=2)
    with pytest.raises(ValueError, match="epsilon must be 0 or more, got -1"):
        delta_at(stated, -1)
    for delta in (-1e-9, 1.0, 3):
        with pytest.raises(ValueError, match="delta must be at least 0 and below 1"):
            epsilon_at(stated, delta)


@pytest.mark.parametrize(("periods", "charged", "found"), [(3, 5, 4), (4, 6, 5)])
def test_states_beside_changes_are_charged_a_report_too_many(periods, charged, found):
    """Closed, k = 2, two answers, k-RR at 3:1 of states and changes: no pair of changelogs is the worst on both."""
    odds, calendar = Odds(3, 1), Calendar(0, 60, periods)
    states = Track(1, KaryResponse(StateSpace(2, null=False), odds), 0, periods)
    changes = Track(1, KaryResponse(MutationSpace(2, null=False), odds), 1, periods)
    plan = ReleasePlan((Group((states, changes)),))
    assert float(plan_cost(plan, calendar, AtMost(2), closed=True)) == pytest.approx(charged * log(3))
    assert float(enumerated_loss(plan, calendar, AtMost(2), closed=True)) == pytest.approx(found * log(3))


@pytest.mark.parametrize(
    ("delta", "stated", "exact"), [(Fraction(1, 100), 1.813, 1.793), (Fraction(1, 20), 1.729, 1.614)]
)
def test_signed_subsets_in_an_open_cohort_have_a_curve_above_the_exact_one(delta, stated, exact):
    """One answer, four periods, k = 2, odds 5:2: a first mutation is an insertion, and two insertions differ less."""
    group = Group((Track(1, SignedSubset(MutationSpace(1), Odds(5, 2)), 0, 4),))
    made = surveyed(group, answers=1, periods=4)
    assert epsilon_at(made, float(delta)) == pytest.approx(stated, abs=5e-4)
    assert worst_transcript_curve(group, 1, 4, 2).epsilon_at(delta) == pytest.approx(exact, abs=5e-4)
    assert "upper bound" in loss_statement(made, float(delta)).approximate.conditions
