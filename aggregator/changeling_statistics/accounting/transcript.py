"""The (ε, δ) of everything that one entry ever reports under a survey's plan, where nobody is trusted.

On each track the worst way counts in which two changelogs can differ (`worst_compositions`), and the tracks of a group
compose; a joint group has one curve for all its tracks (`joint_curve`). Which group an entry drew, and which nodes,
can be seen on its envelopes. So whoever reads them is taken to know both, and the worst of them counts:

    δ(ε) = max_g δ_g(ε)

Each δ_g is bounded by that of the worst pair of changelogs, and if r of N nodes are drawn, by the worst r of them. All
figures are upper bounds, and never above the pure ones. Deltas below LEAST_DELTA are not claimed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Protocol

from changeling_protocol import Calendar, Constraint, Group, ReleasePlan, group_cost, rounded_up

from .curve import PrivacyCurve
from .distributions import (
    CurveCounts,
    PrivacyLossDistribution,
    all_together,
    distribution,
    grid_interval,
    upper_distribution,
)
from .joint import joint_curve
from .worst_compositions import worst_compositions

LEAST_DELTA = 1e-12
"""Floating-point sums are exact to about a thousandth of this. Below it only the pure figure is given."""
ROUNDING = 1e-14
"""What is added to a δ for what floating-point sums may have lost."""
BISECTIONS = 40


class Charged(Protocol):
    """What the accounting needs to know of a survey; `Survey` has it all."""

    @property
    def plan(self) -> ReleasePlan:
        """What is reported, and through which randomizers."""
        ...

    @property
    def calendar(self) -> Calendar:
        """When periods end."""
        ...

    @property
    def constraint(self) -> Constraint:
        """How often an entry may mutate."""
        ...

    @property
    def closed(self) -> bool:
        """Whether every entry has an answer from the first period to the last."""
        ...

    @property
    def cost(self) -> Decimal:
        """The pure epsilon that the plan can cost an entry at most."""
        ...

    @property
    def relay(self) -> str:
        """The URL of the relay that shuffles the survey's envelopes; empty if none does."""
        ...


def delta_at(survey: Charged, epsilon: float) -> float:
    """δ(ε) of everything that an entry reports, in the worst group, rounded up; 0 if ε is at least the pure cost.

    epsilon: in nats, at least 0. Raises ValueError below.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be 0 or more, got {epsilon}")
    if epsilon >= survey.cost:
        return 0.0
    return max(_exposed(survey, group).delta(epsilon) for group in set(survey.plan.groups))


def epsilon_at(survey: Charged, delta: float) -> float:
    """The least ε with δ(ε) <= delta, of everything that an entry reports, in the worst group; in nats, rounded up.

    delta: from 0 to below 1. Below LEAST_DELTA the result is the survey's pure cost, which it never exceeds.
    Raises ValueError for a delta outside that range.
    """
    return max(group_epsilon(survey, group, delta) for group in set(survey.plan.groups))


def group_epsilon(survey: Charged, group: Group, delta: float) -> float:
    """The same for the entries of one group of the survey."""
    check_delta(delta)
    exposed = _exposed(survey, group)
    low, high = 0.0, exposed.pure
    if delta < LEAST_DELTA:
        return high
    if exposed.delta(low) <= delta:
        return low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if exposed.delta(middle) <= delta else (middle, high)
    return high


def check_delta(delta: float) -> None:
    """Raises ValueError for a delta outside [0, 1)."""
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be at least 0 and below 1, got {delta}")


@dataclass(frozen=True, slots=True)
class _Exposed:
    """What an entry of a group can lose: its pure cost in nats, rounded up, and its privacy losses."""

    pure: float
    losses: PrivacyLossDistribution

    def delta(self, epsilon: float) -> float:
        """δ(ε), rounded up."""
        if epsilon >= self.pure:
            return 0.0
        slack = 1e-11 * self.pure  # covers losses that were taken for multiples of the grid
        delta = float(self.losses.get_delta_for_epsilon(max(0.0, epsilon - slack)))
        return min(1.0, delta * (1 + 1e-9) + ROUNDING)


def _exposed(survey: Charged, group: Group) -> _Exposed:
    pure = group_cost(group, survey.calendar, survey.constraint, survey.closed)
    losses = group_distribution(group, survey.calendar, survey.constraint, survey.closed)
    return _Exposed(rounded_up(pure), losses)


@lru_cache(maxsize=128)
def group_distribution(
    group: Group, calendar: Calendar, constraint: Constraint, closed: bool
) -> PrivacyLossDistribution:
    """A privacy-loss distribution whose δ(ε) is at least that of every pair of changelogs of an entry of the group.

    The tracks are composed, each at its worst for every ε. One pair of changelogs need not be the worst on all tracks,
    so the figure can be too large. A joint group is one report with a curve of its own.
    """
    if group.joint is not None:
        curve = joint_curve(group)
        return distribution(curve, grid_interval([{curve: 1}]))
    tracks = Counter(group.tracks)
    compositions = {track: worst_compositions(track, calendar, constraint, closed) for track in tracks}
    interval = _common_interval([(compositions[track], count) for track, count in tracks.items()])
    upper = {track: upper_distribution(compositions[track], interval) for track in tracks}
    return all_together([upper[track].self_compose(count) for track, count in tracks.items()])


def _common_interval(tracks: Sequence[tuple[Sequence[CurveCounts], int]]) -> float:
    """The grid on which all tracks of a group are composed.

    tracks: for each distinct track its compositions, and how many tracks are alike.
    """
    together: Counter[PrivacyCurve] = Counter()
    for compositions, count in tracks:
        largest: Counter[PrivacyCurve] = Counter()
        for counts in compositions:
            largest |= Counter(counts)
        for curve, reports in largest.items():
            together[curve] += reports * count
    return grid_interval([together])
