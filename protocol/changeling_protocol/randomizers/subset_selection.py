"""Subset selection: a state is told by a set of states of a fixed size, which holds it more often than not.

Of all reports at loss ln(a/b) it has the least variance for one of the sizes (Ye, Barg 2018). Size 1 is k-RR.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..coins import Coins
from .interface import SYMBOL_LIMIT, Losses
from .odds import Odds
from .registry import register
from .sign_vectors import SignVectors
from .spaces import Space, StateSpace


@register
@dataclass(frozen=True, slots=True)
class SubsetSelection:
    """On a space of m states: every set of `chosen` states, those that hold the truth favoured a:b.

        Pr(S | v) = a / T for v in S, b / T otherwise,      T = a·C(m-1, chosen-1) + b·C(m-1, chosen)

    A symbol is the rank of its set. Raises ValueError from 2^63 symbols on.
    """

    kind: ClassVar[str] = "subset"
    space: StateSpace
    odds: Odds
    chosen: int

    def __post_init__(self) -> None:
        if self.space.reports_changes:
            raise ValueError("subset selection reports states; for changes there is signed subset selection")
        if self.odds.favoured == self.odds.other:
            raise ValueError(f"odds of {self.odds.favoured}:{self.odds.other} say nothing: choose favoured > other")
        if not 1 <= self.chosen < self.space.size:
            raise ValueError(f"a set has 1 to {self.space.size - 1} of {self.space.size} states, got {self.chosen}")
        if self.symbols >= SYMBOL_LIMIT:
            raise ValueError(f"{self.symbols} sets do not fit into 63 bits: choose fewer than {self.chosen} states")

    @property
    def subsets(self) -> SignVectors:
        """The sets, as vectors of pluses and zeros."""
        return SignVectors(self.space.size, ((self.chosen, 0),))

    @property
    def symbols(self) -> int:
        return self.subsets.count

    @property
    def losses(self) -> Losses:
        epsilon = self.odds.epsilon
        return Losses(mutations=epsilon, appears=epsilon, vanishes=epsilon, insertions=epsilon)

    def total(self, true: int = 0) -> int:
        subsets = self.subsets
        holding = subsets.completing({true: 1}).count
        return self.odds.favoured * holding + self.odds.other * (subsets.count - holding)

    def weight(self, symbol: int, true: int) -> int:
        return self.odds.favoured if self.subsets.unrank(symbol)[true] else self.odds.other

    def respond(self, true: int, coins: Coins) -> int:
        return self.symbol_at(coins.below(self.total()), true)

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total) selects."""
        if not 0 <= true < self.space.size:
            raise ValueError(f"inputs are numbered 0 to {self.space.size - 1}, and this one is not")
        subsets = self.subsets
        holding = self.odds.favoured * subsets.completing({true: 1}).count
        fixed, each = ({true: 1}, self.odds.favoured) if drawn < holding else ({true: 0}, self.odds.other)
        rest = (drawn if drawn < holding else drawn - holding) // each
        return subsets.rank(subsets.completed(subsets.completing(fixed).unrank(rest), fixed))

    def as_fields(self) -> dict[str, Any]:
        return {"odds": [self.odds.favoured, self.odds.other], "chosen": self.chosen}

    @classmethod
    def from_fields(cls, space: Space, fields: dict[str, Any]) -> Self | None:
        match space, fields:
            case StateSpace(), {"odds": [int(a), int(b)], "chosen": int(chosen), **rest} if not rest:
                return cls(space, Odds(a, b), chosen)
        return None
