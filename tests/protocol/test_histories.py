"""History groups: which histories are possible, the law of what a device draws, what it costs, and its signed form."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Calendar,
    Group,
    History,
    HistoryState,
    Hybrid,
    KaryResponse,
    Limits,
    Odds,
    PossibleHistories,
    ReleasePlan,
    StateSpace,
    Survey,
    TimeBounded,
    Track,
    UnderstatedEpsilon,
    first_memory,
    group_cost,
    lives_cost,
    plan_cost,
    respond,
    unsent,
)
from changeling_statistics.testing import questions, transcripts, worst_of_laws, worst_of_two_lives

from tests.coins import ListedCoins, SeededCoins
from tests.enumeration import changelogs, log_from_below

from .examples import survey

CONSTRAINTS = (
    *(AtMost(k) for k in (1, 2, 3)),
    *(TimeBounded(seconds) for seconds in (5, 11, 20)),
    AtMostWithin(2, 15),
    AtMostWithin(3, 20),
    Hybrid((AtMost(2), TimeBounded(15))),
    Hybrid((AtMost(3), TimeBounded(10))),
    Hybrid((AtMost(1), AtMost(2))),
)
SHAPES = ((1, 4, 1, 1), (2, 3, 1, 1), (2, 4, 2, 2), (2, 5, 2, 1), (2, 4, 1, 2), (3, 3, 1, 1))
"""z, T, every which period an entry reports, and the first of them."""
ODDS = Odds(7, 2)


def history_group(answers, calendar, constraint, closed, *, every=1, first=1, odds=ODDS, share=1):
    """A group that reports the state at the end of the period `first` and of every so manieth after it."""
    periods = range(first, calendar.periods + 1, every)
    return Group.of_history(History.of(odds, periods, constraint, calendar, closed), answers, share)


def small_groups(shape):
    """Groups of this shape under every constraint, each with its cost, that of two lives, and all changelogs."""
    z, T, every, first = shape
    for constraint, closed in product(CONSTRAINTS, (False, True) if z > 1 else (False,)):
        calendar = Calendar(0, 10, T)
        group = history_group(z, calendar, constraint, closed, every=every, first=first)
        asked = ReleasePlan((group,)), calendar, constraint, closed
        yield group, plan_cost(*asked), lives_cost(*asked, lives=2), list(changelogs(z, calendar, constraint, closed))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reports_drawn_one_by_one_have_the_law_of_one_response_over_all(shape):
    """Every transcript has its defined chance, from every history: a for the truth, b for every other possible one. And
    each report by itself has the law of its track's randomizer, by which it is decoded. So no two changelogs are told
    apart beyond the odds, over every pair and transcript; attained wherever there are two histories."""
    for group, stated, _, every in small_groups(shape):
        asked = [questions(group, states) for states in every]
        laws = {tuple(each): {sent: p for sent, (p, _) in transcripts(group, each).items()} for each in asked}
        worst = worst_of_laws(laws.values())
        assert log_from_below(worst) <= stated == ODDS.epsilon
        assert worst == (Fraction(7, 2) if group.histories.possible.count > 1 else 1)
        histories = {tuple(true for _, true in each) for each in laws}
        total = ODDS.favoured + (len(histories) - 1) * ODDS.other
        for each, law in laws.items():
            truth = tuple(true for _, true in each)
            assert law == {sent: Fraction(ODDS.favoured if sent == truth else ODDS.other, total) for sent in histories}
            for at, (place, true) in enumerate(each):
                randomizer = group.tracks[place].randomizer
                for symbol in range(randomizer.symbols):
                    alone = sum(chance for sent, chance in law.items() if sent[at] == symbol)
                    assert alone == Fraction(randomizer.weight(symbol, true), randomizer.total(true))


@pytest.mark.parametrize(("fewest", "most"), [(2, 9), pytest.param(10, 15, marks=pytest.mark.heavy)])
def test_two_lives_of_a_store_cost_twice_the_odds_of_a_history_group(fewest, most):
    """A copy of the store, made after any closing and put back later: all that both lives send, each keeping to the
    constraint, where so many changelogs are possible. The bound is attained by a copy made before the first report."""
    for shape in SHAPES:
        for group, _, stated, every in small_groups(shape):
            if fewest <= len(every) <= most:
                worst = worst_of_two_lives(group, every)
                assert log_from_below(worst) <= stated
                assert worst == Fraction(7, 2) ** 2


def test_what_is_not_sent_is_drawn_all_the_same():
    """An entry that enrols late, or drops a closing, draws what it owes and keeps it to itself: what it sends has the
    law of the whole with the rest summed over, so that one decoder reads all reports of a time."""
    calendar = Calendar(0, 10, 3)
    group = history_group(2, calendar, AtMost(2), closed=False)
    late, memory = (0, 0, 1, 2), first_memory(group)
    owed = list(unsent(group, memory, 1))
    assert owed == [(0, 1)]
    ((_, memory),) = [respond(group, place, late[period], memory, SeededCoins(1)) for place, period in owed]
    assert list(unsent(group, memory, 2)) == [(1, 2)]
    _, memory = respond(group, 1, 1, memory, SeededCoins(1))
    _, memory = respond(group, 2, 2, memory, SeededCoins(1))
    assert memory is None
    assert list(unsent(group, None, 3)) == []


def test_a_truth_that_cannot_be_costs_no_more_either():
    """If a device held a history that is forbidden, every transcript would keep its chance, b to a."""
    group, _, _, every = next(each for each in small_groups((2, 3, 1, 1)) if not each[0].joint.null)
    allowed = [{sent: chance for sent, (chance, _) in transcripts(group, questions(group, s)).items()} for s in every]
    forbidden = transcripts(group, questions(group, (0, 1, 2, 1)))
    worst = worst_of_laws([*allowed, {sent: chance for sent, (chance, _) in forbidden.items()}])
    assert worst == Fraction(7, 2)


def test_counts_are_exact_over_1024_times():
    """In closed and open cohorts the prefixes of every constraint add up to the whole, in integers of any size."""
    calendar = Calendar(0, 10, 1024)
    for constraint, closed in product(
        (AtMost(4), TimeBounded(900), Hybrid((AtMost(5), TimeBounded(60)))), (False, True)
    ):
        limits = Limits.of(constraint, calendar, closed, range(1, 1025))
        possible = PossibleHistories(4 + (not closed), 1024, not closed, limits)
        state, coins = HistoryState(), SeededCoins(7)
        whole = possible.count
        for _ in range(1024):
            stays, changes = possible.going_on(state)
            assert stays + (possible.states - 1) * changes == whole
            change = bool(changes) and coins.below(100) == 0
            state = possible.after(state, (state.last + change) % possible.states, true=True)
            whole = changes if change or (closed and state.drawn == 1) else stays
        assert whole == 1


@pytest.mark.parametrize("closed", [False, True])
def test_a_history_group_is_signed_and_read_again(closed):
    """The signed bytes hold its times, its limits and the odds; what is read from them is the same plan, and costs its
    odds. One whose limits are not those of the constraint is refused, and one of the other kind of cohort."""
    calendar = Calendar(0, 60, 6)
    group = history_group(3, calendar, AtMost(3), closed, every=2)
    state = KaryResponse(StateSpace(3, not closed), ODDS)
    plan = ReleasePlan((replace(group, share=3), Group((Track(1, state, 0, 1),))))
    made = survey(plan, calendar=calendar, constraint=AtMost(3), closed=closed)
    read = Survey.from_payload(made.payload)
    assert read == made
    assert read.plan.groups[0].joint == History(ODDS, Limits(2, 2), 1, 2, 3, null=not closed)
    assert [node.end for track in read.plan.groups[0].tracks for node in track.nodes()] == [1, 3, 5]
    assert group_cost(group, calendar, AtMost(3), closed) == ODDS.epsilon
    with pytest.raises(ValueError, match="the histories of this survey have the limits"):
        group_cost(group, calendar, AtMost(2), closed)
    with pytest.raises(ValueError, match="histories are without NULL in a closed cohort"):
        group_cost(group, calendar, AtMost(3), not closed)
    with pytest.raises(UnderstatedEpsilon):
        replace(made, epsilon_micro=made.epsilon_micro - 1)


TWICE = history_group(2, Calendar(0, 10, 2), AtMost(2), closed=True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: History(ODDS, Limits(1, 3), 1, 1, 3, null=True), "at most 2 changes"),
        (lambda: History(ODDS, Limits(1, 3), 1, 1, 1025, null=True), "1 to 1024 times"),
        (lambda: History(ODDS, Limits(0, 0), 0, 1, 3, null=True), "numbered from 1 on"),
        (lambda: History(ODDS, Limits(0, 0), 1, 0, 3, null=True), "numbered from 1 on"),
        (lambda: History(Odds(1, 1), Limits(0, 0), 1, 1, 1, null=True), "say nothing"),
        (lambda: Limits(-1, 0), "0 or more"),
        (lambda: Group.of_history(History(ODDS, Limits(0, 0), 1, 1, 1, null=False), 1), "single state"),
        (lambda: History.from_fields({"odds": [2, 1], "changes": 1, "span": True, "either": 0}), "is its odds"),
        (lambda: replace(TWICE, tracks=(Track(1, KaryResponse(StateSpace(2, False), ODDS), 0, 2),)), "follow from it"),
        (lambda: respond(TWICE, 0, 0, None, ListedCoins([0])), "all times"),
    ],
)
def test_what_cannot_be_a_history_is_refused(make, said):
    """More changes than reports, too many times or none, odds of 1:1, a single state, other tracks, other fields."""
    with pytest.raises(ValueError, match=said):
        make()
