"""Noise for central releases: the laws, exact draws from them, and how much of it keeps a promise.

Draws are OpenDP's exact discrete samplers, from the operating system's generator; counts get integer noise, never a
float generator's. What an entry can do to a release is a count of shifts: so many independent draws, each moved by at
most so much. Pure epsilon from Laplace noise is Σ |shift| / scale, exactly; (epsilon, delta) comes from the
privacy-loss distribution of the shifted discrete laws, which both are log-concave, so that a smaller shift is never
told apart better. Concentrated privacy (zCDP) is a closed form, fast enough for very many draws, and somewhat dearer:

    rho-zCDP implies (epsilon, delta) for delta = min over α > 1 of
    exp((α - 1)(α·rho - epsilon) + α·ln(1 - 1/α)) / (α - 1)

How much Gaussian noise: a shift of length μ under normal noise of scale 1 is told apart by (Balle, Wang 2018, theorem
8)

    delta = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)

A normal draw rounded to whole numbers gives no more away. OpenDP draws the discrete Gaussian instead, whose logarithm
differs from the rounded one's by at most (r² + 1) / 8·scale² within r scales. At scales of 2^47 and above that is less
than `SLACK` over a million draws in a thousand columns, and the 2e^(-r²/2) beyond r = 14 less than `BEYOND`.

Losses are rounded up to a grid so fine that up to 1,000 draws together lose at most epsilon/200 by it, and a scale is
at most 0.5% larger for that. A calibration of up to 100 draws takes a tenth of a second to a whole one. Sources: Ghosh,
Roughgarden, Sundararajan 2009; Canonne, Kamath, Steinke 2020 (theorem 14 and proposition 12, which OpenDP computes
rounded up); dp-accounting's PLDs, rounded up.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Decimal, localcontext
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache, reduce
from math import ceil, exp, expm1, floor, inf, log, log10, nextafter, sqrt
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import numpy as np
from changeling_statistics import Counts
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from opendp.mod import Measurement

MOST_SCALE = 2.0**56
"""The sampler stops at 2^63, where noise would show what it hides; at this scale with probability below e^-127."""


class Noise(Protocol):
    """A source of independent integer noise. Mechanisms take it as an argument; tests may bring a list."""

    def laplace(self, scale: float, size: int) -> Counts:
        """`size` draws of the discrete Laplace law, Pr(x) ∝ exp(-|x| / scale); variance about 2·scale²."""
        ...

    def gaussian(self, scale: float, size: int) -> Counts:
        """`size` draws of the discrete Gaussian law, Pr(x) ∝ exp(-x² / (2·scale²)); variance about scale²."""
        ...


class OpenDPNoise:
    """The samplers of OpenDP (Ghazi et al. 2020; Canonne, Kamath, Steinke 2020): exact, and slow by design."""

    def laplace(self, scale: float, size: int) -> Counts:
        """Exact draws of the discrete Laplace law. ValueError for a scale that is none, or above 2^56."""
        return _drawn("laplace", scale, size)

    def gaussian(self, scale: float, size: int) -> Counts:
        """Exact draws of the discrete Gaussian law. ValueError for a scale that is none, or above 2^56."""
        return _drawn("gaussian", scale, size)


def _drawn(law: str, scale: float, size: int) -> Counts:
    _check_scale(law, scale)
    if size == 0:
        return np.zeros(0, np.int64)
    drawn: NDArray[np.int64] = np.array(_measurement(law, scale)([0] * size), dtype=np.int64)
    return drawn


def _check_scale(law: str, scale: float) -> None:
    if not 0 < scale <= MOST_SCALE:
        raise ValueError(f"the scale of {law} noise must be above 0 and at most 2^56, got {scale}")


@lru_cache(maxsize=256)
def _measurement(law: str, scale: float) -> "Measurement":
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))  # its plain int has 32 bits, and noise would stop at 2^31
    if law == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=scale)


LEAST = 16
"""Draws that are fetched first: of a law that is asked for once, few are for nothing."""


MOST_POOLS = 64
"""So many laws and scales are held at once."""


@dataclass(slots=True)
class Pool:
    """Draws of one law and scale; the first `used` of them were handed out, and are wiped."""

    draws: Counts
    used: int = 0


@dataclass(slots=True)
class PooledNoise:
    """Draws from `source` for each law and scale: as many as are asked for, then ever more, up to `batch` at a time."""

    source: Noise
    batch: int = 1024
    _pools: dict[tuple[str, float], Pool] = field(default_factory=dict, init=False)
    _process: int = field(default_factory=os.getpid, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def laplace(self, scale: float, size: int) -> Counts:
        """Draws of the discrete Laplace law that nobody was handed before."""
        return self._handed("laplace", self.source.laplace, scale, size)

    def gaussian(self, scale: float, size: int) -> Counts:
        """Draws of the discrete Gaussian law that nobody was handed before."""
        return self._handed("gaussian", self.source.gaussian, scale, size)

    def _handed(self, law: str, draw: Callable[[float, int], Counts], scale: float, size: int) -> Counts:
        if size > self.batch:
            return draw(scale, size)
        if self._process != os.getpid():  # a child process would repeat its parent's draws
            self._pools, self._process, self._lock = {}, os.getpid(), Lock()
        with self._lock:
            pool = self._pools.get((law, scale))
            if pool is None or pool.used + size > len(pool.draws):
                if pool is None and len(self._pools) >= MOST_POOLS:
                    self._pools.clear()
                grown = LEAST if pool is None else 4 * len(pool.draws)
                fetched = min(self.batch, max(size, grown))
                pool = self._pools[law, scale] = Pool(np.array(draw(scale, fetched), np.int64))
            begin = pool.used
            pool.used = end = begin + size
            handed = pool.draws[begin:end].copy()
            pool.draws[begin:end] = 0
        return handed


Shifts = Mapping[int, int]
"""By how much, and how many draws."""


class JointShifts(dict[int, int]):
    """Shifts that no entry causes all together, as its columns hang together.

    total: the most that Σ |shift| can be. squares: the most that Σ shift² can be. The privacy-loss distribution takes
    every draw as far as it may be shifted by itself, and so never counts too little.
    """

    __slots__ = ("squares", "total")

    def __init__(self, draws: Mapping[int, int], total: int, squares: int) -> None:
        super().__init__(draws)
        self.total, self.squares = total, squares


TOLERANCE = 1.001
"""A calibrated scale is at most this much larger than the least that the grid shows to be enough."""
GRID = 200
"""Losses are rounded up by at most an epsilon over this, over all draws; half of that on average."""
MOST_STEPS = 200_000
"""Of the grid in an epsilon: beyond 1,000 draws it grows coarser, for the sake of memory."""
STAGE = 64
"""More than eight times as many draws are composed by so many: dp-accounting cuts the tails of fewer more tightly."""
ROUNDING = 2.0**-53
"""What floating point may hide of delta, per draw: 50 times the largest error measured, with 10,000 draws."""
TRUNCATED = 2e-15
"""What dp-accounting adds to delta for cutting tails, per size of shift."""
TAIL = 1e-15
"""What it cuts off the tails of one composition."""
REACH = 12
"""Gaussian draws are followed to so many scales; the 1e-31 beyond count as told apart for certain."""


class Law(StrEnum):
    """Distributions of noise: discrete Laplace, or discrete Gaussian, which needs a delta above 0."""

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"


@dataclass(frozen=True, slots=True)
class NodeNoise:
    """Independent integer noise. scale: of the law, in units of the query: 1/epsilon for a shift by 1, if Laplace.

    ValueError for a scale that no sampler draws at, so that it is refused before anything is charged.
    """

    law: Law
    scale: float

    def __post_init__(self) -> None:
        _check_scale(self.law, self.scale)

    def draw(self, noise: Noise, size: int) -> Counts:
        """`size` independent draws from the source, shape (size,), in units."""
        return noise.laplace(self.scale, size) if self.law is Law.LAPLACE else noise.gaussian(self.scale, size)

    @property
    def variance(self) -> float:
        """Variance of one draw: 2p/(1-p)², p = e^(-1/scale), or the discrete Gaussian's own sum."""
        if self.law is Law.LAPLACE:
            return 2 * exp(-1 / self.scale) / expm1(-1 / self.scale) ** 2
        return _gaussian_variance(self.scale)

    def epsilon(self, shifts: Shifts) -> Fraction:
        """Pure epsilon of Laplace noise. ValueError for Gaussian noise, which has none."""
        if self.law is not Law.LAPLACE:
            raise ValueError("Gaussian noise gives no pure epsilon")
        return total(shifts) / Fraction(self.scale)

    def delta(self, shifts: Shifts, epsilon: float) -> float:
        """The least delta at this epsilon, rounded up by the PLD's grid and by what floating point may hide.

        Where concentrated privacy shows less, for very many draws, that.
        """
        shown = _delta(self.law, self.scale, tuple(sorted(shifts.items())), epsilon)
        return min(shown, implied_delta(_squares(shifts) / (2 * self.scale**2), epsilon))


