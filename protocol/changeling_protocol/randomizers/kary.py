"""k-ary randomized response: the truth with weight a, every other symbol with weight b.

The optimal rule of its alphabet at loss ln(a/b) (Kairouz, Oh, Viswanath 2014; Pan 2023, eq. 34).
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Self

from ..coins import Coins
from .interface import Losses
from .odds import Odds
from .registry import register
from .spaces import Space


@register
@dataclass(frozen=True, slots=True)
class KaryResponse:
    """k-RR on a space of m inputs, its symbols being the inputs.

    p = a / (a + (m-1)b)        q = b / (a + (m-1)b)        a:b = odds
    """

    kind: ClassVar[str] = "k-rr"
    space: Space
    odds: Odds

    @property
    def symbols(self) -> int:
        return self.space.size

    def total(self, true: int = 0) -> int:  # noqa: ARG002
        return self.odds.favoured + (self.symbols - 1) * self.odds.other

    @property
    def losses(self) -> Losses:
        epsilon = self.odds.epsilon if self.symbols > 1 else Decimal(0)
        alike = self.space.reports_changes and self.space.answers == 1  # there is one insertion only
        return Losses(mutations=epsilon, appears=epsilon, vanishes=epsilon, insertions=Decimal(0) if alike else epsilon)

    def weight(self, symbol: int, true: int) -> int:
        return self.odds.favoured if symbol == true else self.odds.other

    def respond(self, true: int, coins: Coins) -> int:
        return self.symbol_at(coins.below(self.total()), true)

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total) selects."""
        if not 0 <= true < self.symbols:
            raise ValueError(f"inputs are numbered 0 to {self.symbols - 1}, and this one is not")
        if drawn < self.odds.favoured:
            return true
        other = (drawn - self.odds.favoured) // self.odds.other
        return other + (other >= true)

    def as_fields(self) -> dict[str, Any]:
        return {"odds": [self.odds.favoured, self.odds.other]}

    @classmethod
    def from_fields(cls, space: Space, fields: dict[str, Any]) -> Self | None:
        match fields:
            case {"odds": [int(a), int(b)], **rest} if not rest:
                return cls(space, Odds(a, b))
        return None
