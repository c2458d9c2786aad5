"""Surveys in the field: rates are what they say, attendance adds up, and those who are heard report as they would."""

from itertools import pairwise

import numpy as np
import pytest
from changeling_protocol import Calendar, Group, KaryResponse, MutationSpace, Node, Odds, StateSpace, Track
from changeling_simulations import Field, Population, sample_field
from changeling_simulations.field import attended_closings, draw_entries
from scipy.stats import norm

from .test_sampler import survey

FALSE_ALARM = 1e-6
"""The chance that a right sampler fails one of the tests below, were its seed drawn anew."""
PERIODS, ENTRIES = 12, 20_000
CALENDAR = Calendar(0, 60, PERIODS)
RESPONSE = KaryResponse(MutationSpace(2), Odds(9, 2))
PLAN = (
    Group((Track(1, RESPONSE, 0, PERIODS), Track(4, RESPONSE, 0, PERIODS)), share=3),
    Group((Track(2, KaryResponse(StateSpace(2), Odds(2, 1)), 0, PERIODS, reported=2),), share=1),
)


def half_and_half(entries: int, periods: int = PERIODS) -> Population:
    """Half hold the first answer all along, half move to the second in the middle."""
    states = np.zeros((2, periods + 1), np.uint16)
    states[:, 1:] = 1
    states[1, periods // 2 :] = 2
    return Population(("tea", "coffee"), states, states, np.array([entries // 2, entries - entries // 2]))


def sampled(field: Field, entries: int = ENTRIES, seed: int = 1):
    population = half_and_half(entries)
    return sample_field(population, survey(population, CALENDAR, *PLAN), field, np.random.default_rng(seed))


def drawn(field: Field, entries: int = ENTRIES):
    population = half_and_half(entries)
    asked, generator = survey(population, CALENDAR, *PLAN), np.random.default_rng(2)
    everybody = draw_entries(population, asked, field, generator)
    return everybody, list(attended_closings(population, asked, field, everybody, generator))


def assert_share(count: float, of: float, share: float) -> None:
    """A binomial count is not told apart from its expectation."""
    assert abs(count - of * share) <= norm.isf(FALSE_ALARM / 40) * np.sqrt(of * share * (1 - share)) + 1


def test_newcomers_may_be_unlike_those_before_them():
    """In the population's order the second half of the histories enrols last; and at each closing those who are heard
    are told from those who were ever heard of, both by the state that they hold."""
    growing = Field(arrivals=0.1, uninstalls=0.1, in_order=True)
    entries, closings = drawn(growing)
    assert (np.diff(entries.enrolled) >= 0).all()
    assert (np.diff(entries.history) >= 0).all()
    assert len({*entries.history[entries.enrolled == 0].tolist()}) == 1
    for closing in closings:
        held = entries.states(half_and_half(ENTRIES), closing.period)
        heard, known = (np.bincount(held[among], minlength=3)[1:] for among in (closing.heard, closing.known))
        assert (heard <= known).all()
    assert heard[0] / heard.sum() < known[0] / known.sum() - 0.05
    assert sampled(growing, seed=2).known[PERIODS][1:].sum() == pytest.approx(known.sum(), abs=100)


def test_arrivals_grow_those_who_enrolled_by_their_rate():
    """5% a period; and what an arrival held before is not reported as a change after."""
    entries, _ = drawn(Field(arrivals=0.05))
    come = np.bincount(entries.enrolled, minlength=PERIODS).cumsum()
    assert come[-1] == ENTRIES == len(entries)
    for period in range(1, PERIODS):
        assert_share(come[period - 1], come[period], 1 / 1.05)
    population = half_and_half(ENTRIES)
    arrived = entries.enrolled == 7
    assert not entries.states(population, 7)[arrived].any()
    assert entries.states(population, 8)[arrived].all()


def test_uninstalls_and_reinstalls_come_at_their_rates():
    """Who leaves is not heard again; who reinstalls is heard as a new entry from the next closing on."""
    entries, _ = drawn(Field(uninstalls=0.1))
    for period in range(1, PERIODS):
        assert_share((entries.left > period).sum(), (entries.left >= period).sum(), 0.9)
    entries, attended = drawn(Field(reinstalls=0.1))
    assert all(closing.heard.sum() == ENTRIES for closing in attended)
    for closing in attended[1:]:
        assert_share((closing.heard & closing.new).sum(), ENTRIES, 0.1)
    both = Field(uninstalls=0.1, reinstalls=0.2)
    entries, attended = drawn(both)
    for before, closing in pairwise(attended):
        assert_share(closing.heard.sum(), before.heard.sum(), 0.9)


@pytest.mark.parametrize("spell", [None, 4.0])
def test_spells_offline_have_their_length_and_their_share(spell):
    """30% are offline at every closing; spells last 1/0.7 periods by chance alone, or 4."""
    _, attended = drawn(Field(offline=0.3, spell=spell))
    for before, closing in pairwise(attended):
        silent = ~before.heard
        assert_share(silent.sum(), ENTRIES, 0.3)
        assert_share((silent & closing.heard).sum(), silent.sum(), 0.7 if spell is None else 0.25)


def test_what_is_late_counts_in_the_end_and_not_at_first():
    """10% late: known at t without the late of t, and with the late of all before."""
    field = sampled(Field(late=0.1))
    assert {a.heard for (group, _), a in field.tallies.attendance.items() if group == 0} == {
        field.tallies.attendance[0, 1].heard
    }
    known, everything = field.known_at(5), field.tallies
    assert max(period for _, period in known.attendance) == 5
    assert known.attendance[0, 4] == everything.attendance[0, 4]
    assert known[0, 4].reports == everything[0, 4].reports
    of = everything.attendance[0, 5].heard
    assert_share(known.attendance[0, 5].heard, of, 0.9)
    assert known[0, 5].reports == known.attendance[0, 5].heard


def test_an_outage_loses_its_closings_and_those_who_missed_them_all_are_told_from_new_ones():
    """From the start: nobody is new afterwards, all have missed. In the middle: the closings are not there."""
    late_start = sampled(Field(outage=Node(0, 3))).tallies
    assert min(period for _, period in late_start.attendance) == 4
    first = late_start.attendance[0, 4]
    assert (first.new, first.missed) == (0, first.heard)
    outage = sampled(Field(outage=Node(4, 6))).tallies
    assert {period for _, period in outage.attendance} == {1, 2, 3, 4, *range(7, 13)}
    assert not any(4 < PLAN[0].tracks[track].node(number).end <= 6 for track, number in outage if track < 2)


def test_silence_may_depend_on_the_answer():
    """Nobody with the second answer is heard: nobody in the second half of those who move."""
    _, attended = drawn(Field(reluctance=(0, 0, 1)))
    assert [closing.heard.sum() for closing in attended] == [ENTRIES] * 5 + [ENTRIES // 2] * 7


def test_a_closed_cohort_takes_nobody_in():
    """Arrivals are refused; who reinstalls is gone."""
    population = half_and_half(1000)
    asked = survey(population, CALENDAR, *PLAN, closed=True)
    with pytest.raises(ValueError, match="closed cohort takes no arrivals"):
        sample_field(population, asked, Field(arrivals=0.1), np.random.default_rng(0))
    entries = draw_entries(population, asked, Field(reinstalls=0.5), np.random.default_rng(0))
    assert len(entries) == 1000
    assert not entries.enrolled.any()


@pytest.mark.parametrize("name", ["arrivals", "uninstalls", "reinstalls", "offline", "late"])
def test_a_rate_outside_0_to_1_is_refused_by_name(name):
    """None of them is taken to the nearest. What else cannot be, the command is told: test_cli.py."""
    for rate in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=f"{name} must be a rate from 0 to 1"):
            Field(**{name: rate})
    with pytest.raises(ValueError, match="a rate for each of 3 states"):
        sampled(Field(reluctance=(0.1,)))
