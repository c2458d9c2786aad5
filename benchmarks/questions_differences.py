"""Measure 5 of several questions: how often intervals of differences hold the truth, and how often noise seems one.

Two arms of a survey, drawn from one population or from two that differ by two points of an answer; one arm rare and
small; changes of one arm, and how much more one arm changed than the other. Entries of two arms are drawn anew for each
survey, as an experiment draws who is in which arm.
"""

from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import numpy as np
from changeling_protocol import AtMost, Calendar, Survey
from changeling_simulations import Population, sample_tallies
from changeling_statistics import Floats, Solution, Wish, optimal_plan, releases, share_difference, steady_changes

SURVEYS, SEED, CHANGES, PEOPLE = 400, 25, 0.25, 50_000
EVEN, MORE = (0.3, 0.5, 0.2), (0.32, 0.48, 0.2)


@dataclass(frozen=True, slots=True)
class Case:
    """Two arms, or one between two times if the second has no entries.

    periods: of the survey. since: the period since which changes are compared; 0 for shares.
    shares, sizes: of each arm, the shares of its answers, and how many entries it has.
    """

    periods: int
    since: int
    shares: tuple[tuple[float, ...], tuple[float, ...]]
    sizes: tuple[int, int]
    epsilon: int = 4


CASES = {
    "none": Case(1, 0, (EVEN, EVEN), (3000, 3000)),
    "two_points": Case(1, 0, (MORE, EVEN), (3000, 3000)),
    "rare_uneven": Case(1, 0, ((0.005, 0.495, 0.5),) * 2, (500, 4500)),
    "over_time": Case(8, 0, (EVEN, EVEN), (3000, 3000)),
    "in_differences": Case(8, 3, (EVEN, EVEN), (3000, 3000)),
    "between_times": Case(8, 3, (EVEN, EVEN), (3000, 0)),
}


def planned(case: Case) -> Survey:
    """The planner's survey of a case."""
    calendar, constraint = Calendar(0, "1w", case.periods), AtMost(2)
    wish = partial(Wish, 3, calendar, constraint, Decimal(case.epsilon), sum(case.sizes), closed=True)
    return optimal_plan(
        wish(expected=steady_changes(calendar, constraint, CHANGES)) if case.periods > 1 else wish()
    ).option.survey


def population(survey: Survey, shares: tuple[float, ...], generator: np.random.Generator) -> Population:
    """Entries with these shares of answers, CHANGES of whom change once to another."""
    T, z = survey.calendar.periods, len(shares)
    states = np.zeros((PEOPLE, T + 1), np.uint16)
    states[:, 1:] = generator.choice(z, (PEOPLE, 1), p=shares) + 1
    if T > 1:
        chance = CHANGES / (1 - sum(share**2 for share in shares))
        at = np.where(generator.random(PEOPLE) < chance, generator.integers(2, T + 1, PEOPLE), T + 1)
        after = generator.choice(z, (PEOPLE, 1), p=shares) + 1
        states = np.where(np.arange(T + 1) >= at[:, None], after, states).astype(np.uint16)
    rows, counts = np.unique(states, axis=0, return_counts=True)
    return Population(survey.answers, rows, rows, counts.astype(np.int64))


def tried(case: Case) -> tuple[float, float]:
    """How often a 95% interval holds the true difference, and how often any answer's p, together, is below 5%."""
    generator, survey = np.random.default_rng(SEED), planned(case)
    arms = [population(survey, shares, generator) for shares in case.shares]
    held, found = np.zeros(len(survey.answers)), 0
    for _ in range(SURVEYS):
        drawn = [arm.resampled(size, generator) for arm, size in zip(arms, case.sizes, strict=True) if size]
        solutions = [Solution(releases(survey, sample_tallies(each, survey, generator))) for each in drawn]
        # one arm by itself is about its very entries, two are about those whom they are drawn from
        truths = [_true(each, case) for each in (arms if len(drawn) == 2 else drawn)]
        truth = truths[0] - truths[1] if len(truths) == 2 else truths[0]
        other = solutions[1] if len(solutions) == 2 else None
        difference = share_difference(solutions[0], other, case.periods, since=case.since)
        ends = difference.intervals()[0]
        held += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        found += bool(difference.p_together[0] < 0.05)
    return float(held.mean() / SURVEYS), found / SURVEYS


def _true(people: Population, case: Case) -> Floats:
    histogram = people.histogram()
    change: Floats = (histogram[case.periods] - histogram[case.since]) / people.entries
    return change


def measure() -> dict[str, float]:
    """Coverages by case, and false alarms where nothing differs, or how often two points are found."""
    figures = {}
    for name, case in CASES.items():
        coverage, found = tried(case)
        figures[f"5_coverage_{name}"] = coverage
        if name == "two_points":
            figures["5_found_two_points"] = found
        elif name != "between_times":
            figures[f"5_false_alarms_{name}"] = found
    return figures
