"""Any column-stochastic randomizer, given by integer weights; its loss is read off its rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, ClassVar, Self

from ..coins import Coins
from .interface import Losses
from .odds import log_ratio
from .registry import register
from .spaces import Space


@register
@dataclass(frozen=True, slots=True)
class CustomResponse:
    """P(o|v) = weights[o][v] / Σ_o weights[o][v]: a row per symbol, a column per input, any column totals.

    A zero that faces a non-zero in its row makes the pure loss infinite. Such a matrix can be studied for its
    (ε, δ), but `losses` raises ValueError, and so no survey can be made of it.
    """

    kind: ClassVar[str] = "custom"
    space: Space
    weights: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        m = self.space.size
        if any(len(row) != m for row in self.weights):
            raise ValueError(f"every row of a custom randomizer needs {m} weights, one per input of its space")
        if any(type(w) is not int or not 0 <= w < 2**64 for row in self.weights for w in row):
            raise ValueError("the weights of a custom randomizer are integers from 0 to 2^64 - 1")
        if silent := [symbol for symbol, row in enumerate(self.weights) if not any(row)]:
            raise ValueError(f"no input ever sends symbol {silent[0]}: leave its row out")
        if not self.weights or not all(map(sum, zip(*self.weights, strict=True))):
            raise ValueError("some input has no symbol to send: every column needs a positive weight")

    @property
    def symbols(self) -> int:
        return len(self.weights)

    @property
    def losses(self) -> Losses:
        """Raises ValueError where the loss is infinite."""
        return _losses(self)

    def total(self, true: int) -> int:
        return sum(row[true] for row in self.weights)

    def weight(self, symbol: int, true: int) -> int:
        return self.weights[symbol][true]

    def respond(self, true: int, coins: Coins) -> int:
        if not 0 <= true < self.space.size:
            raise ValueError(f"inputs are numbered 0 to {self.space.size - 1}, and this one is not")
        return self.symbol_at(coins.below(self.total(true)), true)

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total) selects."""
        for symbol, row in enumerate(self.weights):
            if drawn < row[true]:
                return symbol
            drawn -= row[true]
        raise ValueError("the integer drawn is not below the input's total")

    def as_fields(self) -> dict[str, Any]:
        return {"weights": [list(row) for row in self.weights]}

    @classmethod
    def from_fields(cls, space: Space, fields: dict[str, Any]) -> Self | None:
        match fields:
            case {"weights": [*rows], **rest} if not rest and all(isinstance(row, list) for row in rows):
                return cls(space, tuple(tuple(row) for row in rows))
        return None


@lru_cache(maxsize=64)
def _losses(randomizer: CustomResponse) -> Losses:
    space = randomizer.space
    pairs = [space.pair(v) for v in range(space.size)]
    if not space.reports_changes:
        one = _worst(randomizer, range(space.size), range(space.size))
        return Losses(one, one, one, one)
    mutations = [v for v, (old, new) in enumerate(pairs) if old != new]
    insertions = [v for v in mutations if pairs[v][0] == 0]
    return Losses(
        mutations=_worst(randomizer, mutations, mutations),
        appears=_worst(randomizer, mutations, [0]),
        vanishes=_worst(randomizer, [0], mutations),
        insertions=_worst(randomizer, insertions, insertions),
    )


def _worst(randomizer: CustomResponse, above: Sequence[int], below: Sequence[int]) -> Decimal:
    """ln max P(o|u)/P(o|v) over symbols, u of `above` and v of `below`, rounded up."""
    totals = [sum(column) for column in zip(*randomizer.weights, strict=True)]
    worst = 0, 1
    for symbol, row in enumerate(randomizer.weights):
        most, least = _ratio(row, totals, above, below)
        if most and not least:
            raise ValueError(
                f"the pure loss is infinite: some inputs send symbol {symbol} and others never do. "
                "Give every weight of its row a positive value, or use the matrix for (ε, δ) alone"
            )
        if most * worst[1] > worst[0] * least:
            worst = most, least
    ratio = Fraction(*worst)
    return log_ratio(ratio.numerator, ratio.denominator)


def _ratio(row: Sequence[int], totals: Sequence[int], above: Sequence[int], below: Sequence[int]) -> tuple[int, int]:
    """max P(o|u) : min P(o|v) for the symbol o of this row, as two integers that may have a common factor."""
    u = reduce(lambda u, v: v if row[v] * totals[u] > row[u] * totals[v] else u, above)
    v = reduce(lambda u, v: v if row[v] * totals[u] < row[u] * totals[v] else u, below)
    return row[u] * totals[v], row[v] * totals[u]
