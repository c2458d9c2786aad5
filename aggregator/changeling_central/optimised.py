"""Levels read off the best matrix that a search finds: changes, levels and all between, for short calendars.

Guarantee: epsilon, or with Gaussian noise (epsilon, delta) or rho-zCDP, for all periods together, for an entry that
keeps to the constraint; neighbours: as for DCR. The curator knows the true changes x. They are measured as C x + z, C
of `best_factorisation`, and what is published is A x + A C⁻¹ z: z owes nothing to the data and is drawn with the first
period. With Laplace noise it holds for streams that react to what is published, as a tree drawn ahead does. With
Gaussian noise C is triangular, so period t adds one draw to a number that is known by then, and it holds as the square
root does.

Nothing is lost to floating point: C is of whole numbers, what an entry moves is listed and exact, and C⁻¹ z is solved
in whole numbers (`solved`). The state holds the true level and the noise to come, so keep it where the changelog is.
Source: Li, Hay, Rastogi, Miklau, McGregor 2010 (matrix mechanisms); Denisov, McMahan, Rush, Smith, Thakurta 2022.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, ldexp, log2, sqrt

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Counts, Floats

from .ahead import BITS, TAILS, NoiseAhead
from .errors import BadState
from .factorisation import best_factorisation, laplace_loss, moved_by, solved
from .linear_query import LinearQuery
from .mechanism import NEIGHBOURS, Guarantee
from .noise import Law, NodeNoise, Noise, float_above
from .square_root import ABOVE, LATTICE_BITS

SOURCE = "Li, Hay, Rastogi, Miklau, McGregor 2010; with Gaussian noise Denisov et al. 2022"


@dataclass(frozen=True, slots=True)
class Optimised(NoiseAhead):
    """Made by `optimised`. coefficients: of C, two bytes each; with Gaussian noise those until the diagonal.

    shift: C is the coefficients times 2^shift. scale: of a draw of z. epsilon, delta: what all periods cost an entry.
    """

    query: LinearQuery
    calendar: Calendar
    law: Law
    coefficients: bytes
    shift: int
    scale: float
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        """BadState for coefficients of another calendar, or that cannot be undone."""
        T = self.calendar.periods
        of_law = T * (T + 1) // 2 if self.law is Law.GAUSSIAN else T * T
        if len(self.coefficients) != 2 * of_law or abs(np.linalg.slogdet(self.matrix)[0]) != 1:
            raise BadState(f"no matrix over {T} periods")

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for all periods together."""
        return Guarantee(self.epsilon, self.delta, NEIGHBOURS, SOURCE)

    @property
    def matrix(self) -> Counts:
        """The coefficients of C, shape (T, T)."""
        return matrix_of(self.coefficients, self.calendar.periods, self.law)

    @property
    def together(self) -> int:
        """All periods: their noise is drawn with the first one's."""
        return self.calendar.periods

    @property
    def bits(self) -> int:
        """Into how many halves a unit is cut, one after another, so that sums of the noise stay below 2^62."""
        largest = sqrt(float(self.covariance.diagonal().max()))
        return min(BITS, 62 - ceil(log2(max(largest, 1.0) * TAILS)))

    @property
    def covariance(self) -> Floats:
        """Of a column's levels, shape (T, T), in units squared."""
        return covariance_of(self.coefficients, self.calendar.periods, self.law, self.shift, self.scale)

    def costs_at_most(self, length: float, constraint: Constraint) -> bool:
        """Whether no entry that keeps to the constraint costs more than epsilon of Laplace noise; or moves what is
        measured by more than `length` scales of Gaussian noise."""
        moved = moved_by(self.query, self.calendar, constraint, self.law)
        if self.law is Law.LAPLACE:
            return laplace_loss(moved, self.matrix, self.scale) <= self.epsilon
        return ldexp(sqrt(moved.most(self.matrix, self.law)), self.shift) * ABOVE <= length * self.scale

    def drawn(self, period: int, noise: Noise) -> Counts:  # noqa: ARG002
        """The noise of the changes of all periods, shape (T, w), in parts of a unit."""
        T, width = self.calendar.periods, self.query.width
        z = NodeNoise(self.law, self.scale).draw(noise, T * width).reshape(T, width)
        return solved(self.matrix, z, self.bits, self.shift)

    def variance(self, step: int) -> float:
        """Of each column's level at the end of this period, in units squared."""
        return float(self.covariance[step - 1, step - 1])


@lru_cache(maxsize=16)
def matrix_of(coefficients: bytes, periods: int, law: Law) -> Counts:
    """The coefficients as a matrix, shape (periods, periods)."""
    whole = np.frombuffer(coefficients, "<i2").astype(np.int64)
    if law is Law.LAPLACE:
        return whole.reshape(periods, periods)
    matrix = np.zeros((periods, periods), np.int64)
    matrix[np.tril_indices(periods)] = whole
    return matrix


@lru_cache(maxsize=16)
def covariance_of(coefficients: bytes, periods: int, law: Law, shift: int, scale: float) -> Floats:
    """The covariance of the noise of a column's levels, shape (periods, periods), in units squared."""
    levels = np.linalg.inv(matrix_of(coefficients, periods, law).astype(np.float64)).cumsum(0)
    covariance: Floats = levels @ levels.T * ldexp(NodeNoise(law, scale).variance, -2 * shift)
    return covariance


def optimised(
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    length: float | None = None,
) -> Optimised:
    """The mechanism that costs an entry which keeps to the constraint at most epsilon, or (epsilon, delta).

    length: with Gaussian noise, by how many scales what is measured may move, of `told_apart` or `concentrated_length`;
    None for Laplace noise. ValueError for a query, a calendar or a constraint that no matrix is searched for, an
    epsilon that is none, and noise that is too small or too large.
    """
    if epsilon <= 0:
        raise ValueError(f"a budget has epsilon > 0, got {epsilon}")
    if not sum(query.appearing) + sum(query.moving):
        raise ValueError("the query counts nothing: no entry can change it")
    law = Law.LAPLACE if length is None else Law.GAUSSIAN
    matrix = best_factorisation(query, calendar, constraint, law).coefficients
    most = moved_by(query, calendar, constraint, law).most(matrix, law)
    if length is None:
        shift, scale = 0, float_above(most / epsilon)
        coefficients = matrix.astype("<i2").tobytes()
    else:
        rough = sqrt(most) / length
        shift = LATTICE_BITS - ceil(log2(rough))
        scale = ldexp(rough, max(shift, 0)) * ABOVE * ABOVE
        coefficients = matrix[np.tril_indices(len(matrix))].astype("<i2").tobytes()
        if shift < 0:
            raise ValueError("noise is too large for the lattice that it is drawn on: take a larger unit")
    made = Optimised(query, calendar, law, coefficients, shift, scale, epsilon, delta)
    if made.bits < 0:
        raise ValueError("noise is too large to be added up: take a larger unit")
    return made
