"""What a field does to a survey's error, bias and coverage, from surveys that are simulated again and again."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from changeling_protocol import Survey
from changeling_statistics import Floats
from scipy.special import ndtri

from .experiment import in_the_field
from .field import Field
from .population import Population

LEVEL = 0.95
FEWEST, MOST = 20, 50
"""How many surveys a trial takes."""
ENTRIES_A_TRIAL = 1_000_000
"""About how many entries a trial goes through, if that leaves it with so many surveys."""


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """R surveys of one population, against the frozen histories of all who have enrolled.

    errors: of the published shares, shape (R, T, z); nan where nothing identifies them.
    standard_errors: the published ones, shape (R, T, z); nan likewise, and where the estimated variance is below zero.
    heard: which share of those who have enrolled is heard at a closing, mean over closings, shape (R,).
    """

    errors: Floats
    standard_errors: Floats
    heard: Floats

    @property
    def rms_error(self) -> float:
        """The root mean square of all errors; nan if nothing was ever estimated."""
        return float(np.sqrt(_mean(self.errors**2)))

    @property
    def bias(self) -> float:
        """The root mean square of the errors' means, over times and answers; nan if nothing was estimated twice."""
        return float(np.sqrt(_mean(self._means[0] ** 2)))

    @property
    def bias_by_chance(self) -> float:
        """What `bias` would be about if there was none, as R surveys are not many; nan likewise."""
        return float(np.sqrt(_mean(self._means[1])))

    @property
    def _means(self) -> tuple[Floats, Floats]:
        """The mean error of each time and answer that was estimated twice or more, and the variance of that mean."""
        known = (~np.isnan(self.errors)).sum(0)
        errors = self.errors[:, known > 1]
        return np.nanmean(errors, axis=0), np.nanvar(errors, axis=0, ddof=1) / known[known > 1]

    @property
    def coverage(self) -> float:
        """How often a published 95% interval holds what it is about; nan if there is none."""
        known = ~np.isnan(self.standard_errors)
        held = np.abs(self.errors[known]) <= ndtri(0.5 + LEVEL / 2) * self.standard_errors[known]
        return _mean(held.astype(np.float64))

    @property
    def gaps(self) -> float:
        """The share of periods that are not estimable."""
        return float(np.isnan(self.errors[:, :, 0]).mean())


def trials_of(entries: int) -> int:
    """How many surveys of so many entries a trial takes."""
    return int(np.clip(ENTRIES_A_TRIAL // entries, FEWEST, MOST))


def tried(population: Population, survey: Survey, field: Field, generators: Iterable[np.random.Generator]) -> Trials:
    """Simulates a survey in the field again and again, with a generator for each time.

    population, survey: of the same answers, in the same order, and as many periods.
    Raises ValueError if they, or the field, do not fit.
    """
    experiments = [in_the_field(population, survey, field, generator) for generator in generators]
    return Trials(
        np.array([each.estimated_shares - each.frozen_shares for each in experiments]),
        np.array([each.share_errors for each in experiments]),
        np.array([each.heard for each in experiments]),
    )


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else np.nan
