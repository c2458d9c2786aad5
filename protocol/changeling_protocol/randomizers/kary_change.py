"""k-RR of changes that is silent about those who did not change: they send a uniform symbol.

A mutation costs ln(a/b) in all, where under plain k-RR it costs twice its loss. The price is that "no change" is not
told: it is what is left (docs/mathematics.md, "Joint responses").
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Self

from ..canonical import Fields
from ..coins import Coins
from .interface import Losses
from .kary import truth_or_other
from .odds import Odds, log_ratio
from .registry import register
from .spaces import MutationSpace, Space
from .words import input_in_words


@register
@dataclass(frozen=True, slots=True)
class KaryChange:
    """The symbols are the m inputs. A mutation sends itself with weight a, every other symbol with weight b.

    An entry without a change sends each symbol with weight 1, its own as well, which nobody favours.

    space: the mutations, without the paper's pairs (r, r).
    odds: a:b, favoured > other.
    Raises ValueError for parameters out of range.
    """

    kind: ClassVar[str] = "k-rr-change"
    space: MutationSpace
    odds: Odds

    def __post_init__(self) -> None:
        if not self.space.reports_changes:
            raise ValueError("this reports changes; for states there is k-RR")
        if self.space.repeats:
            raise ValueError("k-RR of changes tells mutations apart, and the pairs (r, r) are none")
        if self.space.size < 2:
            raise ValueError(f"over {self.space.answers} answer there is no mutation to report")
        if self.odds.favoured == self.odds.other:
            raise ValueError(f"odds of {self.odds.favoured}:{self.odds.other} say nothing: choose favoured > other")

    @property
    def symbols(self) -> int:
        """m, one for each input."""
        return self.space.size

    @property
    def losses(self) -> Losses:
        """L_mm = ln(a/b), L_m0 = ln(a·m/T), L_0m = ln(T/(b·m)), T = a + (m-1)b. The last two add up to the first."""
        a, b, m, total = self.odds.favoured, self.odds.other, self.symbols, self.total(1)
        insertions = self.odds.epsilon if self.space.null and self.space.answers > 1 else Decimal(0)
        return Losses(self.odds.epsilon, log_ratio(a * m, total), log_ratio(total, b * m), insertions)

    def total(self, true: int) -> int:
        """a + (m-1)b for a mutation, m for no change."""
        return self.favoured_total(true, self.odds)

    def weight(self, symbol: int, true: int) -> int:
        """a for a mutation's own symbol, b for every other; 1 for each if there is no change."""
        if not true:
            return 1
        return self.odds.favoured if symbol == true else self.odds.other

    def respond(self, true: int, coins: Coins) -> int:
        """Draws a symbol. Raises ValueError outside the space."""
        return self.symbol_at(coins.below(self.total(true)), true)

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total) selects."""
        return self.favoured_symbol_at(drawn, true, self.odds)

    @property
    def agreement(self) -> Fraction:
        """1/m: the base is uniform."""
        return Fraction(1, self.symbols)

    def tells(self, true: int) -> bool:
        """Whether there is a change."""
        return true != 0

    def agrees(self, symbol: int, true: int) -> bool:
        """Whether the symbol is the mutation."""
        return symbol == true

    def favoured_total(self, true: int, odds: Odds) -> int:
        """a + (m-1)b for a mutation at these odds, m for no change."""
        return odds.favoured + (self.symbols - 1) * odds.other if true else self.symbols

    def favoured_symbol_at(self, drawn: int, true: int, odds: Odds) -> int:
        """For a mutation its own symbol below a, then the others in order; without a change all in order."""
        if not 0 <= true < self.symbols:
            raise ValueError(f"inputs are numbered 0 to {self.symbols - 1}, and this one is not")
        return truth_or_other(drawn, true, odds) if true else drawn

    def at_odds(self, odds: Odds) -> Self:
        """The same space at other odds. Raises ValueError for odds that say nothing."""
        return replace(self, odds=odds)

    def said(self, symbol: int, states: Sequence[str]) -> str:
        """The input that the symbol stands for."""
        return input_in_words(self.space, symbol, states)

    def as_fields(self) -> Fields:
        """The odds."""
        return {"odds": [self.odds.favoured, self.odds.other]}

    @classmethod
    def from_fields(cls, space: Space, fields: Fields) -> Self | None:
        """The randomizer of these odds; None for other fields, or a space of states."""
        match space, fields:
            case MutationSpace(), {"odds": [int(a), int(b)], **rest} if not rest:
                return cls(space, Odds(a, b))
        return None
