"""The exact error of a survey's estimates where everybody's history is known, as it is in a simulation.

Nodes are weighed as the estimator weighs them, and their variances are the exact ones of the population.
"""

from dataclasses import dataclass

import numpy as np
from changeling_protocol import Randomizer, Survey
from changeling_statistics import Floats, Moments, Prediction, conserves, counterpart_of, predict, without_sum

from .population import Population


@dataclass(frozen=True)
class KnownPopulation:
    """A population's own figures, which take the place of those that a survey's designer expects.

    They are of its frozen histories, which the devices report on.
    survey: what is reported. population: who reports, of the same answers and as many periods.
    """

    survey: Survey
    population: Population

    def report_variances(self, track: int) -> Floats:
        """The variance of one report on each node of a track, mean over entries and answers, in entries squared.

        track: its number in the plan. Returns shape (nodes,).
        """
        reported = self.survey.plan.tracks[track]
        closed, changes = self.survey.closed, reported.reports_changes
        kept = per_input(reported.randomizer, False)
        conserved = per_input(reported.randomizer, True) if conserves(closed, changes, 1) else kept
        return np.array(
            [
                self.population.mutation_counts(reported, node)
                @ (conserved if conserves(closed, changes, node.start) else kept)
                / self.population.entries
                for node in reported.nodes()
            ]
        )

    @property
    def moments(self) -> Moments:
        """How many of the entries hold an answer at each of two times 0..T, as shares, mean over the answers."""
        z, n = len(self.survey.answers), self.population.entries
        products, squares = np.zeros((self.population.periods + 1,) * 2), np.zeros((self.population.periods + 1,) * 2)
        means = np.zeros(self.population.periods + 1)
        for answer in range(1, z + 1):
            held = (self.population.frozen == answer).astype(np.float64)
            weighted = held * self.population.weights[:, None]
            mean = weighted.sum(0) / n
            products += weighted.T @ held / n / z
            squares += np.outer(mean, mean) / z
            means += mean / z
        centred = (products - squares) * (n / max(n - 1.0, 1.0))
        return Moments(products, centred, means)


def exact_error(
    population: Population, survey: Survey, *, retrospective: bool = False, devices: int | None = None
) -> Prediction:
    """The exact standard errors of a survey's histograms, given the histories of a population.

    Which entry draws which group is part of the error; the bias of freezing is not.
    population: of the same answers and as many periods as the survey.
    retrospective: whether histograms are estimated when all is over, from everything.
    devices: how many entries of this kind answer; if not given, as many as the population has.
    """
    n = population.entries if devices is None else devices
    return predict(survey, n, retrospective=retrospective, population=KnownPopulation(survey, population))


def per_input(randomizer: Randomizer, conserved: bool) -> Floats:
    """The variance of one report for each true input, mean over the answers, shape (m,), in entries squared.

    conserved: whether changes are known to add up to zero over the answers.
    """
    z = randomizer.space.answers
    variances = np.zeros(randomizer.space.size)
    for true in range(len(variances)):
        covariance = counterpart_of(randomizer).report_covariance(true)
        if conserved:
            covariance = without_sum(np.zeros(z), covariance)[1]
        variances[true] = np.trace(covariance) / z
    return variances
