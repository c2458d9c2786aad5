"""The (ε, δ) of everything one entry ever reports under a survey's plan, for the local model: no trusted party.

On each track the worst of the compositions that cost(κ, N) allows; the tracks of a group compose. The group and the
nodes of a random track are drawn from the entry's secret, whatever its data, and everybody sees them. So

    δ(ε) = Σ_g f_g δ_g(ε)

exactly: the outcome (g, reports) has probability f_g Pr_g(reports | u), and the hockey stick of a union of disjoint
outcomes is the sum. Each δ_g is bounded by the worst pair of that group, and where r of N nodes are drawn by the
worst set of r. All figures are upper bounds, never above the pure ones, and deltas below LEAST_DELTA are not claimed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from changeling_protocol import Calendar, Constraint, Group, ReleasePlan
from changeling_protocol.cost import group_cost
from changeling_protocol.randomizers import rounded_up

from .corners import track_corners
from .curve import PrivacyCurve
from .distributions import Parts, PrivacyLossDistribution, all_together, envelope, grid_interval

LEAST_DELTA = 1e-12
"""Floating-point sums are exact to about a thousandth of this; below it only the pure figure is sure."""
ROUNDING = 1e-14
BISECTIONS = 60


class Charged(Protocol):
    """What the accounting needs to know of a survey; a Survey is one."""

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


def delta_at(survey: Charged, epsilon: float) -> float:
    """δ(ε) of an entry's whole transcript, rounded up; 0 from the pure cost on.

    epsilon: in nats. Raises ValueError below 0.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be 0 or more, got {epsilon}")
    if epsilon >= survey.cost:
        return 0.0
    return _transcript_delta(_groups(survey), epsilon)


def epsilon_at(survey: Charged, delta: float) -> float:
    """The least ε with δ(ε) <= delta of an entry's whole transcript, in nats, rounded up; at most the pure cost.

    Raises ValueError for a delta outside [0, 1). Below LEAST_DELTA it is the pure cost.
    """
    checked_delta(delta)
    high = rounded_up(survey.cost)
    if delta < LEAST_DELTA:
        return high
    groups, low = _groups(survey), 0.0
    if _transcript_delta(groups, low) <= delta:
        return low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _transcript_delta(groups, middle) <= delta else (middle, high)
    return high


def checked_delta(delta: float) -> None:
    """Raises ValueError for a delta outside [0, 1)."""
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be at least 0 and below 1, got {delta}")


@dataclass(frozen=True, slots=True)
class _Exposed:
    """A group's probability f_g, its pure cost, and its privacy losses."""

    share: float
    pure: float
    losses: PrivacyLossDistribution

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.pure:
            return 0.0
        slack = 1e-11 * self.pure  # covers losses that were taken for multiples of the grid
        return float(self.losses.get_delta_for_epsilon(max(0.0, epsilon - slack)))


def _groups(survey: Charged) -> list[_Exposed]:
    plan, circumstances = survey.plan, (survey.calendar, survey.constraint, survey.closed)
    return [
        _Exposed(
            share=count * group.share / plan.total_share,
            pure=rounded_up(group_cost(group, *circumstances)),
            losses=group_distribution(group, *circumstances),
        )
        for group, count in Counter(plan.groups).items()
    ]


def _transcript_delta(groups: Sequence[_Exposed], epsilon: float) -> float:
    delta = sum(group.share * group.delta(epsilon) for group in groups)
    return min(1.0, delta * (1 + 1e-9) + ROUNDING)


def group_distribution(
    group: Group, calendar: Calendar, constraint: Constraint, closed: bool
) -> PrivacyLossDistribution:
    """A privacy-loss distribution above that of every pair of changelogs an entry of this group can have.

    Each track's worst composition at each ε, then the tracks composed; an upper bound, as one pair of changelogs
    need not be worst on all.
    """
    tracks = Counter(group.tracks)
    corners = {track: track_corners(track, calendar, constraint, closed) for track in tracks}
    interval = _common_interval([(corners[track], count) for track, count in tracks.items()])
    return all_together([envelope(corners[track], interval).self_compose(n) for track, n in tracks.items()])


def _common_interval(tracks: Sequence[tuple[Sequence[Parts], int]]) -> float:
    """The grid of a whole group: of the compositions that take each track's largest number of each curve."""
    together: Counter[PrivacyCurve] = Counter()
    for corners, count in tracks:
        largest: Counter[PrivacyCurve] = Counter()
        for parts in corners:
            largest |= Counter(parts)
        for curve, reports in largest.items():
            together[curve] += reports * count
    return grid_interval([together])
