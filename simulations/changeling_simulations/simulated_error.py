"""How far the estimates of a survey are from the truth when it is simulated many times."""

from collections.abc import Iterator

import numpy as np
from changeling_protocol import Survey
from changeling_statistics import Floats, Solution, Tallies, releases

from .population import Population
from .sampler import sample_tallies


def simulated_errors(
    population: Population, survey: Survey, seeds: Iterator[np.random.Generator], *, retrospective: bool = False
) -> Floats:
    """The squared errors of the estimated fractions in repeated surveys, mean over the answers.

    They are against the frozen histories, so the bias of freezing is left out.
    seeds: a generator for each survey.
    retrospective: whether histograms are estimated from everything; if not, each as its period closes.
    Returns shape (seeds, T), in squared fractions.
    """
    truth, n = population.frozen_histogram()[1:], population.entries
    errors = []
    for generator in seeds:
        values = estimated(survey, sample_tallies(population, survey, generator), retrospective=retrospective)
        errors.append((((values - truth) / n) ** 2).mean(1))
    return np.array(errors)


def estimated(survey: Survey, tallies: Tallies, *, retrospective: bool = False) -> Floats:
    """The estimated histograms at the ends of periods 1..T, without their covariances, which take longer.

    Returns shape (T, z), in entries; nan for a period that is not estimable.
    """
    return Solution(releases(survey, tallies), retrospective).values(survey.calendar.periods)
