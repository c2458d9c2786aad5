"""What a kind of randomizer offers the planner: randomizers at given odds, and how noisy their reports will be."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from changeling_protocol import Odds, Randomizer
from changeling_protocol.randomizers import Losses

from ..estimate import Floats

Share = TypeVar("Share", float, Floats)


@dataclass(frozen=True, slots=True)
class Variances:
    """The response variance of one report, mean over the answers, in entries squared, by what its entry did.

    none: it has nothing to tell: it did not change over the node or, where states are reported, has no answer.
    came: it came to an answer, having had none; where states are reported, it has one.
    moved: it left one answer for another.
    """

    none: float
    came: float
    moved: float

    def mixed(self, moved: Share, came: Share | float = 0.0) -> Share:
        """The mean where a share `moved` of the entries moved, a share `came` came, and all others did neither."""
        return (1 - came - moved) * self.none + came * self.came + moved * self.moved


@dataclass(frozen=True, slots=True)
class Offer:
    """A randomizer that the planner may choose.

    make: makes it; for some that is slow, and most are never chosen.
    variances: of one report. conserved: of one report of changes that add up to zero over the answers, as they do in
    a closed cohort after the first period.
    """

    make: Callable[[], Randomizer]
    variances: Variances
    conserved: Variances


@dataclass(frozen=True, slots=True)
class ChangeOffers:
    """A kind of randomizer that tells changes, at any odds a:b.

    unit: the losses of a report in units of ln(a/b), from which follows how many reports of an entry can tell.
    offers: takes the number of answers, the odds, the share of the entries that move on a node, and whether the
    cohort is closed; gives what is worth comparing.
    """

    unit: Losses
    offers: Callable[[int, Odds, float, bool], Iterable[Offer]]
