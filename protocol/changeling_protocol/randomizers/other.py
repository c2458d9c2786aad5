"""Optimal unary encoding, and custom randomizers of any matrix of integer weights.

Unary encoding: a state is reported as one bit for each state, every bit randomized on its own. The true state's bit is
set with probability 1/2, every other with b/(a+b); the loss is ln(a/b) (Wang et al. 2017). A custom randomizer's loss
is read off the rows of its matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from typing import ClassVar

from .interface import (
    Losses,
    OddsRandomizer,
    Randomizer,
    Space,
    StateSpace,
    check_input,
    check_telling,
    listed,
    log_ratio,
    own_states,
    register,
)

MOST_BITS = 62
"""The most states, as every bit pattern is a symbol."""


@register
@dataclass(frozen=True, slots=True)
class UnaryEncoding(OddsRandomizer):
    """A symbol is m bits; bit i, the i-th lowest, is about the input i.

        Pr(symbol | v) = b^k · a^(m-1-k) / 2(a+b)^(m-1),     k = how many bits other than v's are set

    space: the m states, 2 to 62.
    odds: a:b, favoured > other.
    Raises ValueError for parameters out of range.
    """

    kind: ClassVar[str] = "unary"
    space: StateSpace

    def __post_init__(self) -> None:
        if self.space.reports_changes:
            raise ValueError("unary encoding reports states; for changes there is signed subset selection")
        check_telling(self.odds)
        if not 2 <= self.space.size <= MOST_BITS:
            raise ValueError(f"unary encoding takes 2 to {MOST_BITS} states, got {self.space.size}")

    @property
    def symbols(self) -> int:
        """2^m, every pattern of bits."""
        return 1 << self.space.size

    @property
    def ticks(self) -> tuple[Fraction, Fraction]:
        """The probabilities that the truth's own bit is set, and that another is, by which a person is told of it."""
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

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total) selects: its digits decide bit by bit."""
        check_input(self.space, true)
        symbol = 0
        for bit in range(self.space.size):
            drawn, digit = divmod(drawn, 2 if bit == true else self._other_total)
            symbol |= (digit < (1 if bit == true else self.odds.other)) << bit
        return symbol

    def said(self, symbol: int, states: Sequence[str]) -> str:
        """The states whose bit is set."""
        ticked = [name for bit, name in enumerate(own_states(self.space, states)) if symbol >> bit & 1]
        return listed(ticked, "and") or "none of the answers"

    @property
    def _other_total(self) -> int:
        return self.odds.favoured + self.odds.other


@register
@dataclass(frozen=True, slots=True)
class CustomResponse(Randomizer):
    """The randomizer with Pr(o|v) = weights[o][v] / Σ_o weights[o][v].

    space: its m inputs.
    weights: a row for each symbol o, a column for each input v; integers from 0 to 2^64 - 1. Columns may have
    different totals.

    A row with both zeros and positive weights makes the pure loss infinite. Such a matrix can be studied for its
    (ε, δ), but `losses` raises ValueError, and so no survey can be made of it.
    Raises ValueError for other shapes or weights, for a row or a column of zeros.
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
        """The number of symbols: one for each row."""
        return len(self.weights)

    @property
    def losses(self) -> Losses:
        """The largest ratios within a row. Raises ValueError where one is infinite."""
        return _losses(self)

    def total(self, true: int) -> int:
        """The sum of the input's column."""
        return sum(row[true] for row in self.weights)

    def weight(self, symbol: int, true: int) -> int:
        """weights[symbol][true]."""
        return self.weights[symbol][true]

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total) selects: symbols in order, each by its weight."""
        for symbol, row in enumerate(self.weights):
            if drawn < row[true]:
                return symbol
            drawn -= row[true]
        raise ValueError("the integer drawn is not below the input's total")

    def said(self, symbol: int, states: Sequence[str]) -> str:  # noqa: ARG002
        """The symbol's number: its meaning is in the weights."""
        return f"the number {symbol}, of {self.symbols}"


@lru_cache(maxsize=64)
def _losses(randomizer: CustomResponse) -> Losses:
    space = randomizer.space
    pairs = [space.pair(v) for v in range(space.size)]
    if not space.reports_changes:
        between_states = _worst(randomizer, range(space.size), range(space.size))
        return Losses.alike(between_states)
    mutations = [v for v, (old, new) in enumerate(pairs) if old != new]
    insertions = [v for v in mutations if pairs[v][0] == 0]
    return Losses(
        mutations=_worst(randomizer, mutations, mutations),
        appears=_worst(randomizer, mutations, [0]),
        vanishes=_worst(randomizer, [0], mutations),
        insertions=_worst(randomizer, insertions, insertions),
    )


def _worst(randomizer: CustomResponse, above: Sequence[int], below: Sequence[int]) -> Decimal:
    """ln max Pr(o|u)/Pr(o|v) over symbols o, inputs u in `above` and v in `below`, rounded up; 0 if there are none."""
    if not above or not below:
        return Decimal(0)
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
