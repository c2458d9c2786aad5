"""What the loss of a period does to a plan: how long estimates are missing, and how good they are when they are back.

Only nodes count that are expected to have reports enough to be published.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from changeling_protocol import Group, Track

from .bridges import allowed_gap, back_by, longest_gap, lost_period
from .option import Option
from .prediction import predict
from .wish import Wish

SURELY = 4.0
"""A node is counted on if it is expected to have so many standard deviations more reports than the minimum."""


@dataclass(frozen=True, slots=True)
class Outage:
    """What happens if the server is down as a period closes.

    gap: for how many periods estimates are missing at worst, whichever period it is; the whole horizon if for good.
    allowed: for how many they may be.
    lost: the period whose loss is looked at, the middle one.
    back: the period by which estimates are to be back then.
    error: the largest standard error from `back` on, as a fraction of the entries; inf if one is still missing.
    """

    gap: int
    allowed: int
    lost: int
    back: int
    error: float

    @property
    def bridged(self) -> bool:
        """Whether any lost period is bridged."""
        return self.gap <= self.allowed


def outage(wish: Wish, option: Option) -> Outage:
    """What the loss of a period does to a plan for this wish."""
    periods = wish.periods
    lost = lost_period(periods)
    back = back_by(lost, periods)
    after = predict(option.survey, wish.devices, retrospective=wish.retrospective, lost=lost)
    return Outage(gap_after_loss(wish, option), allowed_gap(periods), lost, back, float(after.errors[back - 1 :].max()))


def gap_after_loss(wish: Wish, option: Option) -> int:
    """For how many periods estimates are missing at worst after the loss of one."""
    groups, total = option.plan.groups, option.plan.total_share
    sure = sure_tracks(wish, groups, [group.share / total for group in groups])
    return longest_gap(sure, wish.periods, retrospective=wish.retrospective)


def is_bridged(wish: Wish, tracks: Sequence[Track]) -> bool:
    """Whether these tracks bridge any lost period."""
    return longest_gap(tracks, wish.periods, retrospective=wish.retrospective) <= allowed_gap(wish.periods)


def sure_tracks(wish: Wish, groups: Sequence[Group], shares: Sequence[float]) -> list[Track]:
    """The tracks of some groups, of which all nodes are expected to have reports enough to be published.

    shares: those of the groups among all devices.
    """
    return [
        track
        for group, share in zip(groups, shares, strict=True)
        for track in group.tracks
        if wish.devices * share * track.reports / track.count >= enough_reports(wish.minimum)
    ]


def enough_reports(minimum: int) -> float:
    """How many reports a node is expected to have if it is all but certain to have the minimum."""
    return minimum + SURELY * sqrt(minimum)
