"""The best plan for a wish: the best shares of all groups that are worth trying."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from changeling_protocol import Group, ReleasePlan
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..estimate import Floats
from ..estimation.expected import expected_moments
from .candidates import Candidate, Maker
from .design_problem import Problem
from .families import closer_look, first_look
from .floors import best_floor
from .option import Option
from .outages import is_bridged, sure_tracks
from .shares import even, optimal_shares, rounded_shares
from .wish import Wish

ONE_THREAD = 1
"""The search is thousands of small dense systems. Several threads on each gain little, and wait ten times longer for
one another than they work wherever cores are shared."""
MOST_TIMES, FIRST_TIMES = 48, 8
"""At first the planner looks at so many times at most, among them the first FIRST_TIMES."""
ROUGH, FINE = 0.02, 0.006
"""The gaps at which the search ends, at first and at last."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The best plan for a wish.

    option: the plan, how accurate it will be and what it asks of a device.
    kinds: the kind of each of its groups: panel, changes, hierarchy or mix.
    gap: by what part the variance that is predicted for the plan without its floor could fall at most, from 0 to 1,
    with any other shares of the groups that were considered and any linear unbiased estimator.
    considered: how many groups there were.
    floor: the share of the devices that are in a group which is there to bridge lost periods; 0 if there is none.
    without: the standard error that the wish wants small, as it would be without that group.
    """

    option: Option
    kinds: tuple[str, ...]
    gap: float
    considered: int
    floor: float
    without: float

    @property
    def plan(self) -> ReleasePlan:
        """The release plan itself."""
        return self.option.plan

    def share_of(self, kind: str) -> float:
        """The share of the devices that are in groups of this kind."""
        groups = zip(self.plan.groups, self.kinds, strict=True)
        return sum(group.share for group, each in groups if each == kind) / self.plan.total_share


def optimal_plan(wish: Wish) -> Planned:
    """The plan whose histograms are expected to be most accurate, at a cost of at most the wish's epsilon.

    What is made small is the variance that is predicted and printed, so that its bound bounds just that.
    Raises ValueError if the budget is too small to report anything.
    """
    with threadpool_limits(ONE_THREAD):
        return _optimal_plan(wish)


def _optimal_plan(wish: Wish) -> Planned:
    maker = Maker(wish)
    candidates = list(first_look(maker))
    if not candidates:
        raise ValueError(f"epsilon {wish.epsilon} is too small to report anything: raise it")
    few = _times(wish.periods)
    shares = optimal_shares(_problem(wish, candidates, few[0]), few[1], wish.objective, ROUGH)
    used = [candidate for candidate, share in zip(candidates, shares.f.tolist(), strict=True) if share > 0]
    known = {candidate.group for candidate in candidates}
    candidates += [candidate for candidate in closer_look(maker, used) if candidate.group not in known]
    start = np.append(shares.f, np.zeros(len(candidates) - len(shares.f)))
    problem, weights = _problem(wish, candidates, np.arange(1, wish.periods + 1)), even(wish.periods)
    shares = optimal_shares(problem, weights, wish.objective, FINE, start)
    integers = rounded_shares(problem, shares, weights, wish.objective)
    chosen = np.flatnonzero(integers)
    groups, f = [candidates[i] for i in chosen.tolist()], integers[chosen] / integers.sum()
    option, kinds = _planned(wish, groups, integers[chosen].tolist())
    without, floor = option.error(wish), None
    gap = max(0.0, 1.0 - shares.bound / wish.devices / without**2)
    if wish.bridge and not is_bridged(wish, sure_tracks(wish, [each.group for each in groups], f.tolist())):
        floor = best_floor(maker, groups, f, problem.looking_at(few[0]), few[1])
    if floor is not None:
        option, kinds = _planned(wish, floor.groups, floor.shares)
    return Planned(option, kinds, gap, len(candidates), floor.share if floor else 0.0, without)


def _problem(wish: Wish, candidates: list[Candidate], times: NDArray[np.intp]) -> Problem:
    moments = expected_moments(wish.answers, wish.expected, wish.periods)
    return Problem(candidates, np.diagonal(moments.centred)[1:].copy(), wish.retrospective, times)


def _times(periods: int) -> tuple[NDArray[np.intp], Floats]:
    """Which times the search looks at, and how many of all times each stands for, as shares."""
    if periods <= MOST_TIMES:
        return np.arange(1, periods + 1), np.full(periods, 1.0 / periods)
    later = np.linspace(FIRST_TIMES + 1, periods, MOST_TIMES - FIRST_TIMES).round().astype(np.intp)
    times = np.unique(np.concatenate([np.arange(1, FIRST_TIMES + 1), later]))
    nearest = np.abs(np.arange(1, periods + 1)[:, None] - times).argmin(1)
    return times, np.bincount(nearest, minlength=len(times)) / periods


def _planned(wish: Wish, groups: Sequence[Candidate], shares: Sequence[int]) -> tuple[Option, tuple[str, ...]]:
    """The plan of these groups with these shares, and their kinds, the largest first."""
    order = sorted(range(len(groups)), key=lambda i: -shares[i])
    plan = ReleasePlan(tuple(Group(groups[i].group.tracks, shares[i], groups[i].group.joint) for i in order))
    return Option.of(wish, "optimal", plan), tuple(groups[i].kind for i in order)
