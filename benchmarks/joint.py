"""Measures 2, 3, 5 and 6 of joint responses: how accurate the best plans are, what certifies them, what they save.

The population and its seeds are those of measure 2 of the release plans. Errors are exact in expectation given
everybody's history, with the same simulated beside them.
"""

from time import process_time

import numpy as np
from changeling_protocol import Group, ReleasePlan
from changeling_simulations import closed_cohort, exact_error
from changeling_statistics import Floats, Planned, Wish, optimal_plan, predict

from .plans import (
    ANSWERS,
    ENTRIES,
    MOST_CHANGES,
    cohort_wish,
    exact_and_simulated,
    populations,
    smoothed_error,
    year_wish,
)

EPSILONS, CERTIFIED, SEEDS, SMOOTHED_SEEDS = (2, 8, 16, 32), 8, 16, 4
LONG = 1024
BEFORE = 306_000
"""Devices for one point in an open cohort over a year of days, with a budget for each report."""
STARTS, SEARCH_SEED = 200, 11


def measure() -> dict[str, float]:
    """Errors, gaps and certificates by wish; a long calendar; a year of days."""
    tried, figures = populations(SEEDS), dict[str, float]()
    for epsilon in EPSILONS:
        for retrospective in (False, True):
            wish = cohort_wish(epsilon, retrospective=retrospective)
            planned, name = optimal_plan(wish), f"{'retrospective' if retrospective else 'online'}_{epsilon}"
            survey = planned.option.survey
            errors = exact_and_simulated(f"2_{name}", survey, tried, retrospective)
            del errors[f"2_{name}_deviation"]
            figures |= errors
            if retrospective:
                figures[f"2_smoothed_{name}"] = smoothed_error(survey, tried[:SMOOTHED_SEEDS])
            figures[f"3_predicted_over_simulated_{name}"] = planned.option.error(wish) / errors[f"2_{name}_simulated"]
            figures[f"5_{name}_gap"] = planned.gap
            if epsilon == CERTIFIED:
                bound = planned.option.error(wish) ** 2 * (1 - planned.gap)
                figures[f"5_{name}_least_found_over_bound"] = least_found(planned, wish) / bound
    return figures | _long() | _year()


def _long() -> dict[str, float]:
    """T = 1,024, retrospective, ε = 8."""
    population = closed_cohort(ENTRIES, ANSWERS, LONG, MOST_CHANGES, np.random.default_rng(1))
    began = process_time()
    planned = optimal_plan(cohort_wish(8, retrospective=True, periods=LONG))
    return {
        "2_retrospective_8_long": exact_error(population, planned.option.survey, retrospective=True).mean,
        "2_retrospective_8_long_planner_seconds": process_time() - began,
    }


def _year() -> dict[str, float]:
    """An open cohort over a year of days: devices for one point, how long the planner takes, and its gap."""
    began = process_time()
    planned = optimal_plan(year_wish())
    return {
        "5_year_gap": planned.gap,
        "5_year_processor_seconds": process_time() - began,
        "6_devices_for_a_point": planned.option.prediction.devices_for(),
        "6_devices_for_a_point_before": float(BEFORE),
    }


def least_found(planned: Planned, wish: Wish) -> float:
    """The least mean variance of all plans that were tried, as predicted; the plan itself is not among them.

    From each start, shares of the plan's own groups drawn at random, near them or far, and one more near each.
    """
    generator = np.random.default_rng(SEARCH_SEED)
    own = np.array([group.share for group in planned.plan.groups], np.float64)
    own /= own.sum()
    least = np.inf
    for start in range(STARTS):
        near = generator.random() if start % 2 else 1.0 - 0.1 * generator.random()
        shares = near * own + (1 - near) * generator.dirichlet(np.full(len(own), 0.5))
        found = _error(planned, wish, shares)
        near_it = np.maximum(shares * np.exp(0.1 * generator.normal(size=len(own))), 1e-4)
        least = min(least, found, _error(planned, wish, near_it))
    return float(least)


def _error(planned: Planned, wish: Wish, shares: Floats) -> float:
    integers = np.maximum(1, np.round(10_000 * shares / shares.sum()).astype(int)).tolist()
    groups = zip(planned.plan.groups, integers, strict=True)
    plan = ReleasePlan(tuple(Group(group.tracks, share, group.joint) for group, share in groups))
    return predict(wish.survey(plan), wish.devices, retrospective=wish.retrospective).mean ** 2
