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
    """The mean squared error of the fractions at every time, mean over the answers, of one survey for each seed.

    Shape (seeds, T). Against what the devices report on: the bias of freezing is another matter.
    """
    truth, n = population.frozen_histogram()[1:], population.entries
    found = []
    for generator in seeds:
        values = estimated(survey, sample_tallies(population, survey, generator), retrospective=retrospective)
        found.append((((values - truth) / n) ** 2).mean(1))
    return np.array(found)


def estimated(survey: Survey, tallies: Tallies, *, retrospective: bool = False) -> Floats:
    """The histograms at times 1..T, shape (T, z), without their covariances; nan where not estimable."""
    known, periods = releases(survey, tallies), survey.calendar.periods
    if retrospective:
        values: Floats = known.network.fit(known.changes)[1:]
        return values
    nothing = np.full(len(survey.answers), np.nan)
    found = run(known.network, known.changes, np.zeros((len(known), 0)), periods)
    return np.array([nothing if one is None else one.values for one in found])
