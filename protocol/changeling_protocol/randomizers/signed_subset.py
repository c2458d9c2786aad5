"""Signed subset selection: a change is reported as a sign for each of several states, or as "nothing".

A mutation costs λ = ln(a/b) in all. Under k-RR it costs twice its loss: once where it appears, once where another
changelog has none (docs/mathematics.md, "Signed subset selection").
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import gcd
from typing import ClassVar, Self

from ..canonical import Fields
from ..coins import Coins
from .interface import SYMBOL_LIMIT, Losses
from .odds import Odds, log_ratio
from .registry import register
from .sign_vectors import SignVectors
from .spaces import MutationSpace, Space
from .words import listed, own_states

BALANCED = 0
"""As the number of pluses: every state has a sign, half of them a plus."""


@register
@dataclass(frozen=True, slots=True)
class SignedSubset:
    """A symbol is "nothing", or a vector with a sign for each of the d states: NULL, if there is one, and the answers.

        true input     "nothing"      each favoured vector    each other vector
        no change      1 - u                                  u / N
        old -> new     (1 - u) / Z    (a/b)·u / NZ            u / NZ

    A mutation old -> new favours the vectors with + at `new` and - at `old`. There are N vectors, F of them favoured;
    K = (F/N)(a/b - 1), Z = 1 + uK. All probabilities are ratios of integers.
    If u < 1, symbol 0 is "nothing" and the vectors follow by rank; if u = 1, there are only vectors.

    space: the mutations, without the paper's pairs (r, r); without NULL only moves from one answer to another.
    odds: a:b, favoured > other; how much likelier a favoured vector is than another.
    pluses: j, how many states get a plus, and how many a minus; the rest get zero. BALANCED: no state gets zero, and
    ⌊d/2⌋ or ⌈d/2⌉ get a plus.
    spoken: u, above 0 and at most 1: how likely an entry without a change sends a vector.
    Raises ValueError for parameters out of range, and from 2^63 symbols on.
    """

    kind: ClassVar[str] = "signed-subset"
    space: MutationSpace
    odds: Odds
    pluses: int = BALANCED
    spoken: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        d = self.states
        if self.space.repeats:
            raise ValueError("signed subsets tell mutations apart, and the pairs (r, r) are none")
        if d < 2:
            raise ValueError(f"over {self.space.answers} answer there is no mutation to report")
        if self.odds.favoured == self.odds.other:
            raise ValueError(f"odds of {self.odds.favoured}:{self.odds.other} say nothing: choose favoured > other")
        if self.pluses != BALANCED and not 0 < 2 * self.pluses < d:
            raise ValueError(f"pluses are 1 to {(d - 1) // 2} of {d} states, or {BALANCED} for balanced vectors")
        if not (0 < self.spoken <= 1 and self.spoken.denominator < 2**64):
            raise ValueError(f"spoken is above 0, at most 1, of integers below 2^64, got {self.spoken}")
        if self.symbols >= SYMBOL_LIMIT:
            raise ValueError(f"{self.symbols} symbols do not fit into 63 bits: choose fewer pluses")

    @property
    def states(self) -> int:
        """d, how many states there are, NULL included if it is one."""
        return self.space.states

    @property
    def vectors(self) -> SignVectors:
        """All N sign vectors."""
        d, j = self.states, self.pluses
        if j != BALANCED:
            return SignVectors(d, ((j, j),))
        low = d // 2
        return SignVectors(d, ((low, low),) if d % 2 == 0 else ((low, low + 1), (low + 1, low)))

    @property
    def favoured(self) -> int:
        """F: how many vectors a mutation favours."""
        return self.vectors.completing({0: 1, 1: -1}).count

    @property
    def quiet(self) -> int:
        """How many symbols mean "nothing": 1, or 0 where u = 1."""
        return int(self.spoken != 1)

    @property
    def symbols(self) -> int:
        """N, and one more if u < 1."""
        return self.quiet + self.vectors.count

    @property
    def losses(self) -> Losses:
        """L_mm = λ, L_m0 = ln((a/b) / Z), L_0m = ln Z. The last two add up to λ."""
        a, b = self.odds.favoured, self.odds.other
        unchanged, mutated = self.total(0), self.total(1)
        insertions = self.odds.epsilon if self.space.null and self.space.answers > 1 else Decimal(0)
        return Losses(
            self.odds.epsilon, log_ratio(a * unchanged, mutated), log_ratio(mutated, b * unchanged), insertions
        )

    def total(self, true: int) -> int:
        """The same for all mutations: Z times that of no change, times b."""
        return self.favoured_total(true, self.odds)

    def weight(self, symbol: int, true: int) -> int:
        """One weight for the vectors that the input favours, one for all others, one for "nothing"."""
        odds = self._favour(true, self.odds)
        u = self.spoken
        if symbol < self.quiet:
            return (u.denominator - u.numerator) * self.vectors.count * odds.other
        return u.numerator * (odds.favoured if true and self.agrees(symbol, true) else odds.other)

    def respond(self, true: int, coins: Coins) -> int:
        """Draws "nothing" or a vector. Raises ValueError outside the space."""
        return self.symbol_at(coins.below(self.total(true)), true)

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total) selects: by the signs at `old` and `new`, then by rank."""
        return self.favoured_symbol_at(drawn, true, self.odds)

    @property
    def agreement(self) -> Fraction:
        """u·F/N."""
        return self.spoken * self.favoured / self.vectors.count

    def tells(self, true: int) -> bool:
        """Whether there is a change."""
        return true != 0

    def agrees(self, symbol: int, true: int) -> bool:
        """Whether it is a vector with + at `new` and - at `old`."""
        if symbol < self.quiet:
            return False
        old, new = self.positions(true)
        signs = self.vectors.unrank(symbol - self.quiet)
        return signs[new] == 1 and signs[old] == -1

    def positions(self, true: int) -> tuple[int, int]:
        """Where a vector has the signs of an input's states `old` and `new`; the same twice without a change."""
        old, new = self.space.pair(true)
        return (old - (not self.space.null), new - (not self.space.null)) if true else (0, 0)

    def favoured_total(self, true: int, odds: Odds) -> int:
        """u.denominator·N·b + u.numerator·F·(a - b) at these odds; without a change as if a = b = 1."""
        favour = self._favour(true, odds)
        u, gain = self.spoken, self.favoured * (favour.favoured - favour.other)
        return u.denominator * self.vectors.count * favour.other + u.numerator * gain

    def favoured_symbol_at(self, drawn: int, true: int, odds: Odds) -> int:
        """By the signs at `old` and `new`, then by rank; "nothing" last."""
        if not 0 <= true < self.space.size:
            raise ValueError(f"inputs are numbered 0 to {self.space.size - 1}, and this one is not")
        favour = self._favour(true, odds)
        old, new = self.positions(true)
        for fixed in self._signs_at(old, new):
            weight = self.spoken.numerator * (favour.favoured if fixed == {new: 1, old: -1} else favour.other)
            rest = self.vectors.completing(fixed)
            if drawn < weight * rest.count:
                signs = self.vectors.completed(rest.unrank(drawn // weight), fixed)
                return self.quiet + self.vectors.rank(signs)
            drawn -= weight * rest.count
        return 0

    def at_odds(self, odds: Odds) -> Self:
        """The same vectors and u at other odds. Raises ValueError for odds that say nothing."""
        return replace(self, odds=odds)

    def said(self, symbol: int, states: Sequence[str]) -> str:
        """ "nothing", or which states there are more of, and which less."""
        if symbol < self.quiet:
            return "nothing"
        signs = list(zip(own_states(self.space, states), self.vectors.unrank(symbol - self.quiet), strict=True))
        more, less = ([name for name, sign in signs if sign == wanted] for wanted in (1, -1))
        return f"more of {listed(more, 'and')}, less of {listed(less, 'and')}"

    def as_fields(self) -> Fields:
        """The odds, the number of pluses, and u as a fraction in lowest terms."""
        return {
            "odds": [self.odds.favoured, self.odds.other],
            "pluses": self.pluses,
            "spoken": [self.spoken.numerator, self.spoken.denominator],
        }

    @classmethod
    def from_fields(cls, space: Space, fields: Fields) -> Self | None:
        """The randomizer of these parameters; None for other fields, or a space of states."""
        match space, fields:
            case (
                MutationSpace(),
                {"odds": [int(a), int(b)], "pluses": int(pluses), "spoken": [int(u), int(whole)], **rest},
            ) if not rest and 1 <= u <= whole and gcd(u, whole) == 1:
                return cls(space, Odds(a, b), pluses, Fraction(u, whole))
        return None

    @staticmethod
    def _favour(true: int, odds: Odds) -> Odds:
        """How a vector that the input favours is weighed against any other: 1:1 without a change."""
        return odds if true else Odds(1, 1)

    @staticmethod
    def _signs_at(old: int, new: int) -> Iterator[dict[int, int]]:
        """The signs that vectors may have at the two states of a mutation, which part all vectors into classes."""
        if old == new:
            yield {}
            return
        for at_new, at_old in product((1, -1, 0), repeat=2):
            yield {new: at_new, old: at_old}
