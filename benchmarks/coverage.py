"""How often nominal 95% intervals and regions hold the truth, and how far estimates are biased.

Measure 4 of the release plans and of joint responses: who is asked and what they respond is random, everybody is heard.
Measure 2 of the field: things go wrong, one at a time. Two thousand surveys of each scenario, as the aggregator
publishes them; what they are compared with is the share of each answer among all who have enrolled, heard or not.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from changeling_protocol import Survey
from changeling_simulations import Field, Population, sample_field, sample_tallies
from changeling_statistics import Floats, NotEstimable, Solution, histogram_figures, releases
from scipy.stats import binomtest, chi2, norm
from threadpoolctl import threadpool_limits

SURVEYS, BATCHES, SEED = 2_000, 4, 2
LEVEL, FAMILY_WISE, MOST_BIAS = 0.95, 1e-3, 0.1
"""A bias may be a tenth of the standard error."""
OFTEN = SURVEYS // 2
"""A bias is told from none if it was estimated so often."""


@dataclass(frozen=True, slots=True)
class View:
    """A histogram that is looked at: as its period closes, or in retrospect."""

    period: int
    retrospective: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """One survey of one population that is simulated again and again.

    name: of the figures. field: how its devices fare. views: the histograms that are looked at.
    """

    name: str
    survey: Survey
    population: Population
    field: Field
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One scenario's surveys, for each view.

    errors, standard_errors: of the published shares, shape (surveys, views, z); nan where nothing is estimated.
    regions: whether the 95% ellipsoid holds the truth, shape (surveys, views); nan likewise.
    bounded: how many of the published covariances say that they are upper bounds, shape (views,).
    """

    scenario: Scenario
    errors: Floats
    standard_errors: Floats
    regions: Floats
    bounded: Floats

    @property
    def estimated(self) -> Floats:
        """How often there was an estimate, shape (views, z)."""
        often: Floats = (~np.isnan(self.errors)).sum(0).astype(np.float64)
        return often

    @property
    def held(self) -> Floats:
        """How often the interval held the truth, shape (views, z)."""
        inside = np.abs(self.errors) <= norm.ppf(0.5 + LEVEL / 2) * self.standard_errors
        held: Floats = inside.sum(0).astype(np.float64)
        return held

    @property
    def coverages(self) -> Floats:
        """The shares of intervals and, last of each view, of regions that hold the truth, in no shape."""
        often = self.estimated
        intervals = self.held[often > 0] / often[often > 0]
        return np.append(intervals, np.nanmean(self.regions, axis=0) if often.all() else [])

    @property
    def bias(self) -> Floats:
        """The mean error as a share of the errors' standard deviation, shape (views, z); nan if rarely estimated."""
        often = self.estimated >= OFTEN
        bias = np.full(often.shape, np.nan)
        bias[often] = np.nanmean(self.errors[:, often], axis=0) / np.nanstd(self.errors[:, often], axis=0, ddof=1)
        return bias


def simulated(scenarios: Sequence[Scenario], seed: int = SEED) -> Iterator[Outcome]:
    """Simulates every scenario on all processors."""
    numbers = [(number, batch) for number in range(len(scenarios)) for batch in range(BATCHES)]
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        batches = list(workers.map(partial(_batch, scenarios, seed), numbers))
    for number, scenario in enumerate(scenarios):
        mine = [batch for (at, _), batch in zip(numbers, batches, strict=True) if at == number]
        errors, deviations, regions = (np.concatenate([batch[part] for batch in mine]) for part in range(3))
        yield Outcome(scenario, errors, deviations, regions, np.sum([batch[3] for batch in mine], axis=0))


