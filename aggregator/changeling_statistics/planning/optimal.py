"""The best plan for a wish: the best shares of all candidates, or one group for everybody if that does better."""

from dataclasses import dataclass

import numpy as np
from changeling_protocol import ReleasePlan
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from .candidates import Candidate, candidates
from .design_problem import Problem
from .option import Option
from .shares import optimal_shares, rounded_shares
from .wish import Wish

ONE_THREAD = 1
"""The search is thousands of small dense systems. Several threads on each gain little, and wait ten times longer for
one another than they work wherever cores are shared."""
ALONE = 6
"""How many single groups are tried as plans for everybody."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The best plan for a wish.

    option: the plan, how accurate it will be and what it asks of a device.
    kinds: the kind of each of its groups: panel, changes, hierarchy or mix.
    gap: by what part the objective could fall at most with any other shares of the candidates, from 0 to 1. It is of
    the objective that the search uses, which counts sampling errors node by node (docs/mathematics.md, "Planning").
    considered: how many candidates there were.
    everybody_alike: whether the plan is one group for everybody, which has no sampling error of shares.
    """

    option: Option
    kinds: tuple[str, ...]
    gap: float
    considered: int
    everybody_alike: bool

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

    The search counts sampling errors node by node. So it is convex, and its optimum has a certificate. If the budget
    is large, sampling errors dominate, and one group for everybody, which has none, can do better; so the ALONE most
    promising of these are compared with it by their full prediction.
    Raises ValueError if the budget is too small to report anything.
    """
    with threadpool_limits(ONE_THREAD):
        return _optimal_plan(wish)


def _optimal_plan(wish: Wish) -> Planned:
    tried = candidates(wish)
    problem = Problem(tried, wish.periods, wish.retrospective)
    shares = optimal_shares(problem, wish.objective)
    integers, value = rounded_shares(problem, shares, wish.objective)
    gap = max(0.0, 1.0 - shares.bound / value)
    plans = [_planned(wish, tried, integers, gap)]
    plans += [_planned(wish, tried, alone, gap) for alone in _alone(problem)]
    return min(plans, key=lambda planned: planned.option.error(wish))


def _alone(problem: Problem) -> list[NDArray[np.int64]]:
    """The groups that reach every time with the least noise if everybody is in them, each as shares of candidates."""
    even = np.full(problem.periods, 1.0 / problem.periods)
    values = []
    for i, candidate in enumerate(problem.candidates):
        if all(part.span.reported is None for part in candidate.parts) and candidate.touches == problem.periods:
            alone = Problem([candidate.without_sampling()], problem.periods, problem.retrospective)
            values.append((alone.at(np.ones(1), even).value, i))
    best = [i for value, i in sorted(values)[:ALONE] if np.isfinite(value)]
    return [np.eye(1, len(problem.candidates), i, dtype=np.int64)[0] for i in best]


def _planned(wish: Wish, tried: list[Candidate], integers: NDArray[np.int64], gap: float) -> Planned:
    chosen = sorted(np.flatnonzero(integers).tolist(), key=lambda i: -int(integers[i]))
    plan = ReleasePlan(tuple(tried[i].group(int(integers[i])) for i in chosen))
    kinds = tuple(tried[i].kind for i in chosen)
    return Planned(Option.of(wish, "optimal", plan), kinds, gap, len(tried), len(chosen) == 1)
