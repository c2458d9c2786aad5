"""Measure 4 of the release plans: how often nominal 95% intervals and regions hold the truth.

Forty thousand simulated surveys of one population for each plan, at an early, a middle and the last time. The truth
is what the population holds; what is random is who is asked and what they respond.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
)
from changeling_simulations.population import Population
from changeling_statistics.planning import hierarchical_plan
from scipy.stats import binomtest, chi2, norm

from .replications import Floats, Replicated, published, replicate, tallies_of

REPLICATIONS, BATCH, SEED = 40_000, 2_000, 4
ANSWERS, PERIODS, HISTORIES, EACH = 4, 32, 60, 500
"""60 histories of 500 entries each."""
TIMES = (4, 16, 32)
UNALIGNED = 21
"""A time that no wide node ends at: where a sampled hierarchy's bound is loosest, and may cover more than it says."""
LEVEL, FAMILY_WISE = 0.95, 1e-3
CALENDAR, CONSTRAINT = Calendar(0, 86_400, PERIODS), AtMost(3)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The share of replications whose interval, per answer, or region, last, holds the truth."""

    plan: str
    time: int
    shares: tuple[float, ...]
    upper_bound: bool


def measure() -> dict[str, float]:
    """Least and largest coverage by plan, and the smallest p-value times the number of tests (Bonferroni).

    A survey's figures are not told apart from 95% while that product stays above 0.001.
    """
    everything = list(coverages())
    found = [one for one in everything if one.time in TIMES]
    unaligned = [one.shares for one in everything if one.plan == "sampled_hierarchy" and one.time == UNALIGNED]
    figures = {f"4_coverage_most_sampled_hierarchy_at_{UNALIGNED}": max(unaligned[0])}
    for name in dict.fromkeys(one.plan for one in found):
        shares = [share for one in found if one.plan == name for share in one.shares]
        figures[f"4_coverage_least_{name}"] = min(shares)
        figures[f"4_coverage_most_{name}"] = max(shares)
        figures[f"4_bounds_{name}"] = float(sum(one.upper_bound for one in found if one.plan == name))
    shares = [share for one in found for share in one.shares]
    tests = [float(binomtest(round(share * REPLICATIONS), REPLICATIONS, LEVEL).pvalue) for share in shares]
    figures["4_family_wise_p"] = float(min(1.0, len(tests) * min(tests)))
    figures["4_told_apart_from_95"] = float(sum(p * len(tests) < FAMILY_WISE for p in tests))
    return figures


def coverages() -> Iterator[Coverage]:
    """Of each plan at each time. Raises ArithmeticError if the batches and the aggregator's front door disagree."""
    generator = np.random.default_rng(SEED)
    times = (*TIMES, UNALIGNED)
    for name, survey in surveys().items():
        population = made_up(generator)
        check(population, survey)
        truth = population.frozen_histogram().astype(np.float64)
        held = {time: np.zeros(ANSWERS + 1) for time in times}
        bounded = dict.fromkeys(times, False)
        for _ in range(REPLICATIONS // BATCH):
            for time, replicated in replicate(population, survey, list(times), BATCH, generator).items():
                held[time] += _held(replicated, truth[time])
                bounded[time] = replicated.upper_bound
        for time in times:
            yield Coverage(name, time, tuple((held[time] / REPLICATIONS).tolist()), bounded[time])


def surveys() -> dict[str, Survey]:
    """The paper's plan, a hierarchy of one layer an entry at so large an epsilon that sampling dominates, and a
    plan of the optimal kind: states at first and changes after them, beside a panel of one random node."""
    paper = hierarchical_plan(ANSWERS, CALENDAR, CONSTRAINT, epsilon=Decimal(60), branching=2, layers=5)
    response = KaryResponse(MutationSpace(ANSWERS), Odds(1000, 1))
    layers = tuple(Group((Track(2**i, response, 0, PERIODS),)) for i in range(6))
    states = KaryResponse(StateSpace(ANSWERS, null=False), Odds(30, 1))
    changes = SignedSubset(MutationSpace(ANSWERS), Odds(40, 1), spoken=Fraction(1, 12))
    anchored = Group((Track(1, states, 0, 1), Track(1, changes, 1, PERIODS)), share=3)
    panel = Group((Track(4, states, 0, PERIODS, reported=1),), share=2)
    return {
        "paper": _survey(paper, closed=False),
        "sampled_hierarchy": _survey(ReleasePlan(layers), closed=True),
        "optimal": _survey(ReleasePlan((anchored, panel)), closed=True),
    }


def made_up(generator: np.random.Generator) -> Population:
    """Histories with an answer from the first period on and up to two changes after it."""
    states = np.zeros((HISTORIES, PERIODS + 1), np.uint16)
    for row in states:
        row[1:] = generator.choice(ANSWERS, p=[0.4, 0.3, 0.2, 0.1]) + 1
        for period in sorted(generator.integers(2, PERIODS + 1, generator.choice(3, p=[0.6, 0.3, 0.1]))):
            row[period:] = (row[period] + generator.integers(0, ANSWERS - 1)) % ANSWERS + 1
    answers = tuple(f"answer {a}" for a in range(1, ANSWERS + 1))
    return Population(answers, states, states, np.full(HISTORIES, EACH, np.int64))


def check(population: Population, survey: Survey, rows: int = 3) -> None:
    """The same random numbers through both ways give the same values and covariances."""
    batch = replicate(population, survey, list(TIMES), rows, np.random.default_rng(SEED))
    alone = tallies_of(population, survey, rows, np.random.default_rng(SEED))
    for time, replicated in batch.items():
        for at, tallies in enumerate(alone):
            values, covariance = published(survey, tallies, time)
            same = np.allclose(values, replicated.values[at]) and np.allclose(covariance, replicated.covariances[at])
            if not same:
                raise ArithmeticError(f"replication {at} at period {time} is not what the aggregator publishes")


def _held(replicated: Replicated, truth: Floats) -> Floats:
    """How many replications hold the truth, per answer, and in the ellipsoid."""
    off = replicated.values - truth
    deviations = np.sqrt(np.diagonal(replicated.covariances, axis1=1, axis2=2))
    inside = np.abs(off) <= norm.ppf(0.5 + LEVEL / 2) * deviations
    variances, axes = np.linalg.eigh(replicated.covariances)
    kept = variances > 1e-9 * variances[:, -1:]
    along = np.einsum("rza,rz->ra", axes, off)
    distance = (np.where(kept, along, 0.0) ** 2 / np.where(kept, variances, 1.0)).sum(1)
    ellipsoid = distance <= chi2.ppf(LEVEL, kept.sum(1))
    return np.append(inside.sum(0), ellipsoid.sum()).astype(np.float64)


def _survey(plan: ReleasePlan, *, closed: bool) -> Survey:
    return Survey.at_cost(
        question="Do intervals hold what they promise?",
        answers=tuple(f"answer {a}" for a in range(1, ANSWERS + 1)),
        calendar=CALENDAR,
        constraint=CONSTRAINT,
        plan=plan,
        closed=closed,
        skew=60,
        spread=600,
        grace=86_400,
        minimum=10,
    )
