"""One simulated survey: its estimates beside the truth, and what they say of accuracy.

Errors have two parts, kept apart: the noise of the responses, which more entries make small, and the bias of
freezing entries that mutate more often than the constraint allows, which nothing does.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import TypeAlias

import numpy as np
from changeling_protocol import Survey
from changeling_statistics.estimation.histograms import series
from changeling_statistics.tallies import Tallies
from numpy.typing import NDArray

from .population import Population
from .sampler import sample_tallies

POINT = 0.01
"""One percentage point of the entries."""

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """A survey's estimates beside the truth, at the ends of periods 1..T.

    survey: the survey. entries: how many entries answered.
    truth: the histograms as they were, shape (T, z), in entries.
    frozen: the histograms of what the devices reported on, shape (T, z), in entries.
    estimates: the published histograms, shape (T, z), in entries.
    variances: the published variances of the estimates given `frozen`, shape (T, z), in entries squared.
    """

    survey: Survey
    entries: int
    truth: Floats
    frozen: Floats
    estimates: Floats
    variances: Floats

    @property
    def standard_errors(self) -> Floats:
        """The published standard errors, shape (T, z), in entries.

        nan where so few reported that the estimated variance is below zero.
        """
        return np.sqrt(np.where(self.variances >= 0, self.variances, np.nan))

    @property
    def rms_error(self) -> float:
        """The root mean square of estimate - truth over times and answers, as a fraction of the entries."""
        return self._rms(self.estimates - self.truth)

    @property
    def rms_noise(self) -> float:
        """The part of `rms_error` that is noise: that of estimate - frozen."""
        return self._rms(self.estimates - self.frozen)

    @property
    def rms_freezing(self) -> float:
        """The part of `rms_error` that is the bias of freezing: that of frozen - truth."""
        return self._rms(self.frozen - self.truth)

    @property
    def worst_freezing(self) -> float:
        """The largest bias of freezing, at any time and of any answer, as a fraction of the entries."""
        return float(np.abs(self.frozen - self.truth).max() / self.entries)

    def devices_for(self, standard_error: float = POINT) -> Floats:
        """How many entries it takes for this standard error at the end of each period, shape (T,).

            n·(se / standard_error)²,  as the variance of a fraction falls as 1/n; se² is the mean over the answers

        standard_error: of a fraction of the entries; 0.01 is one percentage point.
        """
        variances: Floats = self.variances.mean(axis=1) / self.entries
        return variances / standard_error**2

    def write_csv(self, path: Path) -> None:
        """Writes a row for each period and answer, with a header; counts are in entries, times in UTC.

        Raises OSError if the file cannot be written.
        """
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["period", "time", "answer", "truth", "frozen", "estimate", "standard_error"])
            writer.writerows(self._rows())

    def times(self) -> list[datetime]:
        """The ends of periods 1..T, in UTC."""
        calendar = self.survey.calendar
        return [datetime.fromtimestamp(calendar.time(i), UTC) for i in range(1, calendar.periods + 1)]

    def _rows(self) -> Iterable[list[object]]:
        errors = self.standard_errors
        for i, time in enumerate(self.times()):
            for a, answer in enumerate(self.survey.answers):
                counts = (int(self.truth[i, a]), int(self.frozen[i, a]))
                estimate = (f"{self.estimates[i, a]:.3f}", f"{errors[i, a]:.3f}")
                yield [i + 1, f"{time:%Y-%m-%dT%H:%M:%SZ}", answer, *counts, *estimate]

    def _rms(self, differences: Floats) -> float:
        return float(np.sqrt(np.mean((differences / self.entries) ** 2)))


def epsilon_text(epsilon: Decimal) -> str:
    """An epsilon to four decimals, rounded up as every stated loss is.

    >>> epsilon_text(Decimal("7.99999"))
    '8'
    """
    return f"{epsilon.quantize(Decimal('0.0001'), ROUND_CEILING).normalize():f}"


def compare(population: Population, survey: Survey, tallies: Tallies) -> Experiment:
    """Estimates histograms from a survey's tallies, and sets them beside the population that answered.

    Raises NotEstimable if the plan does not reach the end of a period.
    """
    histograms = series(survey, tallies, survey.calendar.periods)
    return Experiment(
        survey=survey,
        entries=population.entries,
        truth=population.histogram()[1:].astype(np.float64),
        frozen=population.frozen_histogram()[1:].astype(np.float64),
        estimates=np.array([histogram.estimate.values for histogram in histograms]),
        variances=np.array([np.diag(histogram.estimate.covariance) for histogram in histograms]),
    )


def simulate(population: Population, survey: Survey, generator: np.random.Generator) -> Experiment:
    """Simulates a survey that every entry of a population answers, and sets its estimates beside the truth.

    population, survey: of the same answers, in the same order, and as many periods.
    generator: draws everything; with the same seed the simulation is the same.
    Raises ValueError if the two do not fit, NotEstimable if the plan does not reach the end of a period.
    """
    return compare(population, survey, sample_tallies(population, survey, generator))
