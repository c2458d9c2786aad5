"""The (ε, δ) of whole transcripts against every pair of changelogs and dp-accounting, and that of one report."""

from fractions import Fraction
from itertools import permutations
from math import inf, log

import dp_accounting
import pytest
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Calendar,
    CustomResponse,
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
    UnaryEncoding,
    plan_cost,
)
from changeling_statistics import (
    SILENT,
    delta_at,
    epsilon_at,
    loss_statement,
    randomizer_curve,
    shuffled_loss,
)
from changeling_statistics.randomizers.counterpart import listed_likelihoods
from changeling_statistics.shuffled import blanket_deltas, clones_deltas, differing_rounds, linked_round
from changeling_statistics.testing import possible
from dp_accounting.pld import pld_privacy_accountant, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.enumeration import enumerated_loss, probability

from ..contracts.randomizers import RANDOMIZERS, steep
from .exactly import flat, relayed, remembered, surveyed, worst_transcript_curve

EPSILONS = [0.0, 0.1, 0.35, 0.8, 1.2, 2.0, 3.1, 4.4, 6.0]
ROUNDING = 1e-8


def layered(randomizer, periods, widths):
    return Group(tuple(Track(width, randomizer, 0, periods) for width in widths))


def kary(z, a=3, b=1):
    return KaryResponse(MutationSpace(z), Odds(a, b))


def signed(z, u=Fraction(1)):
    return SignedSubset(MutationSpace(z), Odds(5, 2), spoken=u)


ANY, MOVES, LIVE = Odds(2, 1), MutationSpace(2, null=False), StateSpace(2, null=False)


def jointly(terms, *tracks):
    return Group.jointly(tracks, Joint(*terms))


def quiet(space, u=Fraction(1, 2)):
    return SignedSubset(space, ANY, spoken=u)


TOLD_AT_ONCE = Track(1, KaryResponse(LIVE, ANY), 0, 1), Track(1, quiet(MOVES, Fraction(1)), 1, 3)
DRAWN = Track(1, KaryResponse(LIVE, ANY), 0, 2), Track(1, KaryChange(MOVES, ANY), 1, 3, reported=1)
SPOKEN = Track(1, SignedSubset(MutationSpace(1), ANY), 0, 3)
SETS = Track(1, SubsetSelection(StateSpace(2), ANY, 2), 0, 2)
EITHER = Hybrid((AtMost(2), TimeBounded(66)))
SMALL = {
    "k-RR, one change": (flat(kary(1), 4), 1, False, True),
    "k-RR, nodes enough": (flat(kary(1), 4), 2, False, True),
    "k-RR, two answers": (flat(kary(2), 4), 2, False, True),
    "k-RR, too few nodes": (flat(kary(2), 3), 2, False, True),
    "k-RR, closed": (flat(kary(2), 4), 2, True, True),
    "k-RR, layers": (layered(kary(2), 4, (1, 2, 4)), 2, False, True),
    "k-RR, layers of unlike odds": (Group((Track(1, kary(1), 0, 4), Track(2, kary(1, 7, 4), 0, 4))), 2, False, False),
    "k-RR, nodes drawn": (flat(kary(1), 4, 2), 2, False, True),
    "k-RR, nodes drawn, closed": (flat(kary(2), 3, 2), 1, True, True),
    "k-RR, so many within so long": (flat(kary(2), 4), AtMostWithin(2, 66), True, True),
    "signed subsets, a node drawn, closed": (flat(signed(2), 3, 1), 2, True, True),
    "signed subsets": (flat(signed(2, Fraction(1, 2)), 4), 2, False, False),
    "signed subsets, closed": (flat(signed(2, Fraction(1, 3)), 4), 3, True, True),
    "signed subsets, layers": (layered(signed(2, Fraction(1, 3)), 4, (1, 2)), 2, False, False),
    "a custom matrix": (flat(steep(MutationSpace(1)), 4), 2, True, False),
    "subsets": (flat(SubsetSelection(StateSpace(2), Odds(4, 1), 2), 3), 2, False, False),
    "unary encoding": (flat(UnaryEncoding(StateSpace(2), Odds(4, 1)), 2), 2, False, False),
    "anchored": (
        Group((Track(1, KaryResponse(StateSpace(2, False), Odds(4, 1)), 0, 1), Track(1, signed(2), 1, 4))),
        2,
        True,
        False,
    ),
    "joint, signed": (jointly((Odds(3, 1), 1, (1,), (2,)), Track(1, quiet(MOVES), 1, 3)), 3, True, True),
    "joint, kary": (jointly((Odds(3, 1), 2, (1,), (2,)), Track(1, KaryChange(MOVES, ANY), 1, 3)), 3, True, True),
    "joint, anchored": (jointly((Odds(9, 2), 2, (2, 1), (1, 2)), *TOLD_AT_ONCE), 3, True, True),
    "joint, states and one random change": (jointly((Odds(9, 2), 3, (1, 1), (2, 1)), *DRAWN), 3, True, True),
    "joint, panel": (jointly((Odds(9, 1), 2, (1,), (2,)), SETS), 1, False, False),
    "joint, few nodes": (
        jointly((Odds(4, 1), 2, (1,), (2,)), Track(1, quiet(MutationSpace(1)), 0, 2)),
        2,
        False,
        False,
    ),
    "joint, open": (
        jointly((Odds(4, 1), 1, (1,), (1,)), Track(1, SignedSubset(MutationSpace(1), ANY), 0, 3)),
        1,
        False,
        False,
    ),
    "joint, spare": (jointly((Odds(4, 1), 2, (1,), (3,)), Track(1, quiet(MOVES), 1, 3)), 3, True, False),
    "a history": (remembered(2, 3, closed=True), 2, True, True),
    "a history in so long": (remembered(TimeBounded(66), 3), TimeBounded(66), False, True),
    "a history of either": (remembered(EITHER, 3, closed=True), EITHER, True, True),
}
"""Groups, k or another constraint, whether the cohort is closed, and whether some pair of changelogs has exactly the
stated curve. (In an open cohort a first mutation is an insertion, and two insertions differ less than the mutations
that are charged. The panel's states are told at any time, but cannot all differ before k = 1 is used up.)"""