REACHING = {Law.LAPLACE: 2.2, Law.GAUSSIAN: 1.96}
"""Standard errors that a 95% interval reaches to either side: Laplace noise has the wider tails."""


def interval(estimate: float, error: float, law: Law = Law.LAPLACE, step: float = 1.0) -> tuple[float, float]:
    """The ends of an interval that holds the truth 95 times of 100 or more, by the noise alone.

    estimate: a sum of independent draws with known weights, added to the truth. error: its standard error. law: of
    the draws. step: what one unit of the noise is worth, of which half is added as noise is whole.

    >>> interval(100.0, 10.0)
    (77.5, 122.5)
    """
    reach = REACHING[law] * error + step / 2
    return estimate - reach, estimate + reach


def calibrated(shifts: Shifts, epsilon: Fraction, delta: Fraction = Fraction(0), law: Law = Law.LAPLACE) -> NodeNoise:
    """The least noise of this law under which the shifts cost at most (epsilon, delta).

    shifts: how many draws one entry shifts by how much, over the whole release.
    ValueError if nothing is shifted, for a budget that is none, for Gaussian noise with delta = 0, and for a delta too
    small to be told from what floating point hides.
    """
    if epsilon <= 0 or not 0 <= delta < 1:
        raise ValueError(f"a budget has epsilon > 0 and 0 <= delta < 1, got {epsilon} and {delta}")
    if not total(shifts):
        raise ValueError("the query counts nothing: no entry can change it")
    if law is Law.GAUSSIAN and delta == 0:
        raise ValueError("Gaussian noise needs a delta above 0")
    pure = float_above(total(shifts) / epsilon) if law is Law.LAPLACE else inf
    if delta == 0:
        return NodeNoise(law, pure)
    least = least_delta(shifts)
    if delta < least:
        raise ValueError(f"with these {_draws(shifts)} draws delta can be accounted for from {least:.1e}, got {delta}")
    # rho = Σ shift² / 2 scale² of either law: Bun, Steinke 2016, proposition 1.4; Canonne et al. 2020, theorem 4
    concentrated = gaussian_scale(_squares(shifts), concentrated_budget(epsilon, delta))
    return _bisected(shifts, float(epsilon), float(delta), law, min(pure, concentrated))


