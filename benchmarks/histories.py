"""Measures of histories: what they cost, how near the best they come, how accurate plans are with them, what they save.

A function a measure; the names of its figures begin with the measure's number.
"""

from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Calendar,
    Constraint,
    Group,
    History,
    Hybrid,
    Odds,
    ReleasePlan,
    TimeBounded,
    lives_cost,
    plan_cost,
)
from changeling_simulations import Population, closed_cohort, sample_tallies
from changeling_statistics import (
    Smoothing,
    Solution,
    Wish,
    histogram_figures,
    optimal_plan,
    releases,
    steady_changes,
)
from changeling_statistics.testing import lived_histories, worst_of_one_life, worst_of_two_lives

from .plans import ENTRIES, cohort_wish

CONSTRAINTS: tuple[Constraint, ...] = (
    AtMost(1),
    AtMost(2),
    AtMost(3),
    TimeBounded(5),
    TimeBounded(11),
    TimeBounded(20),
    AtMostWithin(2, 15),
    AtMostWithin(3, 20),
    Hybrid((AtMost(2), TimeBounded(15))),
    Hybrid((AtMost(3), TimeBounded(10))),
    Hybrid((AtMost(1), AtMost(2))),
)
SHAPES = ((1, 4, 1, 1), (2, 3, 1, 1), (2, 4, 2, 2), (2, 5, 2, 1), (2, 4, 1, 2), (3, 3, 1, 1))
"""z, T, every which period an entry reports, and the first of them."""
MOST_LIVED = 20
"""With more changelogs than that, two lives are not enumerated."""
ODDS = (Odds(7, 2), Odds(40, 1))


def losses() -> dict[str, float]:
    """Measure 1: the largest enumerated loss over the stated one, of one life and of two; never above 1."""
    once, twice, cases, lived = 0.0, 0.0, 0, 0
    for (z, T, every, first), constraint, closed, odds in product(SHAPES, CONSTRAINTS, (False, True), ODDS):
        if z + (not closed) < 2:
            continue
        calendar = Calendar(0, 10, T)
        group = Group.of_history(History.of(odds, range(first, T + 1, every), constraint, calendar, closed), z)
        plan, changelogs = ReleasePlan((group,)), lived_histories(z, calendar, constraint, closed)
        stated = plan_cost(plan, calendar, constraint, closed)
        once = max(once, loss_over(worst_of_one_life(group, changelogs), stated))
        cases += 1
        if len(changelogs) <= MOST_LIVED and odds is ODDS[0]:
            stated = lives_cost(plan, calendar, constraint, closed, lives=2)
            twice = max(twice, loss_over(worst_of_two_lives(group, changelogs), stated))
            lived += 1
    return {
        "1_loss_over_stated": once,
        "1_loss_of_two_lives_over_stated": twice,
        "1_cases": float(cases),
        "1_cases_of_two_lives": float(lived),
    }


def loss_over(worst: Fraction, stated: Decimal) -> float:
    """The logarithm of a ratio over a loss that is stated, rounded only at the end."""
    with localcontext(prec=60):
        return float((Decimal(worst.numerator).ln() - Decimal(worst.denominator).ln()) / stated)


MONTH = 2_629_746
"""Seconds."""


def devices() -> dict[str, float]:
    """Measure 4: a yes or no, monthly for a year, closed, k = 3, as each month closes: devices for one point."""
    calendar = Calendar(1_800_000_000, MONTH, 12)
    figures = {}
    for epsilon in (1, 2, 4, 8):
        wish = Wish(
            answers=2,
            calendar=calendar,
            constraint=AtMost(3),
            epsilon=Decimal(epsilon),
            devices=ENTRIES,
            closed=True,
            expected=steady_changes(calendar, AtMost(3)),
        )
        figures[f"4_devices_for_a_point_eps{epsilon}"] = optimal_plan(wish).option.prediction.devices_for()
    return figures


SMOOTHED_SEEDS, WAVE = 24, (40, 5)
"""Surveys of each plan; when the wave comes, and how long it takes: mean and standard deviation in periods."""


def smoother() -> dict[str, float]:
    """Measure 9: root mean squared error of smoothed histograms over the plain retrospective ones'; coverage of theirs.

    Of the cohort of measure 3 with four answers over 64 periods, whose entries change one by one, and of one in which
    half of the entries go over to the first answer in one wave, after which nobody moves any more.
    """
    figures: dict[str, float] = {}
    for epsilon in (2, 8, 32):
        wish = cohort_wish(epsilon, retrospective=True)
        survey = optimal_plan(wish).option.survey
        for name, made in (("steady", _steady), ("wave", _wave)):
            off = np.zeros((2, SMOOTHED_SEEDS))
            held = np.zeros((2, SMOOTHED_SEEDS))
            for seed in range(SMOOTHED_SEEDS):
                generator = np.random.default_rng([9, seed])
                population = made(generator)
                known, truth = releases(survey, sample_tallies(population, survey, generator)), population.histogram()
                for at, solution in enumerate((Solution(known, retrospective=True), Smoothing(known))):
                    shown, _ = histogram_figures(solution, survey.calendar.periods)
                    ends = shown.intervals(0.95)
                    off[at, seed] = ((shown.values - truth[1:]) ** 2).mean()
                    held[at, seed] = ((ends[..., 0] <= truth[1:]) & (truth[1:] <= ends[..., 1])).mean()
            plain, smoothed = np.sqrt(off.mean(1))
            figures |= {
                f"9_{name}_plain_error_eps{epsilon}": float(plain / ENTRIES),
                f"9_{name}_smoothed_over_plain_error_eps{epsilon}": float(smoothed / plain),
                f"9_{name}_plain_coverage_eps{epsilon}": float(held[0].mean()),
                f"9_{name}_smoothed_coverage_eps{epsilon}": float(held[1].mean()),
            }
    return figures


def _steady(generator: np.random.Generator) -> Population:
    return closed_cohort(ENTRIES, 4, 64, 3, generator)


def _wave(generator: np.random.Generator) -> Population:
    population = closed_cohort(ENTRIES, 4, 64, 0, generator)
    states = population.true
    when = np.clip(np.rint(generator.normal(*WAVE, ENTRIES)), 2, 64)
    when[generator.random(ENTRIES) < 0.5] = 65
    states = np.where((np.arange(65) >= when[:, None]) & (states > 0), 1, states).astype(np.uint16)
    return replace(population, true=states, frozen=states)