@pytest.mark.parametrize("case", SMALL)
def test_no_pair_of_changelogs_is_told_apart_beyond_the_stated_curve(case):
    """Over every pair of changelogs, draw of nodes and transcript, the exact δ(ε) stays within the stated one, at every
    ε; and is 0 from the charge on."""
    group, k, closed, reached = SMALL[case]
    stated, exact = surveyed(group, k=k, closed=closed), worst_transcript_curve(group, k, closed)
    for epsilon in EPSILONS:
        found = delta_at(stated, epsilon)
        assert exact.delta_at(epsilon) <= found
        if reached:
            assert found == pytest.approx(exact.delta_at(epsilon), rel=ROUNDING, abs=1e-12)
    assert delta_at(stated, float(stated.cost) + 1e-9) == 0


def test_of_several_groups_the_worst_counts():
    """Everybody sees which group an entry drew: δ(ε) is the largest of all groups', whatever their shares."""
    groups = (Group(flat(kary(2), 4).tracks, 99), Group(flat(kary(2, 20), 1).tracks, 1))
    stated = surveyed(*groups, k=1)
    exact = [worst_transcript_curve(group, 1) for group in groups]
    worst = [max(curve.delta_at(epsilon) for curve in exact) for epsilon in EPSILONS]
    assert len({max(range(2), key=lambda i: exact[i].delta_at(epsilon)) for epsilon in EPSILONS}) == 2
    for epsilon, delta in zip(EPSILONS, worst, strict=True):
        assert delta_at(stated, epsilon) == pytest.approx(delta, rel=ROUNDING, abs=1e-12)
        assert delta_at(stated, epsilon) >= delta
    assert epsilon_at(stated, 0.01) == max(epsilon_at(surveyed(group, k=1), 0.01) for group in groups)


