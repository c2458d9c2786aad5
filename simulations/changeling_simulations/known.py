"""The exact error of a survey's estimates given everybody's history: what a simulation must scatter by.

Only a simulation knows it. The weights are those of the estimator; the variances are the population's own.
"""

from dataclasses import dataclass

import numpy as np
from changeling_protocol import Randomizer, Survey
from changeling_statistics.conservation import conserves, without_sum
from changeling_statistics.estimate import Floats
from changeling_statistics.estimation.report_variance import report_covariance
from changeling_statistics.planning.prediction import Prediction, predict

from .population import Population


@dataclass(frozen=True)
class Known:
    """A population's moments, exactly, of what its devices report on."""

    survey: Survey
    population: Population

    def report_variances(self, track: int) -> Floats:
        of = self.survey.plan.tracks[track]
        kept = per_input(of.randomizer, False)
        conserved = per_input(of.randomizer, True) if conserves(self.survey.closed, of.reports_changes, 1) else kept
        return np.array(
            [
                self.population.mutation_counts(of, node)
                @ (conserved if conserves(self.survey.closed, of.reports_changes, node.start) else kept)
                / self.population.entries
                for node in of.nodes()
            ]
        )

    @property
    def products(self) -> Floats:
        z, n = len(self.survey.answers), self.population.entries
        products = np.zeros((self.population.periods + 1,) * 2)
        for answer in range(1, z + 1):
            held = (self.population.frozen == answer).astype(np.float64)
            weighted = held * self.population.weights[:, None]
            products += weighted.T @ held / n
            if self.survey.closed:
                mean = weighted.sum(0) / n
                products -= np.outer(mean, mean)
        return products / z * (n / (n - 1) if self.survey.closed and n > 1 else 1.0)


def known_error(
    population: Population, survey: Survey, *, retrospective: bool = False, devices: int | None = None
) -> Prediction:
    """The error given the histories, sampling of shares included; the bias of freezing is left out.

    devices: as many as the population has entries, unless it stands for another number of the same kind.
    """
    n = population.entries if devices is None else devices
    return predict(survey, n, retrospective=retrospective, population=Known(survey, population))


def per_input(randomizer: Randomizer, conserved: bool) -> Floats:
    """The variance of one report by its true input, mean over the answers, shape (m,)."""
    z = randomizer.space.answers
    found = np.zeros(randomizer.space.size)
    for true in range(len(found)):
        covariance = report_covariance(randomizer, true)
        if conserved:
            covariance = without_sum(np.zeros(z), covariance)[1]
        found[true] = np.trace(covariance) / z
    return found
