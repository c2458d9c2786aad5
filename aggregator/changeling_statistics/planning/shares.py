"""The planner's problem: which shares f of candidate groups make the variances of histograms small.

Entries of group g tell L_g = B_g' V_g⁻¹ B_g each, so together they tell L(f) = Σ_g f_g L_g. The variance of the best
estimate at time t is R_t(f) = [L(f)⁻¹]_tt, less what the entries themselves vary by, which no shares change. Online, L
is of what has closed by t. What is made small is R(f) = Σ_t w_t R_t(f). R is convex in f and homogeneous of degree -1.
So with φ_g = -∂R/∂f_g no shares at all have an R below

    R² / max_g φ_g        (docs/mathematics.md, "Planning")

It is the whole figure that is predicted: noise, joint responses and sampling. "Everybody in one group" is one of its
points. Knows what entries tell; nothing of randomizers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats, Indices
from ..estimation.network import MANY, inverses
from .candidates import Candidate
from .prediction import Objective

_Solver: TypeAlias = Callable[[Floats], Floats]
"""Takes B, whose rows are times, and gives L⁻¹B."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The problem at some shares.

    variances: R_t less the entries' own variance, at the times that are looked at, shape (times,).
    value: Σ_t w_t R_t, with the entries' own variance.
    slopes: φ_g, shape (groups,).
    own: Σ_t w_t of the entries' own variance.
    """

    variances: Floats
    value: float
    slopes: Floats
    own: float

    @property
    def error(self) -> float:
        """Σ_t w_t of the variances that are published: what the search makes small."""
        return self.value - self.own

    @property
    def bound(self) -> float:
        """A figure that `error` is not below for any shares of these groups."""
        return self.value**2 / float(self.slopes.max()) - self.own


@dataclass(frozen=True)
class ShareProblem:
    """The problem of some candidates.

    candidates: the groups among which shares are divided.
    own: the variance of an entry's own answer at the times 1..T, mean over the answers, shape (T,).
    retrospective: whether histograms are estimated from everything; if not, each from what has closed by its time.
    times: which of the times 1..T are looked at, rising, shape (times,).
    """

    candidates: Sequence[Candidate]
    own: Floats
    retrospective: bool
    times: Indices

    def at(self, shares: Floats, weights: Floats) -> Evaluation:
        """The variances and slopes at some shares; inf if a time is not connected with time 0.

        shares: f, at least 0, shape (groups,). weights: w of the times that are looked at, adding up to 1.
        """
        own = self.own[self.times - 1]
        try:
            columns = self._columns(shares)
        except np.linalg.LinAlgError:
            nothing = np.full(len(self.times), np.inf)
            return Evaluation(nothing, np.inf, np.full(len(shares), np.inf), float(weights @ own))
        R = columns[self.times - 1, np.arange(len(self.times))]
        return Evaluation(R - own, float(weights @ R), self._slopes(columns, weights), float(weights @ own))

    def curvature(self, shares: Floats, weights: Floats) -> Floats:
        """The second derivatives of R, shape (groups, groups); for few candidates, and few times.

        ∂²R / ∂f_g ∂f_h = 2 Σ_t w_t (L_g u)' L⁻¹ (L_h u),  u = L⁻¹ e_t,  each L of what may be used at t
        """
        scaled = self._columns(shares) * np.sqrt(weights)
        pushed = np.stack([self._pushed(candidate, scaled) for candidate in self.candidates])
        curvature = np.zeros((len(shares), len(shares)))
        for at, until, solve in self._solvers(shares):
            forces = pushed[:, :until, at].transpose(1, 0, 2).reshape(until, -1)
            solved = solve(forces).reshape(until, len(shares), -1)
            curvature += 2.0 * np.einsum("sgt,sht->gh", forces.reshape(solved.shape), solved, optimize=True)
        return curvature

    @property
    def least(self) -> Floats:
        """The least share of each group with which its nodes are published, shape (groups,)."""
        return np.array([candidate.least for candidate in self.candidates])

    def restricted(self, chosen: NDArray[np.intp]) -> "ShareProblem":
        """The problem of only some of the candidates, chosen by number."""
        return ShareProblem([self.candidates[i] for i in chosen], self.own, self.retrospective, self.times)

    def looking_at(self, times: Indices) -> "ShareProblem":
        """The same problem with other times looked at."""
        return ShareProblem(self.candidates, self.own, self.retrospective, times)

    def informations(self, shares: Floats) -> Iterator[Floats]:
        """L of each time that is looked at, over the times from 1 to it; if retrospective the one L of all.

        Online each is overwritten by the next.
        """
        used, periods = np.flatnonzero(shares).tolist(), len(self.own)
        L = np.zeros((periods, periods))
        if self.retrospective:
            for g in used:
                L += shares[g] * self.candidates[g].told
            yield L
            return
        before = 0
        for time in self.times.tolist():
            new = np.concatenate([np.sqrt(shares[g]) * self._closing(g, before, time) for g in used])
            L[:time, :time] += new.T @ new
            before = time
            yield L[:time, :time]

    def _closing(self, group: int, before: int, time: int) -> Floats:
        """The rows of a group's edges that end in (before, time], over the times from 1 to that."""
        ends, rows = self.candidates[group].ends, self.candidates[group].rows
        return rows[np.searchsorted(ends, before, side="right") : np.searchsorted(ends, time, side="right"), :time]

    def variances(self, informations: Iterable[Floats]) -> Floats:
        """The variances that are published if so much is told, shape (times,); inf if a time is not connected with 0.

        informations: L as `informations` gives it, each only asked for as it is needed.
        """
        from scipy.linalg import cholesky, solve_triangular  # late: it loads slowly

        R = np.empty(len(self.times))
        try:
            if self.retrospective:
                (C,) = (cholesky(L, lower=True, check_finite=False) for L in informations)
                units = np.zeros((len(C), len(R)))
                units[self.times - 1, np.arange(len(R))] = 1.0
                R[:] = (solve_triangular(C, units, lower=True, check_finite=False) ** 2).sum(0)
            else:  # L⁻¹ at its last place
                factors = (cholesky(L, lower=True, check_finite=False) for L in informations)
                R[:] = [C[-1, -1] ** -2 for C in factors]
        except np.linalg.LinAlgError:
            R[:] = np.inf
        return R - self.own[self.times - 1]

    def _columns(self, shares: Floats) -> Floats:
        """L⁻¹ e_t for each time that is looked at, 0 for times that L does not reach, shape (T, times)."""
        columns = np.zeros((len(self.own), len(self.times)))
        for at, until, solve in self._solvers(shares):
            units = np.zeros((until, len(self.times[at])))
            units[self.times[at] - 1, np.arange(units.shape[1])] = 1.0
            columns[:until, at] = solve(units)
        return columns

    def _solvers(self, shares: Floats) -> Iterator[tuple[slice, int, _Solver]]:
        """Some of the times that are looked at, up to which time L reaches for these, and what solves with it.

        Raises LinAlgError where an L is singular.
        """
        used = np.flatnonzero(shares).tolist()
        seen = 0 if self.retrospective or len(self.own) > APART * len(self.times) else len(self.times)
        if sum(len(self.candidates[g].ends) for g in used) <= MANY * seen:
            rows = np.concatenate([np.sqrt(shares[g]) * self.candidates[g].rows for g in used])
            ends = np.concatenate([self.candidates[g].ends for g in used])
            for at, P in enumerate(inverses(rows, ends, self.times)):
                yield slice(at, at + 1), len(P), partial(np.matmul, P)
            return
        for at, L in enumerate(self.informations(shares)):
            yield slice(None) if self.retrospective else slice(at, at + 1), len(L), _factored(L)

    def _slopes(self, columns: Floats, weights: Floats) -> Floats:
        """φ_g = Σ_t w_t u_t' L_g u_t, over the edges that may be used at t."""
        scaled = columns * np.sqrt(weights)
        if self.retrospective:
            M = scaled @ scaled.T
            return np.array([np.vdot(M, candidate.told) for candidate in self.candidates])
        return np.array([np.vdot(told, told) for told in (self._told(each, scaled) for each in self.candidates)])

    def _told(self, candidate: Candidate, columns: Floats) -> Floats:
        """R_g u_t, 0 for edges that may not be used at t, shape (E_g, times)."""
        told: Floats = candidate.rows @ columns
        if not self.retrospective:
            told[candidate.ends[:, None] > self.times] = 0.0
        return told

    def _pushed(self, candidate: Candidate, columns: Floats) -> Floats:
        """L_g u_t, shape (T, times)."""
        if self.retrospective:
            return candidate.told @ columns
        return candidate.rows.T @ self._told(candidate, columns)


