"""Measure 4 of the release plans: how often nominal 95% intervals and regions hold the truth.

Forty thousand simulated surveys of one population for each plan, at an early, a middle and the last time. The truth
is what the population holds; what is random is who is asked and what they respond.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from changeling_simulations import Population
from changeling_statistics import hierarchical_plan
from scipy.stats import binomtest, chi2, norm

from .replications import Floats, Replicated, View, published, replicate, tallies_of

REPLICATIONS, BATCH, SEED = 40_000, 5_000, 4
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
    view: View
    shares: tuple[float, ...]
    upper_bound: bool


def measure() -> dict[str, float]:
    """Least and largest coverage by plan, and the smallest p-value times the number of tests (Bonferroni).

    A survey's figures are not told apart from 95% while that product stays above 0.001.
    """
    views = [View(time, PERIODS) for time in (*TIMES, UNALIGNED)]
    everything = list(coverages(surveys(), views, SEED))
    found = [one for one in everything if one.view.period in TIMES]
    unaligned = [one.shares for one in everything if one.plan == "sampled_hierarchy" and one.view.period == UNALIGNED]
    return {f"4_coverage_most_sampled_hierarchy_at_{UNALIGNED}": max(unaligned[0]), **figures(found)}


def figures(found: Sequence[Coverage]) -> dict[str, float]:
    """Least and largest coverage and the number of bounds, by plan; and what tests against 95% say of all of them."""
    stated: dict[str, float] = {}
    for name in dict.fromkeys(one.plan for one in found):
        shares = [share for one in found if one.plan == name for share in one.shares]
        stated[f"4_coverage_least_{name}"] = min(shares)
        stated[f"4_coverage_most_{name}"] = max(shares)
        stated[f"4_bounds_{name}"] = float(sum(one.upper_bound for one in found if one.plan == name))
    shares = [share for one in found for share in one.shares]
    tests = [float(binomtest(round(share * REPLICATIONS), REPLICATIONS, LEVEL).pvalue) for share in shares]
    stated["4_family_wise_p"] = float(min(1.0, len(tests) * min(tests)))
    stated["4_told_apart_from_95"] = float(sum(p * len(tests) < FAMILY_WISE for p in tests))
    return stated


def coverages(surveys: Mapping[str, Survey], views: Sequence[View], seed: int) -> Iterator[Coverage]:
    """Of each survey in each view. Raises ArithmeticError if the batches and the aggregator's front door disagree."""
    generator = np.random.default_rng(seed)
    for name, survey in surveys.items():
        population = made_up(generator)
        check(population, survey, views)
        truth = population.frozen_histogram().astype(np.float64)
        held = {view: np.zeros(ANSWERS + 1) for view in views}
        bounded = dict.fromkeys(views, False)
        for _ in range(REPLICATIONS // BATCH):
            for view, replicated in replicate(population, survey, views, BATCH, generator).items():
                held[view] += _held(replicated, truth[view.period])
                bounded[view] = replicated.upper_bound
        for view in views:
            yield Coverage(name, view, tuple((held[view] / REPLICATIONS).tolist()), bounded[view])


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
        "paper": survey_of(paper, closed=False),
        "sampled_hierarchy": survey_of(ReleasePlan(layers), closed=True),
        "optimal": survey_of(ReleasePlan((anchored, panel)), closed=True),
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


def check(population: Population, survey: Survey, views: Sequence[View], rows: int = 3) -> None:
    """The same random numbers through both ways give the same values and covariances."""
    batch = replicate(population, survey, views, rows, np.random.default_rng(SEED))
    alone = tallies_of(population, survey, rows, np.random.default_rng(SEED))
    for view, replicated in batch.items():
        for at, tallies in enumerate(alone):
            values, covariance = published(survey, tallies, view)
            same = np.allclose(values, replicated.values[at]) and np.allclose(covariance, replicated.covariances[at])
            if not same:
                raise ArithmeticError(f"replication {at} at {view} is not what the aggregator publishes")


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


def survey_of(plan: ReleasePlan, *, closed: bool) -> Survey:
    """A survey of the four answers with this plan."""
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
