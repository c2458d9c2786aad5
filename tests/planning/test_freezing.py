"""Freezing predicted: from a pilot, from how often entries change, and the number of changes that it makes best."""

import re
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import MICRO, AtMost, AtMostWithin, Calendar, TimeBounded
from changeling_simulations import synthetic_changelog
from changeling_statistics import (
    Pilot,
    Prediction,
    SteadyChanges,
    Wish,
    ladder,
    optimal_plan,
    pilot_of,
    read_rows,
    read_survey,
    rung,
)
from scipy.integrate import quad
from scipy.stats import gamma, nbinom, poisson

from tests.command_line import changeling, changeling_sim, invoked

DAY = 86_400
CALENDAR = Calendar(1_767_225_600, DAY, 12)
CONSTRAINTS = [AtMost(1), AtMost(3), TimeBounded(4 * DAY), AtMostWithin(2, 5 * DAY)]


def pilot_changelog(entries=300, changes=3.0):
    return synthetic_changelog(3, entries, changes, CALENDAR, np.random.default_rng(1))


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=repr)
def test_a_pilot_is_frozen_as_devices_freeze(constraint):
    """Entry by entry: the last admitted answer stands; stopped are those of whom a change was turned down."""
    changelog, ends = pilot_changelog(), [CALENDAR.time(i) for i in range(1, 13)]
    true, held, stopped = np.zeros((12, 3)), np.zeros((12, 3)), np.zeros(12)
    for entry in range(300):
        times, states = (column[changelog.entry == entry].tolist() for column in (changelog.time, changelog.state))
        for period, end in enumerate(ends):
            seen, taken, refused = 0, 0, False
            for number, (time, state) in enumerate(zip(times, states, strict=True)):
                if time > end * 10**6:
                    break
                seen, refused = state, refused or not constraint.admits(number, (time - times[0]) / 10**6)
                taken = taken if refused else state
            true[period, seen - 1] += 1 / 300
            held[period, taken - 1] += 1 / 300
            stopped[period] += refused / 300
    predicted = pilot_of(changelog, CALENDAR).freezing(constraint)
    assert predicted.stopped == pytest.approx(stopped)
    assert predicted.bias == pytest.approx(np.sqrt(((held - true) ** 2).mean(1)))
    assert predicted.objective("worst") == predicted.bias.max()
    assert not predicted.bounded


@pytest.mark.parametrize("spread", [None, 3.0])
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=repr)
def test_steady_changes_stop_as_often_as_their_law_says(constraint, spread):
    """Integrated over the rates: an entry is still going if it made k at most, and none after the time it is left."""
    mean, length = 2.5, 11.0
    k = constraint.k - 1 if hasattr(constraint, "k") else None
    within = min(constraint.seconds / DAY, length) if hasattr(constraint, "seconds") else length
    for period in (1, 2, 6, 12):
        early, late = min(period - 1, within), max(period - 1 - within, 0)

        def going(rate, early=early, late=late):
            counted = 1.0 if k is None else poisson.cdf(k, rate * early)
            return counted * np.exp(-rate * late)

        if spread is None:
            expected = going(mean / length)
        else:
            shape = mean**2 / (spread**2 - mean)
            law = gamma(shape, scale=mean / length / shape)
            expected = quad(lambda rate, law=law: going(rate) * law.pdf(rate), 0, np.inf)[0]
        predicted = SteadyChanges(3, CALENDAR, mean, spread).freezing(constraint)
        assert 1 - predicted.stopped[period - 1] == pytest.approx(expected, abs=1e-5)
        assert predicted.bounded


def test_changes_that_are_not_taken_up_are_not_expected():
    """The mean of the smaller of k - 1 and the changes of an entry; a time bound leaves its part of them."""
    habits = SteadyChanges(3, CALENDAR, 2.5, 3.0)
    shape = 2.5**2 / (9 - 2.5)
    counts = np.arange(200)
    chances = nbinom.pmf(counts, shape, shape / (shape + 2.5))
    for k in (1, 2, 4, 12):
        made = (np.minimum(counts, k - 1) * chances).sum() / 11
        assert habits.expected(AtMost(k)).later == pytest.approx(MICRO * made, abs=2)
    assert habits.expected(TimeBounded(4 * DAY)).later == pytest.approx(MICRO * 2.5 / 11 * 4 / 11, abs=2)
    assert SteadyChanges(3, CALENDAR, 0).freezing(AtMost(1)).stopped.tolist() == [0.0] * 12


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=repr)
def test_no_population_is_biased_beyond_the_bound_of_those_that_stopped(constraint):
    """Where all go from one answer to one other, the bias reaches it."""
    days = (0, 1, 4, 7, 11)
    rows = [(str(i), CALENDAR.start + 1 + DAY * day, "ab"[at % 2]) for i in range(9) for at, day in enumerate(days)]
    for changelog in (pilot_changelog(), read_rows(rows)):
        frozen = pilot_of(changelog, CALENDAR).freezing(constraint)
        assert (frozen.bias <= frozen.stopped * np.sqrt(2 / len(changelog.answers)) + 1e-12).all()
    assert pilot_of(read_rows(rows), CALENDAR).freezing(AtMost(1)).bias.max() == 1.0