@pytest.mark.parametrize("n", [4, 20])
def test_the_trap_of_dp_accounting_is_not_ours(n):
    """PLDAccountant.compose(RandomizedResponseDpEvent, n) counts one report; n reports cost what
    from_randomized_response(...).self_compose(n) says, and so do ours."""
    response = kary(2, 9, 2)
    m, delta = response.symbols, 1e-3
    noise = m * 2 / response.total()
    stated = epsilon_at(surveyed(flat(response, n), k=n // 2), delta)
    composed = privacy_loss_distribution.from_randomized_response(noise, m).self_compose(n)
    assert stated == pytest.approx(composed.get_epsilon_for_delta(delta), abs=n * 1e-4)

    trapped = pld_privacy_accountant.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    trapped.compose(dp_accounting.dp_event.RandomizedResponseDpEvent(noise, m), n)
    assert trapped.get_epsilon(delta) < stated / 2


@pytest.mark.parametrize(
    "randomizer", [kary(2, 11, 10), signed(2, Fraction(1, 3)), signed(3), SignedSubset(MutationSpace(2), Odds(11, 10))]
)
def test_plans_of_a_hundred_changes_are_answered_at_once(randomizer):
    """κ = 100 of N = 10,000 nodes, and of too few of them: ε at small deltas, below the pure cost."""
    for T in (10_000, 150):
        stated = surveyed(flat(randomizer, T), k=100)
        epsilon = epsilon_at(stated, 1e-6)
        assert epsilon < 0.9 * float(stated.cost)
        assert delta_at(stated, epsilon) <= 1e-6


def test_a_custom_matrix_of_many_kinds_stays_below_pure():
    """Off every lattice the grid rounds up, and the figure is still never above the pure one."""
    stated = surveyed(flat(steep(MutationSpace(2)), 40), k=6)
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
        made = surveyed(flat(kary(2, a), T), k=k, closed=closed)
        epsilon = epsilon_at(made, delta)
        assert 0 <= epsilon <= float(made.cost) * (1 + 1e-15)
        return epsilon

    assert at(k, a, high) <= at(k, a, low)
    assert at(k, a, low) <= at(k + 1, a, low) * (1 + ROUNDING) + 1e-12
    assert at(k, a, low) <= at(k, a + 1, low) * (1 + ROUNDING) + 1e-12


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
    made = surveyed(group)
    assert epsilon_at(made, float(delta)) == pytest.approx(stated, abs=5e-4)
    assert worst_transcript_curve(group, 2).epsilon_at(delta) == pytest.approx(exact, abs=5e-4)
    assert "upper bound" in loss_statement(made, float(delta)).approximate.conditions


STATED = relayed(surveyed(flat(kary(1), 2)))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (lambda: delta_at(STATED, -1), "epsilon must be 0 or more, got -1"),
        (lambda: SILENT.delta_at(-0.5), r"epsilon must be 0 or more, got -0\.5"),
        (lambda: SILENT.epsilon_at(2), "delta must be from 0 to 1, got 2"),
        *((lambda d=d: epsilon_at(STATED, d), "delta must be at least 0 and below 1") for d in (-1e-9, 1.0, 3)),
        *((lambda d=d: shuffled_loss(STATED, d, 10), "a delta from 1e-12 to below 1") for d in (0.0, 1e-13, 1.0)),
        (lambda: loss_statement(STATED, 1), "delta must be at least 0 and below 1, got 1"),
        (lambda: shuffled_loss(surveyed(flat(kary(1), 2)), 1e-6, 10), "needs a relay, and this survey declares none"),
        (lambda: shuffled_loss(STATED, 1e-6, 0), "at least one entry is shuffled, got 0"),
        (lambda: blanket_deltas(0.5, 0.5, 2, 0, EPSILONS), "at least one entry is shuffled, got 0"),
        (lambda: blanket_deltas(0.5, 0.4, 3, 5, EPSILONS), "not k-RR over 3 symbols"),
        *((lambda e=e: clones_deltas(e, 10, EPSILONS), "local epsilon must be 0 or more") for e in (-1.0, inf)),
    ],
)
def test_bad_arguments_are_named(asked, named):
    """Negative epsilons, deltas that promise nothing or are too small for floats, nobody to shuffle, and no k-RR."""
    with pytest.raises(ValueError, match=named):
        asked()


RATIOS = [Fraction(1, 3), Fraction(1), Fraction(3, 2), Fraction(11, 2)]


def names(randomizer):
    return f"{type(randomizer).__name__}-{randomizer.symbols}"


def directly(randomizer, ratio):
    """max over pairs of Σ_o max(0, P_ou - ratio·P_ov)."""
    law = {u: [probability(randomizer, o, u) for o in range(randomizer.symbols)] for u in possible(randomizer.space)}
    return max(
        (
            sum(max(Fraction(0), p - ratio * q) for p, q in zip(law[u], law[v], strict=True))
            for u, v in permutations(law, 2)
        ),
        default=Fraction(0),
    )


@pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=names)
def test_the_curve_is_the_definitions_largest_sum(randomizer):
    """δ at every ratio, below one too, equals the sum over symbols of its definition, for the worst pair of inputs; and
    ε(δ) is its inverse. That each kind of pair has its worst is the contract's."""
    curve = randomizer_curve(randomizer)
    for ratio in RATIOS:
        assert curve.delta_at_ratio(ratio) == max(directly(randomizer, ratio), Fraction(0), 1 - ratio)
    for delta in (1e-9, 1e-3, 0.05, 0.3):
        epsilon = curve.epsilon_at(delta)
        assert curve.delta_at(epsilon) <= delta
        assert epsilon == 0 or curve.delta_at(epsilon * (1 - 1e-9)) > delta * (1 - 1e-6)


