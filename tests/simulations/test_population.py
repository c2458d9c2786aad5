"""Populations: histories at period ends, frozen as a device freezes them, resampled and counted."""

from collections import Counter, defaultdict
from time import perf_counter

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Hybrid,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    StateSpace,
    TimeBounded,
    Track,
)
from changeling_simulations import Population, World, synthetic_changelog
from changeling_statistics import read_rows

CALENDAR = Calendar(start=100, period=10, periods=8)


def restless_rows(seed):
    """400 entries with 1 to 9 mutations each, before, inside and after the calendar, some at its ends."""
    random = np.random.default_rng(seed)
    rows = []
    for entry in range(400):
        now = ""
        for time in sorted(random.choice(np.arange(60, 220) / 1.0, random.integers(1, 10), replace=False)):
            now = str(random.choice([a for a in ("", "a", "b") if a != now]))
            rows.append((str(entry), float(time), now))
    return rows


def history(rows, constraint):
    """One entry's true and frozen answers at period ends, mutation by mutation."""
    held = [(float(CALENDAR.start), answer) for time, answer in rows if time <= CALENDAR.start][-1:]
    rows = [row for row in held if row[1]] + [row for row in rows if row[0] > CALENDAR.start]
    let_through = []
    for time, answer in rows:
        if not constraint.admits(len(let_through), time - (let_through or rows)[0][0]):
            break
        let_through.append((time, answer))
    ends = [CALENDAR.time(i) for i in range(1, CALENDAR.periods + 1)]
    return tuple(
        ("", *(next((answer for time, answer in reversed(mutations) if time <= end), "") for end in ends))
        for mutations in (rows, let_through)
    )


@pytest.mark.parametrize(
    "constraint",
    [AtMost(1), AtMost(3), TimeBounded(25), TimeBounded(1), Hybrid((AtMost(2), TimeBounded(40))), AtMost(100)],
    ids=str,
)
@pytest.mark.parametrize("seed", [1, 2])
def test_freezing_equals_a_device_that_takes_one_mutation_after_the_other(constraint, seed):
    """Entry by entry, as a multiset of true and frozen histories."""
    rows = restless_rows(seed)
    population = Population.from_changelog(read_rows(rows), CALENDAR, constraint)
    by_entry = defaultdict(list)
    for entry, *mutation in rows:
        by_entry[entry].append(mutation)
    expected = Counter(history(own, constraint) for own in by_entry.values())
    names = ("", *population.answers)
    found = {
        (tuple(names[s] for s in true), tuple(names[s] for s in frozen)): weight
        for true, frozen, weight in zip(population.true, population.frozen, population.weights.tolist(), strict=True)
    }
    assert found == expected


def test_histograms_and_mutation_counts_are_counts_of_entries():
    """Three entries, two with the same history, written out by hand."""
    rows = [("1", 105, "a"), ("1", 125, "b"), ("1", 126, "a"), ("2", 110, "a"), ("3", 111, "b"), ("3", 175, "")]
    changelog = read_rows(sorted(rows, key=lambda row: row[1]))
    population = Population.from_changelog(changelog, CALENDAR, AtMost(2))
    assert population.entries == 3
    assert population.histogram().tolist() == [[0, 0], [2, 0], *[[2, 1]] * 6, [2, 0]]
    assert population.frozen_histogram().tolist() == [[0, 0], [2, 0], [2, 1], *[[1, 2]] * 5, [1, 1]]
    space = MutationSpace(2)
    track = Track(4, KaryResponse(space, Odds(3, 1)), 0, 8)
    counts = population.mutation_counts(track, Node(4, 8))
    assert {space.pair(i): n for i, n in enumerate(counts.tolist()) if n} == {(0, 0): 2, (2, 0): 1}
    states = Track(4, KaryResponse(StateSpace(2), Odds(3, 1)), 0, 8)
    assert population.mutation_counts(states, Node(4, 8)).tolist() == [1, 1, 1]