def least_delta(shifts: Shifts) -> float:
    """The least delta above 0 that can be accounted for; at this one errors take a quarter, 0.6% of the scale."""
    return 4 * (ROUNDING * _draws(shifts) + TRUNCATED * len(shifts))


def added(shifts: Iterable[Shifts]) -> JointShifts:
    """The shifts of several releases that an entry reaches one after another."""
    together: dict[int, int] = {}
    sums, squares = 0, 0
    for cadence in shifts:
        sums, squares = sums + int(total(cadence)), squares + _squares(cadence)
        for shift, count in cadence.items():
            together[shift] = together.get(shift, 0) + count
    return JointShifts(together, sums, squares)


def total(shifts: Shifts) -> Fraction:
    """Σ |shift|: the L1 sensitivity of the whole release."""
    if isinstance(shifts, JointShifts):
        return Fraction(shifts.total)
    return Fraction(sum(shift * count for shift, count in shifts.items()))


def _draws(shifts: Shifts) -> int:
    return sum(shifts.values())


def _squares(shifts: Shifts) -> int:
    if isinstance(shifts, JointShifts):
        return shifts.squares
    return sum(shift**2 * count for shift, count in shifts.items())


def _bisected(shifts: Shifts, epsilon: float, delta: float, law: Law, most: float) -> NodeNoise:
    """most: a scale that is known to be enough."""

    def enough(scale: float) -> bool:
        return NodeNoise(law, scale).delta(shifts, epsilon) <= delta

    high, low = most, most / sqrt(2)
    while enough(low) and low > 1e-3:
        low, high = low / sqrt(2), low
    while high / low > TOLERANCE:
        middle = sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return NodeNoise(law, high)