def _factored(L: Floats) -> _Solver:
    from scipy.linalg import cho_factor, cho_solve  # late: it loads slowly, and the command line imports this

    return partial(cho_solve, cho_factor(L, lower=True, check_finite=False), check_finite=False)


APART = 10
"""If times that are looked at are on average farther apart, in periods, L is factored anew for each: faster then."""
LITTLE = 0.5
"""Newton steps among few groups end at this part of the gap that is asked for among all."""
ROUNDS, STEPS, WARM = 12, 8, 4
"""The most rounds, the most Newton steps of each, and how many multiplicative steps come before the first."""
FEW, JOINING = 40, 12
"""The number of groups that a search begins with, and of those that may join with each round."""
SPARSE = 4
"""The search looks first at every so-manieth group."""
JOIN = 0.02
"""Groups that join get this share together at most, and no more than the gap."""
CURVED = 64
"""At how many times the curvature is taken."""
STEEP = 1.5
"""The power of a multiplicative step."""
GAME_STEPS, GAME_GAP, GAME_STEP, GAME_POWER = 400, 0.01, 1.5, 0.3
"""For the worst time: the most steps, the gap at which they end, and the powers of the steps of shares and weights."""
NOTHING = 1e-7
"""Shares below this are set to 0, in the end."""
SMALL = 3.0
"""Groups whose least share is at most so many times the smallest one need few devices to be published."""
AT_ONCE = 4
"""One in so many of the groups that are too small to be published is left out at once."""
EXACT, TIED = 1e-7, 40
"""An error that is so small beside what entries vary by cannot be told from none, which is their difference."""
TOTAL = 1000
"""Integer shares add up to about this."""
TINY = (0.03, 0.02, 0.01, 0.005, 0.002)
"""Groups with shares below the first of these are left out, or below the next if that costs too much."""
ALLOWED = 1.003
"""By what factor leaving out small groups may raise the error."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupShares:
    """Shares of the candidates, and how good they are.

    f: the share of each, adding up to 1, shape (groups,).
    error: the objective, the mean or the worst variance, in squared fractions, to be divided by the devices.
    bound: a figure that the objective is not below for any shares of the candidates.
    """

    f: Floats
    error: float
    bound: float

    @property
    def gap(self) -> float:
        """By what part the error could fall at most, from 0 to 1."""
        return 1.0 - self.bound / self.error


def optimal_shares(
    problem: ShareProblem, weights: Floats, objective: Objective, gap: float, start: Floats | None = None
) -> GroupShares:
    """The best shares for the mean of the variances over the times, or for the worst of them.

    weights: what each time that is looked at counts in a mean, adding up to 1.
    gap: the search for the mean ends once the error could fall by no more than this part.
    start: shares to begin with, shape (groups,); if not given, those of the groups that look best.
    """
    found = _for_the_mean(problem, weights, gap, start)
    return found if objective == "mean" else _for_the_worst(problem, weights, found)


def _for_the_mean(problem: ShareProblem, weights: Floats, gap: float, start: Floats | None) -> GroupShares:
    """Newton steps among few groups alternate with a look at all; those whose slope says that they would help join."""
    n = len(problem.candidates)
    f = _begun(problem, weights) if start is None else start
    evaluation = problem.at(f, weights)
    if not np.isfinite(evaluation.value):  # what connected the times that the start was found at leaves another out
        f = _begun(problem, weights)
        evaluation = problem.at(f, weights)
    best = GroupShares(f, evaluation.error, evaluation.bound)
    for _ in range(ROUNDS):
        excess = np.where(f > 0, -np.inf, evaluation.slopes / evaluation.value - 1.0)
        joining = np.argsort(-excess)[:JOINING]
        joining = joining[excess[joining] > 0]
        kept = np.union1d(np.flatnonzero(f > NOTHING), joining)
        begun = _normed(np.where(np.isin(kept, joining), min(JOIN, best.gap) / max(1, len(joining)), f[kept]))
        f = _scattered(_newton(problem.restricted(kept), begun, weights, gap), kept, n)
        evaluation = problem.at(f, weights)
        bound = max(best.bound, evaluation.bound)
        best = (
            GroupShares(f, evaluation.error, bound)
            if evaluation.error < best.error
            else GroupShares(best.f, best.error, bound)
        )
        if best.gap <= gap:
            break
    return best


def _begun(problem: ShareProblem, weights: Floats) -> Floats:
    """Shares of the groups that look best: of FEW, or of as many as it takes to connect every time with time 0.

    Raises ValueError if all groups together leave a time unconnected.
    """
    n = len(problem.candidates)
    evaluation = problem.at(_normed(np.arange(n) % SPARSE == 0), weights)
    if not np.isfinite(evaluation.value):
        evaluation = problem.at(even(n), weights)
    if not np.isfinite(evaluation.value):
        raise ValueError("nothing that may be asked at this cost tells the histograms of all periods")
    best = np.argsort(-evaluation.slopes)
    for size in (FEW * 2**i for i in range(n)):
        few = np.sort(best[:size])
        if np.isfinite(problem.restricted(few).at(even(len(few)), weights).value):
            break
    return _scattered(_multiplicative(problem.restricted(few), even(len(few)), weights), few, n)


def _multiplicative(problem: ShareProblem, f: Floats, weights: Floats) -> Floats:
    """Some steps f_g := f_g (φ_g / R)^STEEP, which bring most shares close to 0 and none below.

    They end before one that would leave a time unconnected.
    """
    evaluation = problem.at(f, weights)
    for _ in range(WARM):
        stepped = _normed(f * (evaluation.slopes / evaluation.value) ** STEEP)
        evaluation = problem.at(stepped, weights)
        if not np.isfinite(evaluation.value):
            break
        f = stepped
    return f


def _newton(problem: ShareProblem, f: Floats, weights: Floats, gap: float) -> Floats:
    """The best shares of few groups: R is replaced by its second-order form, which is made small over all shares.

    Its curvature is taken at a part of the times, which is enough for the direction of a step.
    """
    rough, counted = _at_some_times(problem, weights, CURVED)
    evaluation = problem.at(f, weights)
    for _ in range(STEPS):
        try:
            step = _quadratic_step(f, evaluation, rough.curvature(f, counted))
        except np.linalg.LinAlgError:  # nearly unconnected, and singular as far as fewer times can tell
            break
        length, improved = 1.0, evaluation
        while length > 0.05:
            tried = _normed(f + length * step)
            improved = problem.at(tried, weights)
            if improved.error < evaluation.error:
                break
            length /= 2
        else:
            break
        f, evaluation = tried, improved
        if evaluation.error - evaluation.bound <= LITTLE * gap * evaluation.error:
            break
    return f


def _quadratic_step(f: Floats, evaluation: Evaluation, curvature: Floats) -> Floats:
    """The d that makes -φ'd + d'Hd/2 least with Σ d = 0 and f + d >= 0."""
    from scipy.optimize import minimize  # late: it loads slowly, and the command line imports this

    scale = evaluation.value
    H, slopes = curvature / scale, evaluation.slopes / scale
    H.flat[:: len(H) + 1] += 1e-9 * np.trace(H) / len(H)
    found = minimize(
        lambda d: (float(0.5 * d @ H @ d - slopes @ d), H @ d - slopes),
        np.zeros(len(f)),
        jac=True,
        method="SLSQP",
        bounds=[(-share, 1.0 - share) for share in f.tolist()],
        constraints={"type": "eq", "fun": np.sum, "jac": lambda d: np.ones(len(d))},
        options={"maxiter": 60, "ftol": 1e-10},
    )
    step: Floats = found.x
    return step


def _for_the_worst(problem: ShareProblem, weights: Floats, mean: GroupShares) -> GroupShares:
    """A game between the shares and the weights of the times, among the groups that help the mean or nearly do.

        f_g := f_g (φ_g / R)^a,   w_t := w_t (error_t / error)^b,   b much smaller than a

    Whatever the weights are, min_f max_t error_t >= min_f Σ_t w_t error_t, which has the bound of a mean.
    """
    near = problem.at(mean.f, weights)
    few = np.sort(np.argsort(-near.slopes)[: 2 * FEW])
    restricted, f, w = problem.restricted(few), _normed(mean.f[few] + JOIN / len(few)), weights
    best, best_weights, bound, middle = (np.inf, f), w, 0.0, f
    for step in range(GAME_STEPS):
        evaluation = restricted.at(f, w)
        middle = middle + (f - middle) * 2 / (step + 2)  # players of such a game circle; their mean settles
        reached = (float(evaluation.variances.max()), f), (float(restricted.at(middle, w).variances.max()), middle)
        best = min(best, *reached, key=lambda each: each[0])
        if evaluation.bound > bound:
            bound, best_weights = evaluation.bound, w
        if 1.0 - bound / best[0] <= GAME_GAP:
            break
        f = _kept(f * (evaluation.slopes / evaluation.value) ** GAME_STEP)
        w = _kept(w * (np.maximum(evaluation.variances, 0.0) / max(evaluation.error, 1e-300)) ** GAME_POWER)
    whole = _scattered(_normed(best[1]), few, len(mean.f))
    return GroupShares(whole, best[0], problem.at(whole, best_weights).bound)


def _at_some_times(problem: ShareProblem, weights: Floats, most: int) -> tuple[ShareProblem, Floats]:
    """The problem that looks at so many of its times at most, evenly, the first and the last too; and their weights."""
    some = np.unique(np.linspace(0, len(problem.times) - 1, most).round().astype(np.intp))
    return problem.looking_at(problem.times[some]), _normed(weights[some])


def even(n: int) -> Floats:
    """Equal shares."""
    return np.full(n, 1.0 / n)


def _scattered(few: Floats, chosen: NDArray[np.intp], n: int) -> Floats:
    f = np.zeros(n)
    f[chosen] = few
    return f


def _kept(f: Floats) -> Floats:
    """Adding up to 1, and none so small that it could not come back."""
    kept = np.maximum(f / f.sum(), NOTHING)
    whole: Floats = kept / kept.sum()
    return whole


def _normed(f: NDArray[np.generic]) -> Floats:
    kept = np.where(f < 2 * NOTHING * f.sum(), 0.0, f)
    normed: Floats = kept / kept.sum()
    return normed


def publishable_shares(
    problem: ShareProblem, shares: GroupShares, weights: Floats, objective: Objective, gap: float
) -> GroupShares:
    """Good shares of which none is too small for the nodes of its group to be published, but for those that are 0.

    Again and again the groups are left out that are farthest from being published, and each time the short ones of the
    rest are raised instead; the best counts. The search begins with all groups, and again with those that need few
    devices. If nothing is found, all devices are in the group that is best by itself. No other shares of so many
    candidates are tried. Raises ValueError if no group does by itself.
    """
    least = problem.least
    if not ((shares.f > 0) & (shares.f < least * (1 - 1e-9))).any():
        return shares
    rough, counted = _at_some_times(problem, weights, CURVED)
    found = list(_published_among(rough, shares.f, counted, objective, gap))
    small = np.flatnonzero(least <= SMALL * least.min())
    few = rough.restricted(small)
    if len(small) < len(least) and np.isfinite(few.at(even(len(small)), counted).value):
        begun = optimal_shares(few, counted, objective, gap).f
        among = _published_among(few, begun, counted, objective, gap)
        found += [(error, _scattered(f, small, len(least))) for error, f in among]
    error, f = min(found, key=lambda each: each[0], default=(np.inf, shares.f))
    if not np.isfinite(error):
        return _alone(problem, shares, weights, objective)
    return GroupShares(f, _error(problem.at(f, weights), objective), shares.bound)


def _published_among(
    problem: ShareProblem, f: Floats, weights: Floats, objective: Objective, gap: float
) -> Iterator[tuple[float, Floats]]:
    """Shares with which all nodes are published, and their errors, with ever fewer groups."""
    least = problem.least
    while True:
        if (raised := _raised(f, least)) is not None:
            yield _error(problem.at(raised, weights), objective), raised
        short = np.flatnonzero((f > 0) & (f < least * (1 - 1e-9)))
        if not short.size:
            return
        out = short[np.argsort(f[short] / least[short])[: -(-len(short) // AT_ONCE)]]
        kept = np.setdiff1d(np.flatnonzero(f > 0), out)
        rest = problem.restricted(kept)
        if not len(kept) or not np.isfinite(rest.at(_normed(f[kept]), weights).value):
            return
        f = _scattered(optimal_shares(rest, weights, objective, gap, _normed(f[kept])).f, kept, len(f))


def _raised(f: Floats, least: Floats) -> Floats | None:
    """The shares with the short ones raised to the least with which they are published; None if that is too much."""
    short = np.zeros(len(f), dtype=bool)
    raised = f
    while (more := (raised > 0) & (raised < least * (1 - 1e-9)) & ~short).any():
        short |= more
        left, others = 1.0 - least[short].sum(), f[~short].sum()
        if left < 0 or (others == 0 and left > 0):
            break
        raised = np.where(short, least, f * (left / others if others else 0.0))
    else:
        return raised
    return least * short / least[short].sum() if left >= 0 else None


def best_alone(problem: ShareProblem, weights: Floats, objective: Objective, most: int) -> NDArray[np.intp]:
    """The numbers of the groups that are best if all devices are in one of them, the best first, `most` at most.

    Or TIED of those whose errors are too near to none to be told apart: the ones that ask everybody everything.
    """
    rough, counted = _at_some_times(problem, weights, CURVED)
    alone = (rough.restricted(np.array([g])).at(np.ones(1), counted) for g in range(len(problem.candidates)))
    exact = EXACT * float(weights @ problem.own[problem.times - 1])
    errors = np.maximum([_error(each, objective) for each in alone], exact)
    partial = np.array([any(track.reports < track.count for track in c.group.tracks) for c in problem.candidates])
    order = np.lexsort((partial, errors))[: max(most, min(TIED, (errors == exact).sum()))]
    return order[np.isfinite(errors[order])]


def _alone(problem: ShareProblem, shares: GroupShares, weights: Floats, objective: Objective) -> GroupShares:
    """All devices in one group, the best."""
    best = best_alone(problem, weights, objective, 1)
    if not len(best):
        raise ValueError("no node would have reports enough to be published: ask more devices, or for fewer periods")
    f = _scattered(np.ones(1), best, len(problem.candidates))
    return GroupShares(f, _error(problem.at(f, weights), objective), shares.bound)


def rounded_shares(
    problem: ShareProblem, shares: GroupShares, weights: Floats, objective: Objective
) -> NDArray[np.int64]:
    """Integer shares in lowest terms, 0 for groups that are left out.

    Small groups are left out as far as that raises the error by a factor of at most ALLOWED.
    """
    rough, counted = _at_some_times(problem, weights, 2 * CURVED)
    for tiny in TINY:
        kept = np.flatnonzero(shares.f >= tiny)
        if not len(kept):
            continue
        few, refined = rough.restricted(kept), _normed(shares.f[kept])
        if not np.isfinite(few.at(refined, counted).error):
            continue
        if objective == "mean":
            refined = _newton(few, refined, counted, ALLOWED - 1)
        integers = np.zeros(len(shares.f), np.int64)
        integers[kept] = np.maximum(1, np.round(refined * TOTAL).astype(np.int64))
        if not _published(integers, problem.least).all():
            continue
        if _reached(problem, integers, weights, objective) <= ALLOWED * shares.error:
            return _lowest_terms(integers)
    integers = np.maximum(shares.f > 0, np.round(shares.f * TOTAL)).astype(np.int64)
    while not (published := _published(integers, problem.least)).all():  # rounded down, or as others are rounded up
        integers = np.where(published, integers, integers + 1)
    return _lowest_terms(integers)


def _published(integers: NDArray[np.int64], least: Floats) -> NDArray[np.bool_]:
    """Says of each group whether its share is 0, or large enough for its nodes to be published."""
    published: NDArray[np.bool_] = (integers == 0) | (integers >= least * integers.sum())
    return published


def _reached(problem: ShareProblem, integers: NDArray[np.int64], weights: Floats, objective: Objective) -> float:
    chosen = np.flatnonzero(integers)
    return _error(problem.restricted(chosen).at(integers[chosen] / integers.sum(), weights), objective)


def _error(evaluation: Evaluation, objective: Objective) -> float:
    return evaluation.error if objective == "mean" else float(evaluation.variances.max())


def _lowest_terms(integers: NDArray[np.int64]) -> NDArray[np.int64]:
    lowest: NDArray[np.int64] = integers // np.gcd.reduce(integers[integers > 0])
    return lowest
