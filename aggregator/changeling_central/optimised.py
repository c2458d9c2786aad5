"""Levels read off the best matrix that a search finds: changes, levels and all between, for short calendars.

Guarantee: epsilon, or with Gaussian noise (epsilon, delta) or rho-zCDP, for all periods together, for an entry that
keeps to the constraint; neighbours: as for DCR. The curator knows the true changes x. They are measured as C x + z, C
of `best_factorisation`, and what is published is A x + A C⁻¹ z: z owes nothing to the data and is drawn with the first
period. With Laplace noise it holds for streams that react to what is published, as a tree drawn ahead does. With
Gaussian noise C is triangular, so period t adds one draw to a number that is known by then, and it holds as the square
root does.

Nothing is lost to floating point: C is of whole numbers, what an entry moves is listed and exact, and C⁻¹ z is solved
in whole numbers (`solved`). The state holds the true level and the noise to come, so keep it where the changelog is.

How C is found. With noise of scale 1 the levels' mean variance is ‖A C⁻¹‖²/T, times the square of what an entry moves
C x by at most: in its length where noise is Gaussian, in its sum of sizes where it is Laplace's. Changes (C = 1), fresh
levels (C = A), trees and the square root are all of this kind. *Gaussian*: the least over all C is a convex problem in
M = CᵀC, and any law over what entries do bounds it from below: with S the mean of x xᵀ, no C errs less than
‖A S^½‖_*², the sum of singular values squared. The law is raised where M = Aᵀ (A S Aᵀ)^-½ A sees an entry move most,
until both are as near as NEAR. *Laplace*: a search from few starts, whose end may be improved; it is bounded by the
same figure, and by one of independent levels. Proofs: docs/mathematics.md, "Searched matrices". Reads no data.
Source: Li, Hay, Rastogi, Miklau, McGregor 2010 (matrix mechanisms); Denisov, McMahan, Rush, Smith, Thakurta 2022.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, islice, pairwise, product
from math import ceil, ldexp, log2, sqrt

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Counts, Floats
from threadpoolctl import threadpool_limits

from .ahead import BITS, TAILS, NoiseAhead
from .errors import BadState
from .linear_query import COUNTED, Corner, LinearQuery, Reach, corners_of, reaches
from .mechanism import check_counted
from .noise import ABOVE, Law, NodeNoise, Noise, float_above
from .square_root import LATTICE_BITS

MOST_PERIODS = {Law.GAUSSIAN: 64, Law.LAPLACE: 32}
MOST_PRODUCTS = {Law.GAUSSIAN: 4e7, Law.LAPLACE: 8e6}
"""Products in C x, over all that an entry may do: a search takes about five seconds at most."""
LARGEST = 2**14
"""The largest coefficient: all are whole numbers, so what an entry moves is known exactly."""
EXACT = 2.0**50
"""Sums of whole numbers up to this are exact in floating point."""
NEAR, MOST_STEPS = 1.001, 400
"""Of the Gaussian search: how near to its bound it ends, as a ratio of mean variances, or after how many steps."""
STAGES = ((20, 1e-2), (60, 3e-3), (60, 3e-3), (200, 1e-3), (200, 1e-3), (800, 2e-4), (800, 2e-4), (3000, 5e-5))
"""Of the Laplace search: how sharply the largest sum of sizes, and a size at 0, are rounded off."""
SEARCH = {"maxiter": 400, "maxcor": 20}
ACTIVE = 3000
"""Of what an entry may do, as much as the Laplace search looks at at a time: what moves most."""
SEED, SMALL = 8, 2**13
"""Of the random start of the Laplace search, which there is up to so many numbers."""


@dataclass(frozen=True, slots=True)
class Moved:
    """How far an entry moves what is measured.

    ways: all that it may do, in parts of `size`: its changes by column and period, whole numbers, shape (n, w, T).
    size: what one part moves by, in units; with Gaussian noise its square.
    """

    ways: Floats
    size: int

    def most(self, coefficients: Counts, law: Law) -> int:
        """The most over all ways: the sum of sizes, or with Gaussian noise the squared length; exact up to EXACT, else
        rounded up."""
        moved = self.ways @ coefficients.T.astype(np.float64)
        each = (moved**2 if law is Law.GAUSSIAN else np.abs(moved)).sum((1, 2))
        most = float(each.max())
        return self.size * (int(most) if most < EXACT else ceil(most * ABOVE))


@dataclass(frozen=True, slots=True, eq=False)
class Factorisation:
    """coefficients: C, whole numbers of at most LARGEST, shape (T, T); with Gaussian noise 0 above the diagonal.

    least: no matrix has a lower mean variance of levels than this, in units squared, with noise that costs an entry 1:
    of epsilon, or of scales that it is moved by. What is measured beside it is of noise as fine as real numbers.
    """

    coefficients: Counts
    least: float


@lru_cache(maxsize=64)
def moved_by(query: LinearQuery, calendar: Calendar, constraint: Constraint, law: Law) -> Moved:
    """All that an entry can do that keeps to the constraint.

    ValueError where that is too much to be listed, or is not known.
    """
    T, size = calendar.periods, 1
    found: list[Floats] = []
    if MOST_PERIODS[law] < T:
        raise ValueError(f"a matrix is searched for calendars of up to {MOST_PERIODS[law]} periods, got {T}")
    classes = reaches(constraint, calendar)
    # The columns that entries of some class reach are listed for all, so that what every class does has one shape.
    _, corners = corners_of(query, min(T, max(reach.periods for reach in classes)))
    if not corners:
        raise ValueError("a matrix is searched where it is known what an entry may count for")
    if query.fixed:
        size = query.extent.appears[law is Law.GAUSSIAN]
    elif corners == COUNTED:
        size = max(*query.appearing, *query.moving) ** (1 + (law is Law.GAUSSIAN))
    for reach in classes:
        most = int(MOST_PRODUCTS[law] / (T * T * len(corners[0])))
        listed = list(islice(_ways(corners, reach, T), most + 1))
        if len(listed) > most:
            raise ValueError(f"entries can do too much over {T} periods for a matrix to be searched")
        found.append(np.array(listed, np.float64))
    ways = np.unique(_alike(np.concatenate(found)), axis=0)
    ways.flags.writeable = False
    return Moved(ways, size)


def _alike(ways: Floats) -> Floats:
    """The same ways, where those that move every C x alike are equal: columns change places and signs."""
    count, width, T = ways.shape
    columns = ways.reshape(-1, T)
    first = np.take_along_axis(columns, (columns != 0).argmax(1)[:, None], 1)
    alike: Floats = np.where(first < 0, -columns, columns).reshape(count, width, T)
    order = np.lexsort(alike.transpose(2, 0, 1)[::-1], axis=1)
    return np.take_along_axis(alike, order[:, :, None], 1)


def _ways(corners: tuple[Corner, ...], reach: Reach, periods: int) -> Iterator[Floats]:
    """The changes of an entry that goes from nobody through the corners, shape (w, T), for each way and time."""
    nobody = (0,) * len(corners[0])
    states = np.array([nobody, *(corner for corner in corners if any(corner))])
    for mutations in range(1, min(reach.periods, periods) + 1):
        held = [way for way in product(range(len(states)), repeat=mutations) if _moves(way)]
        jumps = [np.diff(states[[0, *way]], axis=0).T for way in held]
        for times in combinations(range(periods), mutations):
            if times[-1] - times[0] <= reach.span:
                for jump in jumps:
                    x = np.zeros((len(nobody), periods))
                    x[:, times] = jump
                    yield x


def _moves(way: tuple[int, ...]) -> bool:
    return all(before != after for before, after in pairwise((0, *way)))


@lru_cache(maxsize=64)
def best_factorisation(query: LinearQuery, calendar: Calendar, constraint: Constraint, law: Law) -> Factorisation:
    """The matrix of the least mean variance that is found. ValueError where none is searched, as of `moved_by`."""
    import scipy.optimize  # noqa: F401  # late, as it loads slowly; now, as only what is loaded is limited

    moved = moved_by(query, calendar, constraint, law)
    with threadpool_limits(1):  # matrices are small
        M, least = _least_squares(moved.ways)
        if law is Law.GAUSSIAN:
            C = np.asarray(np.linalg.cholesky(M[::-1, ::-1])[::-1, ::-1].T, np.float64)
            return Factorisation(_whole(C), least * moved.size)
        found = _least_sizes(moved.ways)
    least = max(2 * least, _independent_levels(query, calendar, constraint)) * moved.size**2
    return Factorisation(_whole(found), least)


def _whole(C: Floats) -> Counts:
    whole: Counts = np.rint(C * (LARGEST / np.abs(C).max())).astype(np.int64)
    whole.flags.writeable = False
    return whole


def _least_squares(ways: Floats) -> tuple[Floats, float]:
    """M = CᵀC of Gaussian noise, and what the mean variance cannot be below where an entry is moved by at most 1."""
    count, _, T = ways.shape
    A, flat = np.tril(np.ones((T, T))), ways.reshape(-1, T)
    law, best, least = np.full(count, 1 / count), (np.inf, np.eye(T)), 0.0
    for _ in range(MOST_STEPS):
        S = flat.T @ (np.repeat(law, len(flat) // count)[:, None] * flat)
        squares, directions = np.linalg.eigh(A @ S @ A.T)
        roots = np.sqrt(np.maximum(squares, 1e-15))
        M = A.T @ (directions / roots @ directions.T) @ A
        moves = ((flat @ M) * flat).sum(1).reshape(count, -1).sum(1)
        total, most = float(roots.sum()), float(moves.max())
        least = max(least, total**2)
        if total * most < best[0]:
            best = total * most, M / most
        if best[0] <= NEAR * least:
            break
        law = law * (moves / total) ** 2
        law /= law.sum()
    return best[1], least / T


def _independent_levels(query: LinearQuery, calendar: Calendar, constraint: Constraint) -> float:
    """A lower bound on the mean variance with Laplace noise, for a count whose entries come and go as coins fall.

    An entry is there or not in each of k blocks of periods, by a coin for each.
    """
    T, k = calendar.periods, max(min(reach.periods, calendar.periods) for reach in reaches(constraint, calendar))
    anywhere = any(reach.periods >= k and reach.span >= T - 1 for reach in reaches(constraint, calendar))
    if not anywhere or corners_of(query, k)[1] != COUNTED:
        return 0.0
    block = np.arange(T) * k // T
    S = (1 + (block[:, None] == block)) / 4
    squares = np.maximum(np.linalg.eigvalsh(S), 0.0)
    return float((squares ** (1 / 3)).sum() ** 3) / T


def _least_sizes(ways: Floats) -> Floats:
    """C of Laplace noise, by a search from fresh levels, and where entries can do little from a random one too."""
    T = ways.shape[2]
    random = np.random.default_rng(SEED)
    starts = [np.tril(np.ones((T, T))) / T + 0.003 * random.normal(size=(T, T))]
    starts += [0.1 * random.normal(size=(T, T)) for _ in range(ways.size <= SMALL)]
    return min((_searched(ways, start) for start in starts), key=lambda C: _error(C, _sums(ways, C)))


def _sums(ways: Floats, C: Floats) -> Floats:
    sums: Floats = np.abs(ways @ C.T).sum((1, 2))
    return sums


def _error(C: Floats, sums: Floats) -> float:
    return float((np.linalg.inv(C).cumsum(0) ** 2).sum() * sums.max() ** 2)


def _searched(ways: Floats, start: Floats) -> Floats:
    """The best matrix on the way of a descent that rounds edges off less and less."""
    from scipy.optimize import minimize

    T = len(start)
    sums = _sums(ways, start)
    best, C = (_error(start, sums), start), start
    for sharp, near in STAGES:
        active = ways[np.argsort(-sums)[:ACTIVE]].reshape(-1, T)
        columns = ways.shape[1]

        def figure(flat: Floats, active=active, sharp=sharp, near=near, columns=columns) -> tuple[float, Floats]:  # type: ignore[no-untyped-def]
            C = flat.reshape(T, T)
            inverse = np.linalg.inv(C)
            levels = inverse.cumsum(0)
            total = float((levels**2).sum())
            moved = active @ C.T
            rounded = np.sqrt(moved**2 + near**2)
            of_way = rounded.sum(1).reshape(-1, columns).sum(1)
            weight = np.exp(sharp * (of_way - of_way.max()))
            most = of_way.max() + np.log(weight.sum()) / sharp
            shared = np.repeat(weight / weight.sum(), columns)[:, None]
            slope = 2 * (moved / rounded * shared).T @ active / most - 2 * (inverse @ levels.T @ levels).T / total
            return np.log(total) + 2 * np.log(most), slope.ravel()

        scaled = (C / sums.max()).ravel()
        C = minimize(figure, scaled, jac=True, method="L-BFGS-B", options=SEARCH).x.reshape(T, T)
        sums = _sums(ways, C)
        best = min(best, (_error(C, sums), C), key=lambda found: found[0])
    return best[1]


# What is measured, undone exactly


def solved(coefficients: Counts, z: Counts, bits: int, shift: int) -> Counts:
    """C⁻¹ z in whole parts of 2^-bits, C being the coefficients times 2^shift; each rounded, halves upwards.

    In whole numbers throughout, so C x added to z adds x 2^bits to it, exactly. With 0 above the diagonal, what it
    is at a period depends on z until then alone. z: shape (T, w).
    """
    T, before = len(coefficients), 1
    rows = np.concatenate([coefficients, np.eye(T, dtype=np.int64)], 1).astype(object)
    for i in range(T):  # after Bareiss 1968: every division is exact
        pivot = next(j for j in range(i, T) if rows[j, i])
        rows[[i, pivot]] = rows[[pivot, i]]
        others = np.arange(T) != i
        rows[others] = (rows[others] * rows[i, i] - np.outer(rows[others, i], rows[i])) // before
        before = rows[i, i]
    inverse = rows[:, T:] if before > 0 else -rows[:, T:]  # times the determinant
    whole, least = (inverse @ z.astype(object)) << (bits + 1), abs(before) << shift
    parts: Counts = ((whole + least) // (2 * least)).astype(np.int64)
    return parts


@dataclass(frozen=True, slots=True)
class Optimised(NoiseAhead):
    """Made by `optimised`. matrix: the coefficients of C, two bytes each; with Gaussian noise those until the diagonal.

    shift: C is the coefficients times 2^shift. scale: of a draw of z.
    """

    kind = "optimised"
    source = "Li, Hay, Rastogi, Miklau, McGregor 2010; with Gaussian noise Denisov et al. 2022"
    query: LinearQuery
    calendar: Calendar
    law: Law = field()
    matrix: bytes
    shift: int
    scale: float
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None = None

    def __post_init__(self) -> None:
        """BadState for coefficients of another calendar, or that cannot be undone."""
        T = self.calendar.periods
        of_law = T * (T + 1) // 2 if self.law is Law.GAUSSIAN else T * T
        if len(self.matrix) != 2 * of_law or abs(np.linalg.slogdet(self.coefficients)[0]) != 1:
            raise BadState(f"no matrix over {T} periods")

    @property
    def noise_in_words(self) -> str:
        """The law, and how many combinations of changes draws are added to."""
        return f"{self.kind}; law {self.law}, {self.calendar.periods} combinations of the changes, drawn ahead"

    @property
    def coefficients(self) -> Counts:
        """Of C, shape (T, T)."""
        return matrix_of(self.matrix, self.calendar.periods, self.law)

    @property
    def together(self) -> int:
        """All periods: their noise is drawn with the first one's."""
        return self.calendar.periods

    @property
    def bits(self) -> int:  # type: ignore[override]
        """Into how many halves a unit is cut, one after another, so that sums of the noise stay below 2^62."""
        largest = sqrt(float(self.covariance.diagonal().max()))
        return min(BITS, 62 - ceil(log2(max(largest, 1.0) * TAILS)))

    @property
    def covariance(self) -> Floats:
        """Covariance of a column's levels, shape (T, T), in units squared."""
        return covariance_of(self.matrix, self.calendar.periods, self.law, self.shift, self.scale)

    def costs_at_most(self, length: float, constraint: Constraint) -> bool:
        """Check that no entry that keeps to the constraint costs more than epsilon, or moves C x by more than `length`
        scales of Gaussian noise."""
        moved = moved_by(self.query, self.calendar, constraint, self.law)
        most = moved.most(self.coefficients, self.law)
        if self.law is Law.LAPLACE:
            return Fraction(most) / Fraction(self.scale) <= self.epsilon
        return ldexp(sqrt(most), self.shift) * ABOVE <= length * self.scale

    def drawn(self, period: int, noise: Noise) -> Counts:  # noqa: ARG002
        """The noise of the changes of all periods, shape (T, w), in parts of a unit."""
        T, width = self.calendar.periods, self.query.width
        z = NodeNoise(self.law, self.scale).draw(noise, T * width).reshape(T, width)
        return solved(self.coefficients, z, self.bits, self.shift)

    def variance(self, step: int) -> float:
        """Variance of each column's level at the end of this period, in units squared."""
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
    check_counted(query)
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
