"""What a kind of randomizer offers the planner: randomizers at given odds, and how noisy their reports are."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from changeling_protocol import Losses, MutationSpace, Odds, Randomizer

from ..estimate import Floats

Share = TypeVar("Share", float, Floats)

ONE_CHANGE = Losses(mutations=Decimal(1), appears=Decimal("0.5"), vanishes=Decimal("0.5"), insertions=Decimal(1))
"""The losses, in units of ln(a/b), of a randomizer under which a mutation costs that once. How it divides between
appearing and vanishing does not change cost(κ, N)."""

ANY_ODDS = Odds(3, 1)
"""The odds of what is offered for joint responses, whose odds follow from their group."""


@dataclass(frozen=True, slots=True)
class Variances:
    """The variance of what one report decodes to, mean over the answers, in entries squared, by what the entry did.

    For reports of changes:
    none: the entry did not change.
    came: it had no answer and now has one.
    moved: it left one answer for another.
    For reports of states:
    none: the entry has no answer.
    came and moved: it has one.
    """

    none: float
    came: float
    moved: float

    def mixed(self, moved: Share, came: Share | float = 0.0) -> Share:
        """The mean over entries of which a share `moved` moved, a share `came` came, and the others did neither."""
        return (1 - came - moved) * self.none + came * self.came + moved * self.moved


@dataclass(frozen=True, slots=True)
class Offer:
    """A randomizer that the planner may choose.

    make: makes the randomizer, once it is chosen; that can be slow.
    variances: of one report.
    conserved: of one report if changes are known to add up to zero over the answers, as in a closed cohort after the
    first period.
    """

    make: Callable[[], Randomizer]
    variances: Variances
    conserved: Variances


@dataclass(frozen=True, slots=True)
class ChangeOffers:
    """What a kind of randomizer for changes offers at any odds a:b.

    unit: the losses of a report in units of ln(a/b). From them follows what a track of such reports costs.
    offers: takes the mutations, the odds, the share of the entries that move on a node, and whether changes add up to
    zero over the answers; gives the randomizers that are worth comparing.
    """

    unit: Losses
    offers: Callable[[MutationSpace, Odds, float, bool], Iterable[Offer]]
