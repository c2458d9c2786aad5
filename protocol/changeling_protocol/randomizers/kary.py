"""Randomizers of small alphabets: k-ary randomized response, unary encoding, and custom ones of any integer weights.

k-ary randomized response tells the truth with weight a, and every other symbol with weight b. It is the optimal rule of
its alphabet at loss ln(a/b) (Kairouz, Oh, Viswanath 2014; Pan 2023, eq. 34). k-RR of changes is silent about those who
did not change: they send a uniform symbol. There a mutation costs ln(a/b) in all, where under plain k-RR it costs twice
its loss. The price is that "no change" is not told: it is what is left (docs/mathematics.md, "Joint responses"). And
the law of one report of a history, beside whose truth states are not all as likely.

Unary encoding reports a state as one bit for each state, every bit randomized on its own. The true state's bit is set
with probability 1/2, every other with b/(a+b); the loss is ln(a/b) (Wang et al. 2017).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from typing import ClassVar

from .interface import (
    Agreeing,
    Losses,
    MutationSpace,
    Odds,
    OddsRandomizer,
    Randomizer,
    Space,
    StateSpace,
    check_input,
    check_telling,
    input_in_words,
    listed,
    log_ratio,
    own_states,
    register,
)


@dataclass(frozen=True, slots=True)
class Kary(Agreeing):
    """The part that both share: the symbols are the m inputs, and the one that agrees is the input itself."""

    @property
    def symbols(self) -> int:
        """m, one for each input."""
        return self.space.size

    @property
    def agreement(self) -> Fraction:
        """1/m: the base is uniform."""
        return Fraction(1, self.symbols)

    def agrees(self, symbol: int, true: int) -> bool:
        """True if the symbol is the truth."""
        return symbol == true

    def favoured_total(self, true: int, odds: Odds) -> int:
        """a + (m-1)b at these odds where the input tells, else m."""
        return odds.favoured + (self.symbols - 1) * odds.other if self.tells(true) else self.symbols

    def favoured_symbol_at(self, drawn: int, true: int, odds: Odds) -> int:
        """The truth below a, then the others in order; all in order for an input that tells nothing."""
        check_input(self.space, true)
        if not self.tells(true):
            return drawn
        if drawn < odds.favoured:
            return true
        other = (drawn - odds.favoured) // odds.other
        return other + (other >= true)

    def said(self, symbol: int, states: Sequence[str]) -> str:
        """The input that the symbol stands for."""
        return input_in_words(self.space, symbol, states)


@register
@dataclass(frozen=True, slots=True)
class KaryResponse(Kary):
    """k-RR on a space of m inputs: the symbols are the inputs, and the truth is reported with probability p.

        p = a / (a + (m-1)b)        q = b / (a + (m-1)b), the probability of each other symbol

    space: the inputs. odds: a:b.
    """

    kind: ClassVar[str] = "k-rr"

    @property
    def losses(self) -> Losses:
        """ln(a/b) between any two inputs; 0 where there is only one input of a kind."""
        epsilon = self.odds.epsilon if self.symbols > 1 else Decimal(0)
        alike = self.space.reports_changes and (self.space.answers == 1 or not self.space.null)
        insertions = Decimal(0) if alike else epsilon  # one insertion, or none, is told apart from no other
        return Losses(mutations=epsilon, appears=epsilon, vanishes=epsilon, insertions=insertions)

    def tells(self, true: int) -> bool:  # noqa: ARG002
        """Always: no change, too, favours its own symbol."""
        return True


@register
@dataclass(frozen=True, slots=True)
class KaryChange(Kary):
    """The symbols are the m inputs. A mutation sends itself with weight a, every other symbol with weight b.

    An entry without a change sends each symbol with weight 1, its own as well, which nobody favours.

    space: the mutations, without the paper's pairs (r, r).
    odds: a:b, favoured > other.
    Raises ValueError for parameters out of range.
    """

    kind: ClassVar[str] = "k-rr-change"
    space: MutationSpace

    def __post_init__(self) -> None:
        if not self.space.reports_changes:
            raise ValueError("this reports changes; for states there is k-RR")
        if self.space.repeats:
            raise ValueError("k-RR of changes tells mutations apart, and the pairs (r, r) are none")
        if self.space.size < 2:
            raise ValueError(f"over {self.space.answers} answer there is no mutation to report")
        check_telling(self.odds)

    @property
    def losses(self) -> Losses:
        """L_mm = ln(a/b), L_m0 = ln(a·m/T), L_0m = ln(T/(b·m)), T = a + (m-1)b. The last two add up to the first."""
        a, b, m, total = self.odds.favoured, self.odds.other, self.symbols, self.total(1)
        insertions = self.odds.epsilon if self.space.null and self.space.answers > 1 else Decimal(0)
        return Losses(self.odds.epsilon, log_ratio(a * m, total), log_ratio(total, b * m), insertions)

    def tells(self, true: int) -> bool:
        """True if there is a change."""
        return true != 0

    def weight(self, symbol: int, true: int) -> int:
        """a for a mutation's own symbol, b for every other; 1 for each if there is no change."""
        return Kary.weight(self, symbol, true) if true else 1


@register
@dataclass(frozen=True, slots=True)
class BasedResponse(Randomizer):
    """The state itself with weight `truth`, and beside it any state, NULL with weight `null` and answers with `answer`.

        Pr(o | v) = (base(o) + truth·[o = v]) / (null + z·answer + truth)

    It is the law of one report of a history group in which NULL is a state: what an entry sends instead of the truth
    is NULL more often early than late. k-RR of states is the one with null = answer.

    space: the states, NULL among them. truth, null, answer: positive integers.
    Raises ValueError for parameters out of range.
    """

    kind: ClassVar[str] = "based-states"
    space: StateSpace
    truth: int
    null: int
    answer: int

    def __post_init__(self) -> None:
        if not isinstance(self.space, StateSpace) or not self.space.null:
            raise ValueError("this reports states, NULL among them; without NULL there is k-RR")
        if min(self.truth, self.null, self.answer) < 1:
            raise ValueError(f"weights are positive, got {self.truth}, {self.null} and {self.answer}")

    @property
    def symbols(self) -> int:
        """z + 1, one for each state."""
        return self.space.size

    @property
    def losses(self) -> Losses:
        """The logarithm of 1 + truth over the lesser of the other weights."""
        rarest = min(self.null, self.answer)
        return Losses.alike(log_ratio(self.truth + rarest, rarest))

    def weight(self, symbol: int, true: int) -> int:
        """The weight of the symbol itself, and `truth` more for the truth."""
        return (self.answer if symbol else self.null) + (self.truth if symbol == true else 0)

    def total(self, true: int = 0) -> int:  # noqa: ARG002
        """The sum of the weights, the same for all states."""
        return self.truth + self.null + self.space.answers * self.answer

    def symbol_at(self, drawn: int, true: int) -> int:
        """The truth below `truth`, then the states in order."""
        check_input(self.space, true)
        rest = drawn - self.truth
        if rest < 0:
            return true
        return 0 if rest < self.null else 1 + (rest - self.null) // self.answer

    def said(self, symbol: int, states: Sequence[str]) -> str:
        """The state that the symbol stands for."""
        return input_in_words(self.space, symbol, states)


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
