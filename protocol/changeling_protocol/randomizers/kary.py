"""k-ary randomized response: the truth with weight a, every other symbol with weight b.

The optimal rule of its alphabet at loss ln(a/b) (Kairouz, Oh, Viswanath 2014; Pan 2023, eq. 34).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Self

from ..canonical import Fields
from ..coins import Coins
from .interface import Losses
from .odds import Odds
from .registry import register
from .spaces import Space
from .words import input_in_words


@register
@dataclass(frozen=True, slots=True)
class KaryResponse:
    """k-RR on a space of m inputs: the symbols are the inputs, and the truth is reported with probability p.

        p = a / (a + (m-1)b)        q = b / (a + (m-1)b), the probability of each other symbol

    space: the inputs. odds: a:b.
    """

    kind: ClassVar[str] = "k-rr"
    space: Space
    odds: Odds

    @property
    def symbols(self) -> int:
        """m, one for each input."""
        return self.space.size

    def total(self, true: int = 0) -> int:
        """a + (m-1)b, whatever the input."""
        return self.favoured_total(true, self.odds)

    @property
    def losses(self) -> Losses:
        """ln(a/b) between any two inputs; 0 where there is only one input of a kind."""
        epsilon = self.odds.epsilon if self.symbols > 1 else Decimal(0)
        alike = self.space.reports_changes and (self.space.answers == 1 or not self.space.null)
        insertions = Decimal(0) if alike else epsilon  # one insertion, or none, is told apart from no other
        return Losses(mutations=epsilon, appears=epsilon, vanishes=epsilon, insertions=insertions)

    def weight(self, symbol: int, true: int) -> int:
        """a for the truth, b for every other symbol."""
        return self.odds.favoured if symbol == true else self.odds.other

    def respond(self, true: int, coins: Coins) -> int:
        """Draws the truth or another symbol. Raises ValueError outside the space."""
        return self.symbol_at(coins.below(self.total()), true)

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total) selects: the truth below a, then the others in order."""
        return self.favoured_symbol_at(drawn, true, self.odds)

    @property
    def agreement(self) -> Fraction:
        """1/m: the base is uniform."""
        return Fraction(1, self.symbols)

    def tells(self, true: int) -> bool:  # noqa: ARG002
        """Always: no change, too, favours its own symbol."""
        return True

    def agrees(self, symbol: int, true: int) -> bool:
        """Whether the symbol is the truth."""
        return symbol == true

    def favoured_total(self, true: int, odds: Odds) -> int:  # noqa: ARG002
        """a + (m-1)b at these odds."""
        return odds.favoured + (self.symbols - 1) * odds.other

    def favoured_symbol_at(self, drawn: int, true: int, odds: Odds) -> int:
        """The truth below a, then the others in order."""
        if not 0 <= true < self.symbols:
            raise ValueError(f"inputs are numbered 0 to {self.symbols - 1}, and this one is not")
        return truth_or_other(drawn, true, odds)

    def at_odds(self, odds: Odds) -> Self:
        """The same space at other odds."""
        return replace(self, odds=odds)

    def said(self, symbol: int, states: Sequence[str]) -> str:
        """The input that the symbol stands for."""
        return input_in_words(self.space, symbol, states)

    def as_fields(self) -> Fields:
        """The odds."""
        return {"odds": [self.odds.favoured, self.odds.other]}

    @classmethod
    def from_fields(cls, space: Space, fields: Fields) -> Self | None:
        """The randomizer of these odds; None for other fields."""
        match fields:
            case {"odds": [int(a), int(b)], **rest} if not rest:
                return cls(space, Odds(a, b))
        return None


def truth_or_other(drawn: int, true: int, odds: Odds) -> int:
    """The symbol that an integer in [0, a + (m-1)b) selects: the truth below a, then the other symbols in order.

    drawn: the integer. true: the number of the truth. odds: a:b.
    """
    if drawn < odds.favoured:
        return true
    other = (drawn - odds.favoured) // odds.other
    return other + (other >= true)
