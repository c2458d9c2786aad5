"""k-ary randomized response: the truth with weight a, every other symbol with weight b.

The optimal rule of its alphabet at loss ln(a/b) (Kairouz, Oh, Viswanath 2014; Pan 2023, eq. 34). And k-RR of changes
that is silent about those who did not change: they send a uniform symbol. There a mutation costs ln(a/b) in all, where
under plain k-RR it costs twice its loss. The price is that "no change" is not told: it is what is left
(docs/mathematics.md, "Joint responses"). And the law of one report of a history, beside whose truth states are not all
as likely.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar

from .interface import (
    Agreeing,
    Losses,
    MutationSpace,
    Odds,
    Randomizer,
    StateSpace,
    check_input,
    check_telling,
    input_in_words,
    log_ratio,
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
