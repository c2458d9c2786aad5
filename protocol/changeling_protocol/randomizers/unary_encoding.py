"""Optimal unary encoding: a state is reported as one bit for each state, every bit randomized on its own.

The true state's bit is set with probability 1/2, every other with b/(a+b); the loss is ln(a/b) (Wang et al. 2017).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from ..canonical import Fields
from ..coins import Coins
from .interface import Losses
from .odds import Odds
from .registry import register
from .spaces import Space, StateSpace
from .words import listed, own_states

MOST_BITS = 62
"""The most states, as every bit pattern is a symbol."""


@register
@dataclass(frozen=True, slots=True)
class UnaryEncoding:
    """A symbol is m bits; bit i, the i-th lowest, is about the input i.

        Pr(symbol | v) = b^k · a^(m-1-k) / 2(a+b)^(m-1),     k = how many bits other than v's are set

    space: the m states, 2 to 62.
    odds: a:b, favoured > other.
    Raises ValueError for parameters out of range.
    """

    kind: ClassVar[str] = "unary"
    space: StateSpace
    odds: Odds

    def __post_init__(self) -> None:
        if self.space.reports_changes:
            raise ValueError("unary encoding reports states; for changes there is signed subset selection")
        if self.odds.favoured == self.odds.other:
            raise ValueError(f"odds of {self.odds.favoured}:{self.odds.other} say nothing: choose favoured > other")
        if not 2 <= self.space.size <= MOST_BITS:
            raise ValueError(f"unary encoding takes 2 to {MOST_BITS} states, got {self.space.size}")

    @property
    def symbols(self) -> int:
        """2^m, every pattern of bits."""
        return 1 << self.space.size

    @property
    def losses(self) -> Losses:
        """ln(a/b) between any two states, whose two bits together tell that much."""
        epsilon = self.odds.epsilon
        return Losses(mutations=epsilon, appears=epsilon, vanishes=epsilon, insertions=epsilon)

    @property
    def ticks(self) -> tuple[Fraction, Fraction]:
        """The probabilities that the truth's own bit is set, and that another is."""
        return Fraction(1, 2), Fraction(self.odds.other, self.odds.favoured + self.odds.other)

    def total(self, true: int = 0) -> int:  # noqa: ARG002
        """2(a+b)^(m-1), whatever the state."""
        total: int = 2 * self._other_total ** (self.space.size - 1)
        return total

    def weight(self, symbol: int, true: int) -> int:
        """b^k · a^(m-1-k), whether the truth's own bit is set or not."""
        others = (symbol & ~(1 << true)).bit_count()
        weight: int = self.odds.other**others * self.odds.favoured ** (self.space.size - 1 - others)
        return weight

    def respond(self, true: int, coins: Coins) -> int:
        """Draws all bits from one integer. Raises ValueError outside the space."""
        return self.symbol_at(coins.below(self.total()), true)

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total) selects: its digits decide bit by bit."""
        if not 0 <= true < self.space.size:
            raise ValueError(f"inputs are numbered 0 to {self.space.size - 1}, and this one is not")
        symbol = 0
        for bit in range(self.space.size):
            drawn, digit = divmod(drawn, 2 if bit == true else self._other_total)
            symbol |= (digit < (1 if bit == true else self.odds.other)) << bit
        return symbol

    def said(self, symbol: int, states: Sequence[str]) -> str:
        """The states whose bit is set."""
        ticked = [name for bit, name in enumerate(own_states(self.space, states)) if symbol >> bit & 1]
        return listed(ticked, "and") or "none of the answers"

    def as_fields(self) -> Fields:
        """The odds."""
        return {"odds": [self.odds.favoured, self.odds.other]}

    @classmethod
    def from_fields(cls, space: Space, fields: Fields) -> Self | None:
        """The randomizer of these odds; None for other fields, or a space of mutations."""
        match space, fields:
            case StateSpace(), {"odds": [int(a), int(b)], **rest} if not rest:
                return cls(space, Odds(a, b))
        return None

    @property
    def _other_total(self) -> int:
        return self.odds.favoured + self.odds.other
