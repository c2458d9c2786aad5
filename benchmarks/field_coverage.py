"""Measure 2 of the field: bias of estimates and coverage of 95% intervals, whatever goes wrong.

Two thousand surveys of each scenario, entry by entry; estimates as the aggregator publishes them, each as its period
closes. What they are compared with is the share of each answer among all who have enrolled by then, heard or not.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from changeling_simulations import sample_field
from changeling_statistics import Floats, NotEstimable, Solution, releases
from scipy.stats import binomtest, norm
from threadpoolctl import threadpool_limits

from .field_scenarios import Scenario, scenarios

SURVEYS, BATCHES, SEED = 2_000, 4, 2
LEVEL, FAMILY_WISE, MOST_BIAS = 0.95, 1e-3, 0.1
"""A bias may be a tenth of the standard error."""
OFTEN = SURVEYS // 2
"""A bias is told from none if it was estimated so often."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One scenario's surveys, for each time and answer.

    errors: of the published shares, shape (surveys, times, z); nan where nothing is estimated.
    standard_errors: the published ones, likewise.
    bounded: how many of the published covariances say that they are upper bounds, shape (times,).
    """

    scenario: str
    errors: Floats
    standard_errors: Floats
    bounded: Floats

    @property
    def estimated(self) -> Floats:
        """How often there was an estimate, shape (times, z)."""
        often: Floats = (~np.isnan(self.errors)).sum(0).astype(np.float64)
        return often

    @property
    def held(self) -> Floats:
        """How often the interval held the truth, shape (times, z)."""
        inside = np.abs(self.errors) <= norm.ppf(0.5 + LEVEL / 2) * self.standard_errors
        held: Floats = inside.sum(0).astype(np.float64)
        return held

    @property
    def bias(self) -> Floats:
        """The mean error as a share of the errors' standard deviation, shape (times, z); nan if rarely estimated."""
        often = self.estimated >= OFTEN
        bias = np.full(often.shape, np.nan)
        bias[often] = np.nanmean(self.errors[:, often], axis=0) / np.nanstd(self.errors[:, often], axis=0, ddof=1)
        return bias


def measure() -> dict[str, float]:
    """By scenario: least and largest coverage, and the largest bias in standard errors; then what tests say of all.

    A figure's coverage is tested against 95% by an exact binomial test, on both sides if its covariance is unbiased,
    for coverage below 95% if it is an upper bound. Figures are told apart if they are with the number of tests in mind.
    """
    outcomes = list(_simulated(scenarios()))
    figures: dict[str, float] = {}
    for outcome in outcomes:
        shares = outcome.held[outcome.estimated > 0] / outcome.estimated[outcome.estimated > 0]
        figures |= {
            f"2_coverage_least_{outcome.scenario}": float(shares.min(initial=1.0)),
            f"2_coverage_most_{outcome.scenario}": float(shares.max(initial=0.0)),
            f"2_estimates_{outcome.scenario}": float(outcome.estimated[:, 0].mean() / SURVEYS),
        }
        if not np.isnan(outcome.bias).all():
            figures[f"2_bias_most_{outcome.scenario}"] = float(np.nanmax(np.abs(outcome.bias)))
    return figures | _tested(outcomes)


def _tested(outcomes: Sequence[Outcome]) -> dict[str, float]:
    p_values = [p for outcome in outcomes for p in _p_values(outcome)]
    biases = np.concatenate([outcome.bias.ravel() for outcome in outcomes])
    known = np.abs(biases[~np.isnan(biases)])
    return {
        "2_tests": float(len(p_values)),
        "2_family_wise_p": min(1.0, len(p_values) * min(p_values)),
        "2_told_apart_from_95": float(sum(p * len(p_values) < FAMILY_WISE for p in p_values)),
        "2_bounds": float(sum(outcome.bounded.sum() for outcome in outcomes) / SURVEYS),
        "2_bias_most": float(known.max()),
        "2_bias_standard_error": float(1 / np.sqrt(SURVEYS)),
        "2_biases_above_a_tenth": float((known > MOST_BIAS).sum()),
    }


def _p_values(outcome: Outcome) -> Iterator[float]:
    for at, bounds in enumerate(outcome.bounded):
        for held, often in zip(outcome.held[at], outcome.estimated[at], strict=True):
            if often:
                side = "less" if bounds else "two-sided"
                yield float(binomtest(int(held), int(often), LEVEL, side).pvalue)


def _simulated(listed: Sequence[Scenario]) -> Iterator[Outcome]:
    numbers = [(number, batch) for number in range(len(listed)) for batch in range(BATCHES)]
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        batches = list(workers.map(partial(_batch, listed), numbers))
    for number, scenario in enumerate(listed):
        mine = [batch for (at, _), batch in zip(numbers, batches, strict=True) if at == number]
        errors, deviations = (np.concatenate([batch[part] for batch in mine]) for part in (0, 1))
        yield Outcome(scenario.name, errors, deviations, np.sum([batch[2] for batch in mine], axis=0))


def _batch(listed: Sequence[Scenario], numbers: tuple[int, int]) -> tuple[Floats, Floats, Floats]:
    """Errors and published standard errors of some of a scenario's surveys, and how many are of bounds."""
    scenario, size = listed[numbers[0]], SURVEYS // BATCHES
    shape = (size, len(scenario.times), len(scenario.survey.answers))
    errors, deviations, bounded = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape[1])
    generator = np.random.default_rng([SEED, *numbers])
    with threadpool_limits(1):
        for row in range(size):
            drawn = sample_field(scenario.population, scenario.survey, scenario.field, generator)
            solution = Solution(releases(scenario.survey, drawn.tallies), False)
            for at, time in enumerate(scenario.times):
                try:
                    estimate = solution.estimate(time)
                except NotEstimable:
                    continue
                enrolled = solution.releases.enrolment.enrolled[time]
                truth = drawn.frozen[time, 1:] / drawn.frozen[time].sum()
                errors[row, at] = estimate.values / enrolled - truth
                deviations[row, at] = np.sqrt(np.maximum(np.diag(estimate.covariance), 0.0)) / enrolled
                bounded[at] += estimate.upper_bound
    return errors, deviations, bounded