@lru_cache(maxsize=1024)
def _delta(law: Law, scale: float, shifts: tuple[tuple[int, int], ...], epsilon: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld

    draws, spread = _draws(dict(shifts)), sqrt(_squares(dict(shifts))) / scale
    grid = max(epsilon, spread) / min(GRID * draws, MOST_STEPS)

    def composed(shift: int, count: int) -> pld.PrivacyLossDistribution:
        single = (
            pld.from_discrete_laplace_mechanism(1 / scale, shift, value_discretization_interval=grid)
            if law is Law.LAPLACE
            else pld.PrivacyLossDistribution(_gaussian_losses(scale, shift, grid))
        )
        return _repeated(single, count)

    every = reduce(pld.PrivacyLossDistribution.compose, (composed(shift, count) for shift, count in shifts))
    return float(every.get_delta_for_epsilon(epsilon)) + ROUNDING * draws


def _repeated(single: "PrivacyLossDistribution", count: int) -> "PrivacyLossDistribution":
    """A PLD composed with itself, by stages; each cuts no more off the tails than dp-accounting does at once."""
    stages, rest = divmod(count, STAGE)
    if stages < 8:
        return single.self_compose(count)
    staged = _repeated(single.self_compose(STAGE, TAIL / stages), stages)
    return staged.compose(single.self_compose(rest)) if rest else staged


def _gaussian_losses(scale: float, shift: int, grid: float) -> "DensePLDPmf":
    """Losses s(s + 2x) / 2 scale² of whole x, rounded up: as dp-accounting's own, which takes a microsecond an x."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    reach = ceil(REACH * scale)
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-((x / scale) ** 2) / 2)
    cells = np.ceil(shift * (shift + 2 * x) / (2 * scale**2 * grid)).astype(np.int64)
    beyond = 2 * exp(-(REACH**2) / 2)
    return DensePLDPmf(grid, int(cells[0]), np.bincount(cells - cells[0], weights / weights.sum()), beyond, True)


@lru_cache(maxsize=256)
def _gaussian_variance(scale: float) -> float:
    if scale > 4:
        return scale**2  # to the last digit of a float
    x = np.arange(-64, 65)
    weights = np.exp(-(x**2) / (2 * scale**2))
    return float((weights * x**2).sum() / weights.sum())


def float_above(exact: Fraction) -> float:
    """The least float that is no less."""
    near = float(exact)
    return near if Fraction(near) >= exact else nextafter(near, inf)


ABOVE = 1 + 1e-9
"""What a scale is raised by, to stand above all rounding of its computation."""
CLOSE = 1e-10
"""Relative: how near to the largest rho the search ends."""
LEAST_DELTA = 1e-300
"""Floating point knows no smaller ones."""
CERTAIN = 500.0
"""So far beyond epsilon a rho implies nothing."""


@lru_cache(maxsize=4096)
def concentrated_budget(epsilon: Fraction, delta: Fraction) -> float:
    """A rho such that rho-zCDP implies (epsilon, delta), within a relative 1e-9 of the largest.

    ValueError unless epsilon > 0 and 0 < delta < 1.
    """
    if epsilon <= 0 or not 0 < delta < 1:
        raise ValueError(f"concentrated privacy needs epsilon > 0 and 0 < delta < 1, got {epsilon} and {delta}")
    if delta < LEAST_DELTA:
        raise ValueError(f"delta {float(delta):g} is too small for Gaussian noise")
    stated, enough = float_below(epsilon), _closed_form_budget(epsilon, delta)
    times, _ = _threshold(lambda times: implied_delta(times * enough, stated) > delta, 2.0, CLOSE)
    return times * enough


def implied_delta(rho: float, epsilon: float) -> float:
    """The least delta that rho-zCDP is known to imply at this epsilon, rounded up; at most 1."""
    if rho > epsilon + CERTAIN:  # delta is 1 to the last digit, and OpenDP's exponentials overflow
        return 1.0
    return min(1.0, _delta_of()(sqrt(2 * rho) * ABOVE, epsilon))


def concentrated_epsilon(rho: float, delta: float) -> float:
    """The least epsilon at this delta that rho-zCDP is known to imply, rounded up. ValueError unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise ValueError(f"concentrated privacy implies an epsilon at a delta between 0 and 1, got {delta}")
    bound = rho + 2 * sqrt(rho * -log(delta))
    return _threshold(lambda epsilon: implied_delta(rho, epsilon) <= delta, bound, CLOSE)[1]


def _threshold(reached: Callable[[float], bool], high: float, near: float) -> tuple[float, float]:
    """Two numbers, relatively as near as that, of which the first does not reach what the second does.

    high: where the search begins, above 0.
    """
    low = 0.0
    while not reached(high):
        low, high = high, 2 * high
    while high - low > near * max(high, near):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return low, high


def pure_epsilon(rho: Fraction) -> Fraction:
    """An epsilon of ten digits such that epsilon-DP implies rho-zCDP: √(2 rho), rounded down. ValueError for no rho.

    Bun, Steinke 2016, proposition 1.4.
    """
    if rho <= 0:
        raise ValueError(f"concentrated privacy needs rho > 0, got {rho}")
    with localcontext(prec=40):
        root = (Decimal(2 * rho.numerator) / Decimal(rho.denominator)).sqrt()
    with localcontext(prec=10, rounding=ROUND_DOWN):
        found = Fraction(+root)
    step = Fraction(10) ** (floor(log10(found)) - 9)
    while found**2 > 2 * rho:
        found -= step
    return found


def gaussian_scale(squared_sensitivity: int, rho: float) -> float:
    """√(Δ² / 2·rho), rounded up: the discrete Gaussian of this scale is rho-zCDP for shifts of L2 length Δ."""
    return sqrt(squared_sensitivity / (2 * rho)) * ABOVE


def _closed_form_budget(epsilon: Fraction, delta: Fraction) -> float:
    """A rho that is enough by the coarser epsilon = rho + 2 √(rho ln 1/delta): what the largest is a multiple of.

    Bun, Steinke 2016, proposition 1.3.
    """
    logarithm = -log(delta)
    root = float(epsilon) / (sqrt(logarithm + float(epsilon)) + sqrt(logarithm))
    return root**2 * (1 - CLOSE)


@lru_cache(maxsize=1)
def _delta_of() -> Callable[[float, float], float]:
    """OpenDP's delta of a shift of this length under Gaussian noise of scale 1, which is (length² / 2)-zCDP."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    converted = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=1.0))
    return lambda length, epsilon: float(converted.map(length).delta(epsilon))  # type: ignore[no-untyped-call]


def float_below(exact: Fraction) -> float:
    """The largest float that is no more."""
    near = float(exact)
    return near if Fraction(near) <= exact else nextafter(near, 0)


SLACK = 1e-12
"""Of epsilon, absolute: what the discrete law may differ by from the rounded one."""
CANCELLED = 1e-6
"""Relative, of delta: more than floating point loses in the difference above."""
BEYOND = 1e-30
NARROW = 1e-12
"""Relative: how near a length or an epsilon of Gaussian noise is found."""


def gaussian_length(epsilon: Fraction, delta: Fraction, rho: Fraction | None) -> float:
    """The length of a shift under noise of scale 1 that costs (epsilon, delta), or rho where that is given."""
    return told_apart(epsilon, delta) if rho is None else concentrated_length(rho)


def concentrated_length(rho: Fraction) -> float:
    """The length of a shift under noise of scale 1 that is rho-zCDP, √(2 rho), rounded down."""
    return sqrt(2 * float(rho)) / (1 + NARROW)


@lru_cache(maxsize=1024)
def told_apart(epsilon: Fraction, delta: Fraction) -> float:
    """The length of a shift under noise of scale 1 that costs (epsilon, delta), rounded down.

    ValueError unless epsilon > 0 and 0 < delta < 1, and where they are too small for floating point.
    """
    if epsilon <= 0 or not 0 < delta < 1:
        raise ValueError(f"Gaussian noise needs epsilon > 0 and 0 < delta < 1, got {epsilon} and {delta}")
    stated, allowed = nextafter(float(epsilon), 0) - SLACK, _allowed(delta)
    length = 0.0
    if stated > 0 and allowed > 0:
        length, _ = _threshold(lambda shift: gaussian_delta(shift, stated) > allowed, 1.0, NARROW)
    if length**2 < 1e-8 * stated or not length:
        raise ValueError(f"epsilon {float(epsilon):g}, delta {float(delta):g} are too small for Gaussian noise")
    return length


def implied_epsilon(length: float, delta: Fraction) -> Fraction:
    """The epsilon at this delta that a shift of this length costs under noise of scale 1, rounded up."""
    _, epsilon = _threshold(lambda stated: gaussian_delta(length, stated) <= _allowed(delta), 1.0, NARROW)
    return Fraction(epsilon + 2 * SLACK)


def _allowed(delta: Fraction) -> float:
    return float(delta) * (1 - CANCELLED) - BEYOND


def gaussian_delta(length: float, epsilon: float) -> float:
    """The least delta at this epsilon of a shift of this length under normal noise of scale 1."""
    from scipy.special import log_ndtr  # loads slowly

    with_it = float(log_ndtr(length / 2 - epsilon / length))
    without = epsilon + float(log_ndtr(-length / 2 - epsilon / length))
    return -exp(with_it) * expm1(min(0.0, without - with_it))
