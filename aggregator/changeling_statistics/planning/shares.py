"""Optimal shares of candidate groups, certified by the dual gap, and rounded to small integers."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from .design_problem import Problem
from .wish import Objective

GAP = 0.006
ROUNDS, STEPS = 25, 24
LONGEST, SHORTEST = 1.5, 0.7
SCREEN = 0.5
"""A group whose slope is below this part of the mean slope at equal shares is left out at first."""
KEPT, JOIN = 1e-5, 0.03
"""Groups stay from round to round while they have such a share; JOIN is that of all that join, together."""
GAME_STEPS, GAME_GAP, GAME_POWER = 200, 0.01, 0.3
NOTHING = 1e-7
TOTAL = 1000
"""Shares are integers out of about so many."""
TINY = (0.03, 0.02, 0.01, 0.005, 0.002)
ALLOWED = 1.004
"""By how much leaving out small groups may raise the objective."""


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """f of every candidate, shape (groups,). value: the objective, in squared fractions times the devices.

    bound: what no shares of the candidates are below.
    """

    f: Floats
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """By which part of it the value could fall at most."""
        return 1.0 - self.bound / self.value


def optimal_shares(problem: Problem, objective: Objective = "mean") -> Shares:
    """The best shares for the mean over the times, or for the worst of them, with a bound for all candidates."""
    return _for_the_mean(problem) if objective == "mean" else _for_the_worst(problem)


def _for_the_mean(problem: Problem) -> Shares:
    """From equal shares by multiplicative steps among the groups that matter, until the dual gap is closed.

    Rounds of STEPS among few groups alternate with a look at all: those whose slope says that they would help join
    with a small share.
    """
    n, w = len(problem.candidates), _even(problem.periods)
    f, power = _even(n), LONGEST
    point = problem.point(f, w)
    best = Shares(f, point.value, point.bound)
    for round_ in range(ROUNDS):
        helpful = point.slopes > point.value * (1.0 + GAP / 4 if round_ else SCREEN)
        kept = np.flatnonzero(helpful | (f > KEPT if round_ else helpful))
        start = _normed(np.where(helpful[kept], np.maximum(f[kept], JOIN / len(kept)), f[kept]))
        some, power = _steps(problem.restricted(kept), start, min(LONGEST, 1.4 * power))
        f = np.zeros(n)
        f[kept] = some
        point = problem.point(f, w)
        bound = max(best.bound, point.bound)
        best = Shares(f, point.value, bound) if point.value < best.value else replace(best, bound=bound)
        if best.gap <= GAP:
            break
    return best


def _steps(problem: Problem, f: Floats, power: float = LONGEST) -> tuple[Floats, float]:
    """f_g := f_g (φ_g / R)^power, with a shorter step after one that led up; returns the power too."""
    w = _even(problem.periods)
    best, least = f, np.inf
    for _ in range(STEPS):
        point = problem.point(f, w)
        if point.value < least:
            best, least = f, point.value
            if point.value - point.bound <= GAP / 2 * point.value:
                break
        else:
            power = max(SHORTEST, power * 0.7)
            point = problem.point(best, w)
        f = _normed(best * (point.slopes / point.value) ** power)
    return best, power


def _for_the_worst(problem: Problem) -> Shares:
    """A game between the shares and weights of the times: f_g := f_g (φ_g / R)^a, w_t := w_t (R_t / R)^b, b << a.

    Whatever the weights are, min_f max_t R_t >= min_f Σ_t w_t R_t >= R² / max_g φ_g.
    """
    f, w = _even(len(problem.candidates)), _even(problem.periods)
    best = Shares(f, np.inf, 0.0)
    for _ in range(GAME_STEPS):
        point = problem.point(f, w)
        worst, bound = float(point.resistances.max()), max(best.bound, point.bound)
        best = Shares(f, worst, bound) if worst < best.value else replace(best, bound=bound)
        if best.gap <= GAME_GAP:
            break
        f = _normed(f * (point.slopes / point.value) ** LONGEST)
        w = _normed(w * (point.resistances / point.value) ** GAME_POWER)
    return best


def _even(n: int) -> Floats:
    return np.full(n, 1.0 / n)


def _normed(f: Floats) -> Floats:
    kept = np.where(f < NOTHING * f.sum(), 0.0, f)
    normed: Floats = kept / kept.sum()
    return normed


def rounded_shares(problem: Problem, shares: Shares, objective: Objective = "mean") -> tuple[NDArray[np.int64], float]:
    """Integer shares, 0 for groups that hardly matter, and the objective they reach.

    As many small groups are left out as raise the objective by no more than ALLOWED.
    """
    for tiny in TINY:
        kept = np.flatnonzero(shares.f >= tiny)
        if not len(kept):
            continue
        few = problem.restricted(kept)
        refined = _normed(shares.f[kept])
        if not np.isfinite(few.point(refined, _even(problem.periods)).value):
            continue
        if objective == "mean":
            refined, _ = _steps(few, refined)
        integers = np.zeros(len(shares.f), np.int64)
        integers[kept] = np.maximum(1, np.round(refined * TOTAL).astype(np.int64))
        value = _reached(problem, integers, objective)
        if value <= ALLOWED * shares.value:
            break
    else:
        kept = np.flatnonzero(shares.f)
        integers = np.maximum(shares.f > 0, np.round(shares.f * TOTAL)).astype(np.int64)
        value = _reached(problem, integers, objective)
    return _lowest_terms(integers), value


def _reached(problem: Problem, integers: NDArray[np.int64], objective: Objective) -> float:
    found = problem.point(integers / integers.sum(), _even(problem.periods)).resistances
    return float(found.mean() if objective == "mean" else found.max())


def _lowest_terms(integers: NDArray[np.int64]) -> NDArray[np.int64]:
    lowest: NDArray[np.int64] = integers // np.gcd.reduce(integers[integers > 0])
    return lowest