def coverage_figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Measure 4: least and largest coverage and the number of bounds, by plan, and what tests against 95% say.

    A survey's figures are not told apart from 95% while the smallest p-value times the number of tests (Bonferroni)
    stays above 0.001.
    """
    figures: dict[str, float] = {}
    for outcome in outcomes:
        figures[f"4_coverage_least_{outcome.scenario.name}"] = float(outcome.coverages.min())
        figures[f"4_coverage_most_{outcome.scenario.name}"] = float(outcome.coverages.max())
        bounds = outcome.errors.shape[2] + 1
        figures[f"4_bounds_{outcome.scenario.name}"] = float(bounds * (outcome.bounded > 0).sum())
    shares = np.concatenate([outcome.coverages for outcome in outcomes]).tolist()
    tests = [float(binomtest(round(share * SURVEYS), SURVEYS, LEVEL).pvalue) for share in shares]
    return figures | {
        "4_family_wise_p": min(1.0, len(tests) * min(tests)),
        "4_told_apart_from_95": float(sum(p * len(tests) < FAMILY_WISE for p in tests)),
    }


def plans() -> dict[str, float]:
    """Measure 4 of the release plans."""
    from .coverage_cases import UNALIGNED, plan_scenarios, unaligned

    most = next(simulated([unaligned()], 4)).coverages.max()
    return {
        f"4_coverage_most_sampled_hierarchy_at_{UNALIGNED}": float(most),
        **coverage_figures(list(simulated(plan_scenarios(), 4))),
    }


def joint() -> dict[str, float]:
    """Measure 4 of joint responses.

    What tallies do not tell is bounded, and a bound may cover more than it says: beside the tests stands the most that
    such a figure covers, of the plan of these whose bound is the loosest, at the last time.
    """
    from .coverage_cases import joint_scenarios, loosest_bound

    most = next(simulated([loosest_bound()], 44)).coverages.max()
    return {"4_coverage_most_loosest_bound": float(most), **coverage_figures(list(simulated(joint_scenarios(), 44)))}


def field() -> dict[str, float]:
    """Measure 2 of the field, by scenario: coverage, and the largest bias in standard errors; then tests of all.

    A figure's coverage is tested against 95% by an exact binomial test, on both sides if its covariance is unbiased,
    for coverage below 95% if it is an upper bound. Figures are told apart if they are with the number of tests in mind.
    """
    from .coverage_cases import field_scenarios

    outcomes = list(simulated(field_scenarios()))
    figures: dict[str, float] = {}
    for outcome in outcomes:
        name, often = outcome.scenario.name, outcome.estimated
        shares = outcome.held[often > 0] / often[often > 0]
        figures |= {
            f"2_coverage_least_{name}": float(shares.min(initial=1.0)),
            f"2_coverage_most_{name}": float(shares.max(initial=0.0)),
            f"2_estimates_{name}": float(often[:, 0].mean() / SURVEYS),
        }
        if not np.isnan(outcome.bias).all():
            figures[f"2_bias_most_{name}"] = float(np.nanmax(np.abs(outcome.bias)))
    p_values = [p for outcome in outcomes for p in _p_values(outcome)]
    biases = np.concatenate([outcome.bias.ravel() for outcome in outcomes])
    known = np.abs(biases[~np.isnan(biases)])
    return figures | {
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
                yield float(binomtest(int(held), int(often), LEVEL, "less" if bounds else "two-sided").pvalue)


def _batch(scenarios: Sequence[Scenario], seed: int, numbers: tuple[int, int]) -> tuple[Floats, Floats, Floats, Floats]:
    """Errors, published standard errors and regions of some of a scenario's surveys, and how many are of bounds."""
    scenario, size = scenarios[numbers[0]], SURVEYS // BATCHES
    shape = (size, len(scenario.views), len(scenario.survey.answers))
    errors, deviations = np.full(shape, np.nan), np.full(shape, np.nan)
    regions, bounded = np.full(shape[:2], np.nan), np.zeros(shape[1])
    generator = np.random.default_rng([seed, *numbers])
    with threadpool_limits(1):
        for row in range(size):
            solutions, truth = _solved(scenario, generator)
            for at, view in enumerate(scenario.views):
                solution = solutions[view.retrospective]
                try:
                    estimate = solution.estimate(view.period)
                except NotEstimable:
                    continue
                enrolled = solution.releases.enrolment.enrolled[view.period]
                errors[row, at] = estimate.values / enrolled - truth[view.period]
                deviations[row, at] = np.sqrt(np.maximum(np.diag(estimate.covariance), 0.0)) / enrolled
                regions[row, at] = _in_region(errors[row, at] * enrolled, estimate.covariance)
                bounded[at] += estimate.upper_bound
    return errors, deviations, regions, bounded


def _solved(scenario: Scenario, generator: np.random.Generator) -> tuple[dict[bool, Solution], Floats]:
    """One survey's solutions, online and in retrospect, and the true shares at times 0 to T, shape (T+1, z)."""
    survey, population = scenario.survey, scenario.population
    if scenario.field == Field():
        tallies = sample_tallies(population, survey, generator)
        truth: Floats = population.frozen_histogram() / population.entries
    else:
        drawn = sample_field(population, survey, scenario.field, generator)
        tallies, truth = drawn.tallies, drawn.frozen[:, 1:] / np.maximum(drawn.frozen.sum(1, keepdims=True), 1)
    known = releases(survey, tallies)
    return {each: Solution(known, each) for each in {view.retrospective for view in scenario.views}}, truth


