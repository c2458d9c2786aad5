"""Measure 2 of the release plans: how accurate the optimal plan is on one made-up population.

The figure is the root mean squared error of the fractions over times, answers and seeds, as its exact expectation
given everybody's history (true weights, true report covariances, sampling of shares). The planner knows the rate of
changes that such a population has, nothing of the one it is tried on. Beside it stands the same simulated, with the
deviation between the two in standard errors.
"""

from collections.abc import Iterator
from decimal import Decimal

import numpy as np
from changeling_protocol import AtMost, Calendar, Survey
from changeling_simulations import Population, exact_error, sample_tallies, simulated_errors
from changeling_statistics import Option, Wish, hierarchical_plan, optimal_plan, smoothed_series
from changeling_statistics.planning.plans import panel, paper_hierarchy

from .cohort import cohort, cohort_expectation

ENTRIES, ANSWERS, PERIODS, MOST_CHANGES = 20_000, 4, 64, 3
EPSILONS = (2, 8, 32)
SEEDS, LAYERS = 20, 7


def measure(seeds: int = SEEDS, epsilons: tuple[int, ...] = EPSILONS) -> dict[str, float]:
    populations = [cohort(ENTRIES, ANSWERS, PERIODS, MOST_CHANGES, np.random.default_rng(s)) for s in range(seeds)]
    figures: dict[str, float] = {}
    for epsilon in epsilons:
        for retrospective in (False, True):
            wish = cohort_wish(epsilon, retrospective=retrospective)
            when = "retrospective" if retrospective else "online"
            planned = optimal_plan(wish).option
            figures |= _both(f"2_optimal_{when}_{epsilon}", planned.survey, populations, retrospective)
            figures[f"2_smoothed_{when}_{epsilon}"] = smoothed_error(planned.survey, populations, retrospective)
            if not retrospective:
                for name, option in _references(wish):
                    figures |= _both(f"2_{name}_{when}_{epsilon}", option.survey, populations, retrospective)
    return figures


def cohort_wish(epsilon: int, *, retrospective: bool = False) -> Wish:
    """What a designer of this population's survey wishes for."""
    return Wish(
        answers=ANSWERS,
        calendar=Calendar(1_800_000_000, 86_400, PERIODS),
        constraint=AtMost(1 + MOST_CHANGES),
        epsilon=Decimal(epsilon),
        devices=ENTRIES,
        closed=True,
        expected=cohort_expectation(PERIODS, MOST_CHANGES),
        retrospective=retrospective,
    )


def _references(wish: Wish) -> Iterator[tuple[str, Option]]:
    """The paper's plans at its own charge, the best hierarchy of its kind at ours, and the best panel."""
    for name, layers in (("paper", LAYERS), ("fresh_krr", 1)):
        plan = hierarchical_plan(
            ANSWERS, wish.calendar, wish.constraint, epsilon=wish.epsilon, branching=2, layers=layers
        )
        yield name, Option.of(wish, name, plan)
    for name, option in (("paper_best", paper_hierarchy(wish)), ("panel", panel(wish))):
        if option is not None:
            yield name, option


def _both(name: str, survey: Survey, populations: list[Population], retrospective: bool) -> dict[str, float]:
    """The exact figure, the simulated one, and by how many of its standard errors the latter is off."""
    exact = np.array([exact_error(each, survey, retrospective=retrospective).mean ** 2 for each in populations])
    simulated = np.array(
        [
            simulated_errors(each, survey, iter([np.random.default_rng([7, seed])]), retrospective=retrospective).mean()
            for seed, each in enumerate(populations)
        ]
    )
    off = simulated - exact
    deviation = off.mean() / (off.std(ddof=1) / np.sqrt(len(off))) if len(off) > 1 else 0.0
    return {
        name: float(np.sqrt(exact.mean())),
        f"{name}_simulated": float(np.sqrt(simulated.mean())),
        f"{name}_deviation": float(deviation),
    }


def smoothed_error(survey: Survey, populations: list[Population], retrospective: bool) -> float:
    """Of the drift smoother with its own τ², simulated: it is biased, and τ² depends on the reports.

    Its values are wanted, not their covariances, and so the sampling error is not worked out.
    """
    found = []
    for seed, population in enumerate(populations):
        tallies = sample_tallies(population, survey, np.random.default_rng([7, seed]))
        smoothed = smoothed_series(survey, tallies, PERIODS, retrospective=retrospective)
        values = np.array([each.estimate.values for each in smoothed.histograms])
        found.append((((values - population.histogram()[1:]) / population.entries) ** 2).mean())
    return float(np.sqrt(np.mean(found)))
