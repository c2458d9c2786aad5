"""How far the estimates of a simulated survey are from the truth, over and over."""

from collections.abc import Iterator

import numpy as np
from changeling_protocol import Survey
from changeling_statistics.estimate import Floats
from changeling_statistics.estimation.recursion import run
from changeling_statistics.estimation.releases import releases
from changeling_statistics.tallies import Tallies

from .population import Population
from .sampler import sample_tallies


def simulated_errors(
    population: Population, survey: Survey, seeds: Iterator[np.random.Generator], *, retrospective: bool = False
) -> Floats:
    """The mean squared error of the estimated fractions in repeated surveys, shape (seeds, T), mean over the answers.

    It is the error against what the devices report on, so the bias of freezing is left out.
    seeds: a generator for each survey. retrospective: whether estimates are made when all is over, from everything.
    """
    truth, n = population.frozen_histogram()[1:], population.entries
    errors = []
    for generator in seeds:
        values = estimated(survey, sample_tallies(population, survey, generator), retrospective=retrospective)
        errors.append((((values - truth) / n) ** 2).mean(1))
    return np.array(errors)


def estimated(survey: Survey, tallies: Tallies, *, retrospective: bool = False) -> Floats:
    """The estimated histograms at times 1..T, shape (T, z), in entries, nan where a time is not estimable.

    Without their covariances, which take longer.
    """
    known, periods = releases(survey, tallies), survey.calendar.periods
    if retrospective:
        values: Floats = known.network.fit(known.changes)[1:]
        return values
    nothing = np.full(len(survey.answers), np.nan)
    solutions = run(known.network, known.changes, np.zeros((len(known), 0)), periods)
    return np.array([nothing if solution is None else solution.values for solution in solutions])
