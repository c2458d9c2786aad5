"""Measure 3 of the release plans: the predicted error against the simulated one, for every plan in the planner's table.

Once on cohorts that are as the designer expects, as a closed survey and as an open one; and once on school_to_work.csv
resampled to 200,000, of which the designer knows how often people change and, from the 712 of the file, the rest:
`expected` is the prediction from the rate alone, `known` the one from the changelog itself.
"""

from dataclasses import replace
from decimal import Decimal

import numpy as np
from changeling_protocol import AtMost, Calendar
from changeling_simulations import (
    Population,
    calendar_for,
    changelog_path,
    exact_error,
    fitted_expectation,
    simulated_errors,
)
from changeling_statistics import Wish, compare_plans, read_csv

from .cohort import cohort, cohort_expectation

ENTRIES, ANSWERS, PERIODS, MOST_CHANGES, EPSILON = 2_000, 3, 16, 3, 8
SEEDS, HISTORIES = 1_000, 50
"""Every so many seeds the cohort is drawn afresh."""
RESAMPLED, SCHOOL_SEEDS, MONTH = 200_000, 150, 2_629_800


def measure(seeds: int = SEEDS, school_seeds: int = SCHOOL_SEEDS) -> dict[str, float]:
    return _cohorts(seeds) | _school(school_seeds)


def _cohorts(seeds: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    for closed, retrospective in ((True, False), (True, True), (False, False)):
        when = "retrospective" if retrospective else "online" if closed else "open"
        wish = Wish(
            answers=ANSWERS,
            calendar=Calendar(0, 86_400, PERIODS),
            constraint=AtMost(1 + MOST_CHANGES),
            epsilon=Decimal(EPSILON),
            devices=ENTRIES,
            closed=closed,
            expected=cohort_expectation(PERIODS, MOST_CHANGES),
            retrospective=retrospective,
        )
        comparison = compare_plans(wish)
        for name, option in comparison.options.items():
            if retrospective and name != "optimal":
                continue
            squares: list[float] = []
            for draw in range(0, seeds, HISTORIES):
                history = np.random.default_rng([3, draw])
                population = cohort(ENTRIES, ANSWERS, PERIODS, MOST_CHANGES, history)
                generators = (np.random.default_rng([3, draw, i]) for i in range(HISTORIES))
                errors = simulated_errors(population, option.survey, generators, retrospective=retrospective)
                squares += errors.mean(1).tolist()
            ratio = option.prediction.mean / np.sqrt(np.mean(squares))
            figures[f"3_{name}_{when}_predicted_over_simulated"] = float(ratio)
    return figures


def _school(seeds: int) -> dict[str, float]:
    changelog = read_csv(changelog_path("school-to-work"))
    calendar = calendar_for(changelog, MONTH)
    constraint = AtMost(4)
    source = Population.from_changelog(changelog, calendar, constraint)
    wish = Wish(
        answers=len(changelog.answers),
        calendar=calendar,
        constraint=constraint,
        epsilon=Decimal(EPSILON),
        devices=RESAMPLED,
        closed=True,
        expected=fitted_expectation(source),
    )
    figures: dict[str, float] = {}
    for name, option in compare_plans(wish).options.items():
        survey = replace(option.survey, answers=source.answers)
        errors = []
        for seed in range(seeds):
            generator = np.random.default_rng([4, seed])
            population = source.resampled(RESAMPLED, generator)
            errors.append(simulated_errors(population, survey, iter([generator])).mean())
        simulated = np.sqrt(np.mean(errors))
        known = exact_error(source, survey, devices=RESAMPLED).mean
        figures[f"3_school_{name}_predicted_over_simulated"] = float(known / simulated)
        figures[f"3_school_{name}_expected_over_simulated"] = float(option.prediction.mean / simulated)
    return figures