def _in_region(off: Floats, covariance: Floats) -> bool:
    """Whether the 95% ellipsoid holds the truth, along the axes that have any variance."""
    variances, axes = np.linalg.eigh(covariance)
    kept = variances > 1e-9 * variances[-1]
    distance = ((axes.T @ off)[kept] ** 2 / variances[kept]).sum()
    return bool(distance <= chi2.ppf(LEVEL, kept.sum()))


TRIALS, MANY = 300, {20: 200, 200: 60}
"""Surveys of each case of measure 5; fewer where there are many answers, as each has many of one share."""


@dataclass(frozen=True, slots=True, eq=False)
class IntervalCase:
    """A planned survey of a population, for measure 5. name: of its figures."""

    name: str
    survey: Survey
    population: Population


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """How often the intervals of one case held the truth, for both methods.

    trials: how many surveys.
    counts: of each answer at each time, as it is in truth, shape (T, z).
    often: how many surveys had an estimate, shape (2, T). alone: in how many its 95% interval held, shape (2, T, z).
    together: in how many the simultaneous bands of the whole series all held, shape (2,).
    missing: how many figures had no interval.
    """

    trials: int
    counts: Floats
    often: Floats
    alone: Floats
    together: Floats
    missing: float

    @property
    def bands(self) -> list[float]:
        """The share of the surveys with an estimate whose simultaneous bands all held, by method."""
        often = self.often.max(1)
        return [float(share) for share in self.together[often > 0] / often[often > 0]]

    def by_share(self) -> Iterator[float]:
        """The coverage of the answers of one share, over all times and both methods apart; 0 has a cell of its own."""
        shares = self.counts / self.counts.sum(1, keepdims=True)
        cells = np.digitize(shares, (1e-9, 1e-3, 3e-3, 0.02, 0.1, 0.3))
        for held, often in zip(self.alone, self.often, strict=True):
            for cell in np.unique(cells):
                at = cells == cell
                asked = (at * often[:, None]).sum()
                if asked:
                    yield float((held * at).sum() / asked)


def intervals() -> dict[str, float]:
    """Measure 5: coverage of nominal 95% intervals and simultaneous bands, from nothing to one half of the entries.

    Of z = 2 to 200 answers, 700 to 100,000 entries, minima of 1, 10 and 100, ε = 2, 8 and 16, closed and open; every
    two of these levels meet. A cell is all answers of about one share in one survey, by one method. Then the demo's
    712 entries. All in one process, in minutes.
    """
    from .coverage_cases import demo_case, interval_cases

    cases = [*interval_cases(), demo_case()]
    outcomes = [_held(case, number) for number, case in enumerate(cases)]
    cells = [list(held.by_share()) for held in outcomes]
    everything = [share for mine in cells for share in mine]
    figures = {
        "5_missing_intervals": float(sum(held.missing for held in outcomes)),
        "5_coverage_worst": min(everything),
        "5_coverage_mean": float(np.mean(everything)),
        "5_cells": float(len(everything)),
        "5_cells_below_93": float(sum(share < 0.93 for share in everything)),
        "5_cells_above_97.5": float(sum(share > 0.975 for share in everything)),
    }
    for case, held, mine in zip(cases, outcomes, cells, strict=True):
        figures |= {
            f"5_coverage_worst_{case.name}": min(mine),
            f"5_coverage_mean_{case.name}": float(np.mean(mine)),
            f"5_coverage_most_{case.name}": max(mine),
            f"5_simultaneous_{case.name}": min(held.bands),
            f"5_trials_{case.name}": float(held.trials),
        }
    return figures


def _held(case: IntervalCase, number: int) -> Held:
    """Simulates the surveys of one case."""
    truth, periods = case.population.frozen_histogram()[1:].astype(np.float64), case.survey.calendar.periods
    generator, slack = np.random.default_rng([SEED, number]), 1e-9 * case.population.entries
    often, together = np.zeros((2, periods)), np.zeros(2)
    alone, missing = np.zeros((2, *truth.shape)), 0.0
    trials = MANY.get(truth.shape[1], TRIALS)
    with threadpool_limits(1):
        for _ in range(trials):
            known = releases(case.survey, sample_tallies(case.population, case.survey, generator))
            for method in range(2):
                figures, _ = histogram_figures(Solution(known, bool(method)), periods)
                at = [span.end - 1 for span in figures.spans]
                if not at:
                    continue
                for bands, joined in (
                    (figures.intervals(LEVEL), False),
                    (figures.intervals(LEVEL, together=True), True),
                ):
                    missing += float(np.isnan(bands).sum())
                    held = (bands[..., 0] <= truth[at] + slack) & (truth[at] - slack <= bands[..., 1])
                    if joined:
                        together[method] += held.all()
                    else:
                        alone[method, at] += held
                often[method, at] += 1
    return Held(trials, truth, often, alone, together, missing)
