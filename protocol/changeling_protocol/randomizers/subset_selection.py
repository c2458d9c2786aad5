"""Subset selection: a state is reported as a set of states, of a fixed size, that favours sets which hold it.

At the best size no report of a state with loss ln(a/b) has less variance (Ye, Barg 2018). Sets of one state are k-RR.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

from ..canonical import Fields
from ..coins import Coins
from .interface import SYMBOL_LIMIT, Losses
from .odds import Odds
from .registry import register
from .sign_vectors import SignVectors
from .spaces import Space, StateSpace
from .words import listed, own_states


@register
@dataclass(frozen=True, slots=True)
class SubsetSelection:
    """A symbol is a set of `chosen` of the m states; sets that hold the truth are favoured a:b.

        Pr(S | v) = a / T if v is in S, else b / T,      T = a·C(m-1, chosen-1) + b·C(m-1, chosen)

    Symbols are numbered by the rank of their sets.

    space: the m states.
    odds: a:b, favoured > other.
    chosen: how many states a set has, 1 to m - 1.
    Raises ValueError for parameters out of range, and from 2^63 symbols on.
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
        """The sets as vectors: a plus for each state of the set, zeros elsewhere."""
        return SignVectors(self.space.size, ((self.chosen, 0),))

    @property
    def symbols(self) -> int:
        """C(m, chosen)."""
        return self.subsets.count

    @property
    def losses(self) -> Losses:
        """ln(a/b) between any two states."""
        epsilon = self.odds.epsilon
        return Losses(mutations=epsilon, appears=epsilon, vanishes=epsilon, insertions=epsilon)

    def total(self, true: int = 0) -> int:
        """T, whatever the state."""
        return self.favoured_total(true, self.odds)

    def weight(self, symbol: int, true: int) -> int:
        """a for a set that holds the truth, b for another."""
        return self.odds.favoured if self.agrees(symbol, true) else self.odds.other

    def respond(self, true: int, coins: Coins) -> int:
        """Draws a set. Raises ValueError outside the space."""
        return self.symbol_at(coins.below(self.total()), true)

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total) selects: sets that hold the truth first, each by rank."""
        return self.favoured_symbol_at(drawn, true, self.odds)

    @property
    def agreement(self) -> Fraction:
        """chosen / m: the base is uniform over the sets."""
        return Fraction(self.chosen, self.space.size)

    def tells(self, true: int) -> bool:  # noqa: ARG002
        """Always: every state favours the sets that hold it."""
        return True

    def agrees(self, symbol: int, true: int) -> bool:
        """Whether the set holds the state."""
        return self.subsets.unrank(symbol)[true] == 1

    def favoured_total(self, true: int, odds: Odds) -> int:
        """a·C(m-1, chosen-1) + b·C(m-1, chosen) at these odds."""
        subsets = self.subsets
        holding = subsets.completing({true: 1}).count
        return odds.favoured * holding + odds.other * (subsets.count - holding)

    def favoured_symbol_at(self, drawn: int, true: int, odds: Odds) -> int:
        """Sets that hold the state first, each by rank."""
        if not 0 <= true < self.space.size:
            raise ValueError(f"inputs are numbered 0 to {self.space.size - 1}, and this one is not")
        subsets = self.subsets
        holding = odds.favoured * subsets.completing({true: 1}).count
        fixed, weight = ({true: 1}, odds.favoured) if drawn < holding else ({true: 0}, odds.other)
        rank = (drawn if drawn < holding else drawn - holding) // weight
        return subsets.rank(subsets.completed(subsets.completing(fixed).unrank(rank), fixed))

    def at_odds(self, odds: Odds) -> Self:
        """The same sets at other odds. Raises ValueError for odds that say nothing."""
        return replace(self, odds=odds)

    def said(self, symbol: int, states: Sequence[str]) -> str:
        """The states of the set, one of which may be the true one."""
        chosen = zip(own_states(self.space, states), self.subsets.unrank(symbol), strict=True)
        return listed([name for name, sign in chosen if sign], "or")

    def as_fields(self) -> Fields:
        """The odds, and how many states a set has."""
        return {"odds": [self.odds.favoured, self.odds.other], "chosen": self.chosen}

    @classmethod
    def from_fields(cls, space: Space, fields: Fields) -> Self | None:
        """The randomizer of these parameters; None for other fields, or a space of mutations."""
        match space, fields:
            case StateSpace(), {"odds": [int(a), int(b)], "chosen": int(chosen), **rest} if not rest:
                return cls(space, Odds(a, b), chosen)
        return None
