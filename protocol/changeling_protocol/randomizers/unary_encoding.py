"""Optimal unary encoding: a state is told by one bit per state, each randomized on its own.

The true state's bit is set with 1/2, every other with b/(a+b); loss ln(a/b) (Wang et al. 2017).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..coins import Coins
from .interface import Losses
from .odds import Odds
from .registry import register
from .spaces import Space, StateSpace

MOST_BITS = 62


@register
@dataclass(frozen=True, slots=True)
class UnaryEncoding:
    """On a space of m <= 62 states. Bit i of a symbol speaks of input i.

    Pr(symbol | v) = b^k · a^(m-1-k) / 2(a+b)^(m-1),     k = how many bits besides v's are set
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
        return 1 << self.space.size

    @property
    def losses(self) -> Losses:
        epsilon = self.odds.epsilon
        return Losses(mutations=epsilon, appears=epsilon, vanishes=epsilon, insertions=epsilon)

    def total(self, true: int = 0) -> int:  # noqa: ARG002
        total: int = 2 * self._other_total ** (self.space.size - 1)
        return total

    def weight(self, symbol: int, true: int) -> int:
        others = (symbol & ~(1 << true)).bit_count()
        weight: int = self.odds.other**others * self.odds.favoured ** (self.space.size - 1 - others)
        return weight

    def respond(self, true: int, coins: Coins) -> int:
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

    def as_fields(self) -> dict[str, Any]:
        return {"odds": [self.odds.favoured, self.odds.other]}

    @classmethod
    def from_fields(cls, space: Space, fields: dict[str, Any]) -> Self | None:
        match space, fields:
            case StateSpace(), {"odds": [int(a), int(b)], **rest} if not rest:
                return cls(space, Odds(a, b))
        return None

    @property
    def _other_total(self) -> int:
        return self.odds.favoured + self.odds.other