@pytest.mark.heavy
def test_the_ladder_finds_the_least_total_error_of_all():
    """Within a hundredth of the least of every number of changes, and leaves some of them out."""
    wish = Wish(3, CALENDAR, AtMost(1), Decimal(8), 3000, bridge=False)
    habits = pilot_of(pilot_changelog(), CALENDAR)
    rungs = [*ladder(wish, habits)]
    found = {each.wish.constraint.k: each for each in rungs}
    all_of_them = [found.get(k) or rung(replace(wish, constraint=AtMost(k)), habits) for k in range(1, 8)]
    least = min(each.total for each in all_of_them)
    assert min(each.total for each in rungs) <= 1.01 * least
    assert len(rungs) < 9
    best = min(rungs, key=lambda each: each.total)
    assert best.total == pytest.approx(np.hypot(best.noise, best.freezing.objective("mean")))
    assert best.devices_for(best.total) == pytest.approx(3000)
    assert all_of_them[0].devices_for() == np.inf


def test_a_pilot_of_other_dates_is_moved_and_a_shorter_one_tells_rates():
    """The same freezing a year later; of half the time the rate of changes, and how far entries differ."""
    changelog = pilot_changelog()
    later = Calendar(CALENDAR.start + 365 * DAY, DAY, 12)
    moved = pilot_of(changelog, later)
    assert isinstance(moved, Pilot)
    assert moved.freezing(AtMost(2)).stopped[-1] == pytest.approx(
        pilot_of(changelog, CALENDAR).freezing(AtMost(2)).stopped[-1], abs=0.05
    )
    longer = pilot_of(changelog, Calendar(CALENDAR.start, DAY, 34))
    assert isinstance(longer, SteadyChanges)
    assert longer.changes == pytest.approx(9, rel=0.1)  # of 300 entries, within four standard errors
    assert longer.answers == 3
    assert longer.first == 1.0


def test_a_closed_cohort_is_of_those_who_answer_at_first():
    """Who comes later is left out."""
    first, last = CALENDAR.start + 5, CALENDAR.time(11) + 5
    rows = [("a", first, "x"), ("b", first, "x"), ("b", last, "y"), ("c", first, "z"), ("c", last, "")]
    rows += [("d", last, "y")]
    closed, everybody = (pilot_of(read_rows(rows), CALENDAR, closed=closed) for closed in (True, False))
    assert closed.freezing(AtMost(1)).stopped[-1] == 2 / 3
    assert everybody.freezing(AtMost(1)).stopped[-1] == 2 / 4
    assert (closed.shares[0].sum(), everybody.shares[0].sum()) == (1, 3 / 4)


def test_a_plan_is_hopeless_where_answers_of_the_pilot_are_rarer_than_its_error():
    """Two points are enough for answers that half of the entries hold, and not for one that one in a hundred does."""
    made = optimal_plan(Wish(3, replace(CALENDAR, periods=1), AtMost(1), Decimal(8), 3000)).option
    option = replace(made, prediction=Prediction(3000, np.full(1, 0.02**2), np.zeros(1)))
    rows = [(str(i), CALENDAR.start + 5, "b" if i == 0 else "c" if i == 1 else "a") for i in range(100)]
    rare = pilot_of(read_rows(rows), replace(CALENDAR, periods=1))
    assert rare.typical_share == pytest.approx(0.01)
    assert option.hopeless == option.hopeless_beside(0.5) == ""
    assert "more than a typical answer's 1" in option.hopeless_beside(rare.typical_share)


WISH = ("--answers", "3", "--period", "1d", "--horizon", "4d", "--epsilon", "4", "--devices", "3000")


@pytest.mark.heavy
def test_both_commands_choose_the_changes_to_allow(tmp_path):
    """From a pilot or from expected changes; where the designer says --at-most, they say what freezing that leaves."""
    changelog = synthetic_changelog(3, 300, 1.5, replace(CALENDAR, periods=4), np.random.default_rng(1))
    file, out = tmp_path / "pilot.csv", tmp_path / "survey.json"
    rows = zip(changelog.entry.tolist(), changelog.time.tolist(), changelog.state.tolist(), strict=True)
    file.write_text("entry,time,answer\n" + "".join(f"{e},{t / 1e6},answer {s}\n" for e, t, s in rows))
    new = ("survey", "new", "--question", "Tea?", *WISH, "-o", str(out))
    told = invoked(changeling, *new, "--from", str(file))
    assert told.exit_code == 0, told.output
    chosen = read_survey(out).constraint.k
    assert re.search(rf"│ +{chosen} │", told.output)
    assert "stands still" in told.output
    out.unlink()
    tight = invoked(changeling, *new, "--at-most", "2", "--expected-changes", "3", "--changes-spread", "2")
    assert "points at most" in tight.output
    assert "allow more changes" in re.sub(r"\s+", " ", tight.output)
    planned = invoked(changeling_sim, "plan", *WISH, "--from", str(file), "--choose", "panel")
    assert re.search(rf"│ +{chosen} │", planned.output)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ((), "say how an entry's answer may change"),
        (("--at-most", "2", "--changes-spread", "1"), "--changes-spread is that of --expected-changes"),
        (("--from", "pilot.csv", "--expected-changes", "1"), "leave out --expected-changes"),
        (("--from", "pilot.csv"), "holds 4 answers, the survey only 3"),
        (("--expected-changes", "1", "--changes-spread", "-1"), "a standard deviation"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, monkeypatch, options, fault):
    """In one line, before anything is planned."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pilot.csv").write_text("entry,time,answer\n" + "".join(f"{i},5,{i}\n" for i in range(4)))
    done = invoked(changeling, "survey", "new", "--question", "Tea?", *WISH, "-o", "survey.json", *options)
    assert done.exit_code == 1
    assert fault in re.sub(r"\s+", " ", done.stderr)
