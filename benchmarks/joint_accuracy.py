"""Measures 2, 3, 5 and 6 of joint responses: how accurate the best plans are, what certifies them, what they save.

The population and its seeds are those of `benchmarks.accuracy`. Errors are exact in expectation given everybody's
history, with the same simulated beside them.
"""

from decimal import Decimal
from time import process_time

import numpy as np
from changeling_protocol import MICRO, AtMost, Calendar, ExpectedChanges
from changeling_simulations import exact_error, simulated_errors
from changeling_statistics import Planned, Wish, optimal_plan

from .accuracy import ANSWERS, ENTRIES, MOST_CHANGES, PERIODS, cohort_wish, smoothed_error
from .cohort import cohort, cohort_expectation
from .joint_certificate import least_found

EPSILONS, CERTIFIED, SEEDS, SMOOTHED_SEEDS = (2, 8, 16, 32), 8, 16, 4
LONG = 1024
YEAR, YEAR_ANSWERS, YEAR_MOST, YEAR_EPSILON, YEAR_CHANGES = 365, 6, 3, 4, 2
BEFORE = 306_000
"""Devices for one point in an open cohort of that kind, with a budget for each report."""


def measure() -> dict[str, float]:
    populations = [cohort(ENTRIES, ANSWERS, PERIODS, MOST_CHANGES, np.random.default_rng(s)) for s in range(SEEDS)]
    figures: dict[str, float] = {}
    for epsilon in EPSILONS:
        for retrospective in (False, True):
            wish = cohort_wish(epsilon, retrospective=retrospective)
            planned, name = optimal_plan(wish), f"{'retrospective' if retrospective else 'online'}_{epsilon}"
            survey = planned.option.survey
            exact = np.array([exact_error(each, survey, retrospective=retrospective).mean ** 2 for each in populations])
            simulated = np.array(
                [
                    simulated_errors(each, survey, iter([np.random.default_rng([7, s])]), retrospective=retrospective)
                    for s, each in enumerate(populations)
                ]
            )
            figures[f"2_{name}"] = float(np.sqrt(exact.mean()))
            figures[f"2_{name}_simulated"] = float(np.sqrt(simulated.mean()))
            figures[f"2_smoothed_{name}"] = smoothed_error(survey, populations[:SMOOTHED_SEEDS], retrospective)
            figures[f"3_predicted_over_simulated_{name}"] = planned.option.error(wish) / float(
                np.sqrt(simulated.mean())
            )
            figures[f"5_{name}_gap"] = planned.gap
            if epsilon == CERTIFIED:
                figures |= _certified(f"5_{name}", planned, wish)
    figures |= _long()
    figures |= _year()
    return figures


def _certified(name: str, planned: Planned, wish: Wish) -> dict[str, float]:
    """The least error that a search from random starts finds, over the bound: never below 1."""
    bound = planned.option.error(wish) ** 2 * (1 - planned.gap)
    return {f"{name}_least_found_over_bound": least_found(planned, wish) / bound}


def _long() -> dict[str, float]:
    """T = 1,024, retrospective, ε = 8."""
    population = cohort(ENTRIES, ANSWERS, LONG, MOST_CHANGES, np.random.default_rng(1))
    wish = Wish(
        answers=ANSWERS,
        calendar=Calendar(1_800_000_000, 86_400, LONG),
        constraint=AtMost(1 + MOST_CHANGES),
        epsilon=Decimal(8),
        devices=ENTRIES,
        closed=True,
        expected=cohort_expectation(LONG, MOST_CHANGES),
        retrospective=True,
    )
    began = process_time()
    planned = optimal_plan(wish)
    return {
        "2_retrospective_8_long": exact_error(population, planned.option.survey, retrospective=True).mean,
        "2_retrospective_8_long_planner_seconds": process_time() - began,
    }


def _year() -> dict[str, float]:
    """An open cohort over a year of days: devices for one point, how long the planner takes, and its gap."""
    wish = Wish(
        answers=YEAR_ANSWERS,
        calendar=Calendar(1_800_000_000, 86_400, YEAR),
        constraint=AtMost(YEAR_MOST),
        epsilon=Decimal(YEAR_EPSILON),
        devices=10**6,
        expected=ExpectedChanges(MICRO, round(MICRO * YEAR_CHANGES / YEAR)),
    )
    began = process_time()
    planned = optimal_plan(wish)
    seconds = process_time() - began
    return {
        "5_year_gap": planned.gap,
        "5_year_processor_seconds": seconds,
        "6_devices_for_a_point": planned.option.prediction.devices_for(),
        "6_devices_for_a_point_before": float(BEFORE),
    }
