"""The best shares of candidate groups, with a bound on how far they are from the best possible; and small integers."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from .design_problem import Problem
from .wish import Objective

GAP = 0.006
"""The search for the mean ends once the value could fall by no more than this part."""
ROUNDS, STEPS = 25, 24
"""The most rounds, and the most steps of each."""
LONGEST, SHORTEST = 1.5, 0.7
"""The powers that a step may have."""
SCREEN = 0.5
"""A group whose slope is below this part of the mean slope at equal shares is left out at first."""
KEPT, JOIN = 1e-5, 0.03
"""A group stays for the next round if its share is above KEPT; all groups that join get JOIN together."""
GAME_STEPS, GAME_GAP, GAME_POWER = 200, 0.01, 0.3
"""For the worst time: the most steps, the gap at which they end, and the power of the steps of the weights."""
NOTHING = 1e-7
"""Shares below this are set to 0."""
TOTAL = 1000
"""Integer shares add up to about this."""
TINY = (0.03, 0.02, 0.01, 0.005, 0.002)
"""Groups with shares below the first of these are left out, or below the next if that costs too much."""
ALLOWED = 1.004
"""By what factor leaving out small groups may raise the objective."""


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """Shares of the candidates, and how good they are.

    f: the share of each, adding up to 1, shape (groups,).
    value: the objective, the mean or the worst variance, in squared fractions, to be divided by the devices.
    bound: a figure that the objective is not below for any shares of the candidates.
    """

    f: Floats
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """By what part the value could fall at most, from 0 to 1."""
        return 1.0 - self.bound / self.value


def optimal_shares(problem: Problem, objective: Objective = "mean") -> Shares:
    """The best shares for the mean of the variances over the times, or for the worst of them."""
    return _for_the_mean(problem) if objective == "mean" else _for_the_worst(problem)


def _for_the_mean(problem: Problem) -> Shares:
    """From equal shares on by multiplicative steps, until the value is close to its bound.

    Rounds of steps among few groups alternate with a look at all groups; those whose slope says that they would help
    join with a small share.
    """
    n, w = len(problem.candidates), _even(problem.periods)
    f, power = _even(n), LONGEST
    evaluation = problem.at(f, w)
    best = Shares(f, evaluation.value, evaluation.bound)
    for round_ in range(ROUNDS):
        helpful = evaluation.slopes > evaluation.value * (1.0 + GAP / 4 if round_ else SCREEN)
        kept = np.flatnonzero(helpful | (f > KEPT if round_ else helpful))
        start = _normed(np.where(helpful[kept], np.maximum(f[kept], JOIN / len(kept)), f[kept]))
        improved, power = _steps(problem.restricted(kept), start, min(LONGEST, 1.4 * power))
        f = np.zeros(n)
        f[kept] = improved
        evaluation = problem.at(f, w)
        bound = max(best.bound, evaluation.bound)
        best = Shares(f, evaluation.value, bound) if evaluation.value < best.value else replace(best, bound=bound)
        if best.gap <= GAP:
            break
    return best


def _steps(problem: Problem, f: Floats, power: float = LONGEST) -> tuple[Floats, float]:
    """The best shares of some steps f_g := f_g (φ_g / R)^power, and the last power, which falls after a step up."""
    w = _even(problem.periods)
    best, least = f, np.inf
    for _ in range(STEPS):
        evaluation = problem.at(f, w)
        if evaluation.value < least:
            best, least = f, evaluation.value
            if evaluation.value - evaluation.bound <= GAP / 2 * evaluation.value:
                break
        else:
            power = max(SHORTEST, power * 0.7)
            evaluation = problem.at(best, w)
        f = _normed(best * (evaluation.slopes / evaluation.value) ** power)
    return best, power


def _for_the_worst(problem: Problem) -> Shares:
    """A game between the shares and the weights of the times.

        f_g := f_g (φ_g / R)^a,   w_t := w_t (R_t / R)^b,   b much smaller than a

    Whatever the weights are, min_f max_t R_t >= min_f Σ_t w_t R_t >= R² / max_g φ_g, which is the bound.
    """
    f, w = _even(len(problem.candidates)), _even(problem.periods)
    best = Shares(f, np.inf, 0.0)
    for _ in range(GAME_STEPS):
        evaluation = problem.at(f, w)
        worst, bound = float(evaluation.resistances.max()), max(best.bound, evaluation.bound)
        best = Shares(f, worst, bound) if worst < best.value else replace(best, bound=bound)
        if best.gap <= GAME_GAP:
            break
        f = _normed(f * (evaluation.slopes / evaluation.value) ** LONGEST)
        w = _normed(w * (evaluation.resistances / evaluation.value) ** GAME_POWER)
    return best


def _even(n: int) -> Floats:
    return np.full(n, 1.0 / n)


def _normed(f: Floats) -> Floats:
    kept = np.where(f < NOTHING * f.sum(), 0.0, f)
    normed: Floats = kept / kept.sum()
    return normed


def rounded_shares(problem: Problem, shares: Shares, objective: Objective = "mean") -> tuple[NDArray[np.int64], float]:
    """Integer shares in lowest terms, 0 for groups that are left out, and the value that they reach.

    Small groups are left out as far as that raises the value by a factor of at most ALLOWED.
    """
    for tiny in TINY:
        kept = np.flatnonzero(shares.f >= tiny)
        if not len(kept):
            continue
        few = problem.restricted(kept)
        refined = _normed(shares.f[kept])
        if not np.isfinite(few.at(refined, _even(problem.periods)).value):
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
    reached = problem.at(integers / integers.sum(), _even(problem.periods)).resistances
    return float(reached.mean() if objective == "mean" else reached.max())


def _lowest_terms(integers: NDArray[np.int64]) -> NDArray[np.int64]:
    lowest: NDArray[np.int64] = integers // np.gcd.reduce(integers[integers > 0])
    return lowest
