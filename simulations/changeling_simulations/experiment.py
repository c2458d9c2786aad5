"""One simulated survey: its estimates beside the truth, and how far they are off.

Errors have two parts, which are kept apart. The noise of the randomizers gets smaller with more entries. The bias of
freezing entries that mutate more often than the constraint allows does not.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from pathlib import Path

import numpy as np
from changeling_protocol import Survey
from changeling_statistics.estimate import Floats
from changeling_statistics.estimation.histograms import Histogram, series
from changeling_statistics.planning.prediction import POINT
from changeling_statistics.tallies import Tallies

from .population import Population
from .sampler import sample_tallies


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """A survey's estimates beside the truth, at the ends of periods 1..T.

    survey: the survey that was simulated.
    entries: how many entries answered.
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
    def reports_an_entry(self) -> float:
        """How many reports an entry sends in the whole survey, mean over the groups."""
        plan = self.survey.plan
        sent = sum(group.share * sum(track.reports for track in group.tracks) for group in plan.groups)
        return sent / plan.total_share

    @property
    def rms_error(self) -> float:
        """The root mean square of (estimate - truth) over times and answers, as a fraction of the entries."""
        return self._rms(self.estimates - self.truth)

    @property
    def rms_noise(self) -> float:
        """The root mean square of (estimate - frozen), likewise: the noise of the randomizers."""
        return self._rms(self.estimates - self.frozen)

    @property
    def rms_freezing(self) -> float:
        """The root mean square of (frozen - truth), likewise: the bias of freezing."""
        return self._rms(self.frozen - self.truth)

    @property
    def worst_freezing(self) -> float:
        """The largest bias of freezing, at any time and of any answer, as a fraction of the entries."""
        return float(np.abs(self.frozen - self.truth).max() / self.entries)

    def devices_for(self, standard_error: float = POINT) -> Floats:
        """How many entries it takes for a standard error at the end of each period, shape (T,).

        standard_error: of a fraction of the entries; 0.01 is one percentage point.
        The variance of a fraction falls as 1/n, so it takes n·(se / standard_error)² entries; se² is the mean of the
        variances over the answers.
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

    population: of the same answers and as many periods as the survey.
    Estimates and variances are nan at the end of a period that the tallies do not identify.
    """
    T, z = survey.calendar.periods, len(survey.answers)
    estimates, variances = np.full((T, z), np.nan), np.full((T, z), np.nan)
    for at, each in enumerate(series(survey, tallies, T)):
        if isinstance(each, Histogram):
            estimates[at], variances[at] = each.estimate.values, np.diag(each.estimate.covariance)
    return Experiment(
        survey=survey,
        entries=population.entries,
        truth=population.histogram()[1:].astype(np.float64),
        frozen=population.frozen_histogram()[1:].astype(np.float64),
        estimates=estimates,
        variances=variances,
    )


def simulate(population: Population, survey: Survey, generator: np.random.Generator) -> Experiment:
    """Simulates a survey that every entry of a population answers, and sets its estimates beside the truth.

    population, survey: of the same answers, in the same order, and as many periods.
    generator: draws everything; with the same seed the simulation is the same.
    Raises ValueError if the two do not fit.
    """
    return compare(population, survey, sample_tallies(population, survey, generator))