@pytest.mark.parametrize(
    "randomizer",
    [
        SignedSubset(MutationSpace(15), Odds(7, 2), spoken=Fraction(1, 3)),
        SignedSubset(MutationSpace(24), Odds(7, 2), pluses=4),
        SubsetSelection(StateSpace(40), Odds(7, 2), 12),
        UnaryEncoding(StateSpace(40), Odds(7, 2)),
        KaryResponse(MutationSpace(900), Odds(7, 2)),
    ],
    ids=names,
)
def test_long_alphabets_have_a_curve_at_once(randomizer):
    """Their pure ends are the stated losses, without listing a symbol."""
    worst = max(randomizer.losses.mutations, randomizer.losses.appears, randomizer.losses.vanishes)
    assert randomizer_curve(randomizer).epsilon_at(0) == pytest.approx(float(worst), rel=1e-12)


def test_a_matrix_with_zeros_has_a_curve_and_no_pure_loss():
    """A symbol that one input never sends: ε(0) is infinite, and δ never falls below its probability."""
    curve = randomizer_curve(CustomResponse(StateSpace(1), ((9, 2), (1, 7), (0, 1))))
    assert curve.epsilon_at(0) == curve.epsilon_at(0.09) == inf
    assert curve.delta_at(inf) == curve.delta_at(50.0) == pytest.approx(0.1)
    assert curve.epsilon_at(Fraction(1, 10)) == pytest.approx(log(7))


def test_an_alphabet_that_nobody_can_list_wants_a_closed_form():
    """It is refused before any symbol is looked at."""

    class Endless:
        symbols = 2**40

    with pytest.raises(ValueError, match=r"1099511627776 symbols are too many to list .* register a closed form"):
        listed_likelihoods(Endless(), 0, 1)


def test_the_threshold_moves_delta_and_not_the_pure_figure():
    """Eight slots at odds e^8: one charge, a δ for each threshold, and ε(δ) is its inverse."""
    space = MutationSpace(4)
    groups = [jointly((Odds.within(8), tau, (1,), (8,)), Track(1, quiet(space), 0, 64)) for tau in (1, 3, 5)]
    stated = [surveyed(group, k=8) for group in groups]
    assert len({each.cost for each in stated}) == 1
    assert len({delta_at(each, 6.0) for each in stated}) == 3
    for each in stated:
        assert epsilon_at(each, delta_at(each, 6.0)) == pytest.approx(6.0, abs=1e-6)


def test_the_most_slots_are_answered_at_once():
    """256 slots, in about a second."""
    group = jointly((Odds.within(4), 128, (1,), (256,)), Track(1, quiet(MutationSpace(4)), 0, 1000))
    assert 0 < delta_at(surveyed(group, k=256), 1.0) < 1


def test_shuffled_joint_transcripts_are_bounded_as_one_report():
    """The figure falls with the crowd and never exceeds (ε, δ); as reports hang together, no rounds are composed."""
    group, k, closed, _ = SMALL["joint, anchored"]
    stated = relayed(surveyed(group, k=k, closed=closed))
    losses = [shuffled_loss(stated, 1e-6, entries) for entries in (10, 10_000, 1_000_000)]
    found = [epsilon_at(stated, 1e-6), *(each.epsilon for each in losses)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.1
    assert "whole transcript as one report" in losses[-1].source
    with pytest.raises(ValueError, match="rounds of a joint group depend on each other"):
        differing_rounds(group, stated.calendar, stated.constraint, closed)


def test_shuffled_histories_hide_among_uniform_ones():
    """A million entries: the blanket of k-RR over all possible histories, far below the local figure; a thousand hide
    less, and where histories are too many to be counted in floats the general bound stands."""
    group = remembered(2, 6, True, Odds.within(4))
    made = relayed(surveyed(group, closed=True))
    many, few = (shuffled_loss(made, 1e-6, entries) for entries in (10**6, 1000))
    assert many.epsilon < 0.1 < few.epsilon <= epsilon_at(made, 1e-6)
    assert "privacy blanket" in many.source
    whole = linked_round(group, made.calendar, made.constraint, closed=True)
    assert whole.blanket.symbols == 12
    assert whole.blanket.truth + 11 * whole.blanket.other == pytest.approx(1)
    wide = Group.of_history(History.of(Odds(9, 1), range(1, 65), AtMost(64), Calendar(0, 60, 64), closed=True), 4)
    assert linked_round(wide, Calendar(0, 60, 64), AtMost(64), closed=True).blanket is None
