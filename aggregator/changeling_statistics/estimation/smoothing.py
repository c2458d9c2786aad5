"""Smoothed histograms: less noise, some bias, by the belief that shares drift slowly; never the default.

The share p of each answer is taken to do a random walk: over a period it moves by 0 ± τ, with a τ² for each answer. The
unbiased estimates p̂ of all times have a planned noise N, which is what they err by about the entries that are asked,
not about all the people these might stand for: so the entries' own variety, which an estimate's planned covariance
L⁻¹ holds as well, is taken off. With D the differences between neighbouring times and M = D N D' = U λ U',

    p̃ = p̂ - G (λ + τ²)⁻¹ U' D p̂,      G = N D' U,      E (p̃ - p)² = N - G (λ + τ²)⁻¹ G'

the last is noise and squared bias together, mean over all drifts of that size. τ² is weighed by how likely it makes
D p̂, marginally, times a broad belief about the drift that n entries make who change independently, as often as the
designer expects. docs/mathematics.md, "The smoother".
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..estimate import Estimate, Floats, VarianceCurve
from .entries import change_variances, expected_moments
from .network import Indices
from .releases import UsedNode
from .solution import Solution

DRIFTS: Floats = 4.0 ** np.arange(-6.0, 11.0)
"""The τ² that are weighed, as multiples of what independent changes of the expected rate make."""
BELIEF = np.log(10.0)
"""A standard deviation of the belief about ln τ²: people change their minds together."""
MOST_TIMES = 1200
"""Smoothing takes matrices over all times."""


@dataclass(frozen=True, slots=True, eq=False)
class _Noise:
    """The planned noise of the unbiased shares at m times, and what depends on it alone.

    times: shape (m,). drifts: the J values of τ² that are weighed, rising, shape (J,).
    eigenvalues: λ, shape (m - 1,). along: U'D, shape (m - 1, m). back: G, shape (m, m - 1).
    errors, biases: of each τ², E (p̃ - p)² and the part of it that is bias, shape (J, m).
    """

    times: Indices
    drifts: Floats
    eigenvalues: Floats
    along: Floats
    back: Floats
    errors: Floats
    biases: Floats

    @classmethod
    def of(cls, noise: Floats, times: Indices, drifts: Floats) -> "_Noise":
        """The noise of a covariance N, shape (m, m)."""
        differences = np.diff(np.eye(len(times)), axis=0) / np.sqrt(np.diff(times))[:, None]
        eigenvalues, axes = np.linalg.eigh(differences @ noise @ differences.T)
        eigenvalues = np.maximum(eigenvalues, 0.0)
        along, back = axes.T @ differences, noise @ differences.T @ axes
        less = 1 / (eigenvalues + drifts[:, None])
        biases = drifts[:, None] * (less**2 @ (back**2).T)
        return cls(times, drifts, eigenvalues, along, back, np.diag(noise) - less @ (back**2).T, biases)

    def smoother(self, at: int) -> Floats:
        """The weights of all times in each smoothed share, for one τ², shape (m, m)."""
        taken = (self.back / (self.eigenvalues + self.drifts[at])) @ self.along
        smoother: Floats = np.eye(len(self.times)) - taken
        return smoother

    def likelihoods(self, shares: Floats) -> Floats:
        """ln Pr(D p̂ | τ²) of each answer, but for a constant, shape (J, z). shares: p̂, shape (m, z)."""
        scatter = self.eigenvalues + self.drifts[:, None]
        misfit = (1 / scatter) @ (self.along @ shares) ** 2
        likelihoods: Floats = -0.5 * (np.log(scatter).sum(1)[:, None] + misfit)
        return likelihoods


@dataclass(frozen=True, eq=False)
class Smoothing(Solution):
    """The retrospective solution, and smoothed histograms that are made of it.

    drift: τ², in shares squared a period, of all answers; if not given, that of each is weighed.
    Raises ValueError for a drift of 0 or less, for fewer than two times that can be estimated, and for more than
    MOST_TIMES.
    """

    retrospective: bool = True
    drift: float | None = None

    def __post_init__(self) -> None:
        if self.drift is not None and not self.drift > 0:
            raise ValueError(f"a drift is above 0, got {self.drift}")
        if len(self.times) < 2:
            raise ValueError("a drift takes at least two periods that have closed")
        if len(self.times) > MOST_TIMES:
            raise ValueError(
                f"smoothing takes matrices over all periods, at most {MOST_TIMES:,}, got {len(self.times):,}: "
                "ask for the retrospective estimates, or choose wider periods"
            )

    @cached_property
    def times(self) -> Indices:
        """The times whose histograms can be estimated, shape (m,)."""
        there = self.network.components == self.network.components[0]
        there[int(self.network.end.max(initial=0)) + 1 :] = False
        return np.flatnonzero(there)[1:]

    @property
    def everybody_reports(self) -> bool:
        """False: what entries have in common hangs on the weights of smoothed histograms."""
        return False

    @cached_property
    def drifts(self) -> Floats:
        """τ² of each answer, as it is used, in shares squared a period, shape (z,)."""
        drifts: Floats = self._noise.drifts[self._used_drift]
        return drifts

    @cached_property
    def errors(self) -> Floats:
        """The mean squared error of each smoothed histogram beyond its noise, shape (m, z), in entries squared.

        It is the expected square of the bias, and how far the histogram hangs on which τ² is right.
        """
        noise, weights, shares = self._noise, self._weights, self._shares
        error, mean, square = np.zeros_like(shares), np.zeros_like(shares), np.zeros_like(shares)
        moved = noise.along @ shares
        for weight, errors, drift in zip(weights, noise.errors, noise.drifts, strict=True):
            smoothed = noise.back @ (moved / (noise.eigenvalues + drift)[:, None])
            error += errors[:, None] * weight
            mean += smoothed * weight
            square += smoothed**2 * weight
        used = (noise.errors - noise.biases)[self._used_drift].T
        least = noise.biases[self._used_drift].T
        beyond: Floats = np.maximum(error - used, least) + np.maximum(square - mean**2, 0.0)
        return beyond * self._entries[:, None] ** 2

    def parts(self, times: Indices) -> list[tuple[NDArray[np.bool_], Floats]]:
        """The weights of nodes in the smoothed histograms at some of the times, shape (k, E), by τ².

        Beside them of which answers they are, shape (z,).
        """
        at, entries = np.searchsorted(self.times, times), self._entries
        listed = []
        for used in np.unique(self._used_drift).tolist():
            weights = self._noise.smoother(used)[at] * (entries[at][:, None] / entries)
            listed.append((self._used_drift == used, weights @ self._rows))
        return listed

    def used(self, plus: int, minus: int = 0) -> tuple[UsedNode, ...]:
        """All nodes: each has a weight in every smoothed histogram. Raises NotEstimable as `row` does."""
        self.row(plus, minus)
        return self.releases.nodes

    def estimate(self, plus: int, minus: int = 0) -> Estimate:
        """The smoothed histogram at a time, with the covariance of its noise and, on the diagonal, of its bias.

        Raises NotEstimable as the unbiased one does, ValueError for a change over a window.
        """
        if minus:
            raise ValueError("changes are not smoothed")
        self.row(plus)  # raises NotEstimable
        parts = [(answers, rows[0]) for answers, rows in self.parts(np.array([plus]))]
        alone = [self._weighed(row, plus, 0) for _, row in parts]
        values, covariance = np.empty_like(alone[0].values), np.empty_like(alone[0].covariance)
        for (answers, row), one in zip(parts, alone, strict=True):
            values[answers] = one.values[answers]
            for others, other in parts:
                between = one.covariance
                if other is not row:  # of a quadratic form the product
                    half, off = (self._weighed(each / 2, plus, 0).covariance for each in (row + other, row - other))
                    between = half - off
                covariance[np.ix_(answers, others)] = between[np.ix_(answers, others)]
        beyond = self.errors[np.searchsorted(self.times, plus)]
        columns = [answers for answers, _ in parts]

        def law() -> VarianceCurve:
            return joined([one.curve() for one in alone], columns).plus(beyond)

        return Estimate(values, covariance + np.diag(beyond), any(one.upper_bound for one in alone), law)

    def estimates(self, until: int) -> list[Estimate | None]:
        """The smoothed histograms at the times 1 to `until`; None for one that is not estimable."""
        there = set(self.times.tolist())
        return [self.estimate(time) if time in there else None for time in range(1, until + 1)]

    @cached_property
    def _rows(self) -> Floats:
        """The weights of nodes in the unbiased histograms at all times, shape (m, E)."""
        return np.array([row.copy() for _, row in self.histogram_rows(int(self.times[-1]))])

    @cached_property
    def _entries(self) -> Floats:
        """How many entries a share is of at each time, shape (m,)."""
        enrolment = self.releases.enrolment
        entries: Floats = enrolment.scales[self.network.periods] * enrolment.stands_for[self.times]
        return entries

    @cached_property
    def _shares(self) -> Floats:
        """p̂, shape (m, z)."""
        shares: Floats = self._rows @ self.releases.changes / self._entries[:, None]
        return shares

    @cached_property
    def _expected(self) -> float:
        """τ² if entries change independently, as often as the designer expects."""
        survey, periods = self.releases.survey, np.arange(1, max(2, self.network.periods), dtype=np.intp)
        each = change_variances(len(survey.answers), survey.expected, periods, periods + 1).mean()
        return max(float(each) / float(self.releases.enrolment.stands_for[-1]), 1e-12)

    @cached_property
    def _noise(self) -> _Noise:
        at, enrolment, survey = np.ix_(self.times, self.times), self.releases.enrolment, self.releases.survey
        m = enrolment.stands_for[self.times]
        if self._best is None:
            sources = np.eye(self.network.periods + 1)
            noise = self.network.potentials(sources)[at] / np.outer(m, m)
        else:
            heard = float(np.median(enrolment.heard[enrolment.heard > 0]))
            variety = expected_moments(len(survey.answers), survey.expected, survey.calendar.periods).centred
            noise = self._best.planned[at] / heard - variety[at] / m[-1]
        drifts: Floats = self._expected * DRIFTS if self.drift is None else np.array([self.drift])
        return _Noise.of(noise, self.times, drifts)

    @cached_property
    def _weights(self) -> Floats:
        """How probable each τ² is for each answer, shape (J, z)."""
        noise = self._noise
        believed = -0.5 * (np.log(noise.drifts / self._expected) / BELIEF) ** 2
        weighed = noise.likelihoods(self._shares) + believed[:, None]
        weights = np.exp(weighed - weighed.max(0))
        normed: Floats = weights / weights.sum(0)
        return normed

    @cached_property
    def _used_drift(self) -> Indices:
        """The τ² that is used for each answer, the mean of its logarithm, shape (z,)."""
        return np.rint(np.arange(len(self._weights)) @ self._weights).astype(np.intp)


def joined(curves: list[VarianceCurve], columns: list[NDArray[np.bool_]]) -> VarianceCurve:
    """One curve whose answers are of several; columns: the answers of each, shape (z,)."""
    first = [part.copy() for part in curves[0].parts]
    for curve, mine in zip(curves, columns, strict=True):
        for part, other in zip(first, curve.parts, strict=True):
            part[..., mine] = other[..., mine]
    return VarianceCurve(*first)