@pytest.mark.timed
def test_a_billion_entries_are_resampled_at_once_in_proportion():
    """Every weight within six standard deviations (false alarm about 1e-6), in a second's work."""
    changelog = read_rows(restless_rows(3))
    population = Population.from_changelog(changelog, CALENDAR, AtMost(4))
    began = perf_counter()
    many = population.resampled(10**9, np.random.default_rng(0))
    assert perf_counter() - began < 5
    assert many.entries == 10**9
    share = population.histogram() / population.entries
    deviations = np.abs(many.histogram() - 10**9 * share)
    assert np.all(deviations <= 6 * np.sqrt(10**9 * share * (1 - share)))


def test_a_population_of_nobody_is_refused():
    """Fractions of it would mean nothing."""
    population = Population.from_changelog(read_rows([("1", 105, "a")]), CALENDAR, AtMost(1))
    with pytest.raises(ValueError, match="must have an entry, got 0"):
        population.resampled(0, np.random.default_rng(0))


@pytest.mark.parametrize("gradual", [False, True])
def test_a_synthetic_changelog_is_a_changelog_with_the_changes_asked_for(gradual):
    """It passes the checks of a file; changes an entry within five standard errors (false alarm 6e-7)."""
    n = 5_000
    made = synthetic_changelog(3, n, 2.5, CALENDAR, np.random.default_rng(5), gradual=gradual)
    names = ("", *made.answers)
    rows = [
        (made.entries[entry], time / 1e6, names[state])
        for entry, time, state in zip(made.entry.tolist(), made.time.tolist(), made.state.tolist(), strict=True)
    ]
    assert len(read_rows(rows)) == len(made)
    assert made.time.min() > CALENDAR.start * 10**6
    assert made.time.max() <= CALENDAR.time(8) * 10**6
    per_entry = np.bincount(made.entry, minlength=n) - 1
    assert per_entry.min() >= 0
    assert abs(per_entry.mean() - 2.5) < 5 * per_entry.std() / np.sqrt(n)
    inserted = (made.states_at([CALENDAR.time(1)]) > 0).mean()
    if gradual:
        assert abs(inserted - 1 / 8) < 5 * np.sqrt(1 / 8 * 7 / 8 / n)
        return
    assert inserted == 1
    first, expected = made.state[np.flatnonzero(np.diff(made.entry, prepend=-1))], World.DRIFT.popularity(3, 1 / 8) * n
    assert ((np.bincount(first, minlength=4)[1:] - expected) ** 2 / expected).sum() < 32  # chi-squared, 1e-7


@pytest.mark.parametrize("world", World)
def test_a_world_has_its_own_times_and_its_own_restless(world):
    """As many changes as asked for (five standard errors, 6e-7); half of a shift's in one period; a restless tenth."""
    n, periods = 5_000, 24
    calendar = Calendar(0, 10, periods)
    made = synthetic_changelog(3, n, 0.9, calendar, np.random.default_rng(6), world=world)
    changes = np.bincount(made.entry, minlength=n) - 1
    assert abs(changes.mean() - 0.9) < 5 * changes.std() / np.sqrt(n)
    in_period = np.bincount(-(-made.time // 10**7), minlength=periods + 1)[2:] / changes.sum()
    largest, often = in_period.max(), np.sort(changes)[-n // 10 :].sum() / changes.sum()
    assert (0.4 < largest < 0.6) if world is World.SHIFT else largest < 0.1
    assert (often > 0.5) if world is World.HEAVY else often < 0.4
    before, after = (made.states_at([calendar.time(t) for t in (12, 13)]) == 1).mean(0)
    assert (before - after > 0.1) == (world is World.SHIFT)


@pytest.mark.parametrize(("answers", "changes"), [(3, 7.1), (1, 0.5), (3, -1), (3, float("nan")), (0, 1)])
def test_synthetic_wishes_that_cannot_be_met_are_refused(answers, changes):
    """More changes than periods, changes among one answer, no answer."""
    with pytest.raises(ValueError, match="got"):
        synthetic_changelog(answers, 10, changes, CALENDAR, np.random.default_rng(0))
