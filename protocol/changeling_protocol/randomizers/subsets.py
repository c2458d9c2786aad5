"""Subset selection of states, and signed subset selection of changes; and the vectors of signs that number both.

Signed subsets: a change is reported as a sign for each of several states, or as "nothing". A mutation costs
λ = ln(a/b) in all. Under k-RR it costs twice its loss: once where it appears, once where another changelog has none
(docs/mathematics.md, "Signed subset selection").

Subset selection: a state is reported as a set of states, of a fixed size, that favours sets which hold it. At the best
size no report of a state with loss ln(a/b) has less variance (Ye, Barg 2018). Sets of one state are k-RR.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import comb
from typing import ClassVar

from .interface import (
    SYMBOL_LIMIT,
    Agreeing,
    Losses,
    MutationSpace,
    Odds,
    StateSpace,
    check_input,
    check_telling,
    listed,
    log_ratio,
    own_states,
    register,
)

Shape = tuple[int, int]
"""How many pluses, how many minuses."""
Signs = tuple[int, ...]
"""A vector: +1, -1 or 0 for each position."""


BALANCED = 0
"""As the number of pluses: every state has a sign, half of them a plus."""


@dataclass(frozen=True, slots=True)
class SignVectors:
    """All vectors of one length that have one of some shapes: from rank to vector and back, without listing them.

    Vectors are ordered by shape, and within a shape position by position, + before - before 0. A subset is a vector
    without minuses.

    length: how many positions. shapes: (pluses, minuses), each once, in the order of the ranks.

    >>> pairs = SignVectors(3, ((1, 1),))
    >>> pairs.count, pairs.unrank(1), pairs.rank((1, 0, -1))
    (6, (1, 0, -1), 1)
    """

    length: int
    shapes: tuple[Shape, ...]

    @property
    def count(self) -> int:
        """How many vectors there are."""
        return sum(arrangements(self.length, *shape) for shape in self.shapes)

    def rank(self, signs: Signs) -> int:
        """The place of a vector in the order, from 0. Raises ValueError if it is not one of them."""
        shape = signs.count(1), signs.count(-1)
        if len(signs) != self.length or shape not in self.shapes:
            raise ValueError(f"not a vector of {self.length} signs with one of the shapes {self.shapes}")
        before = self.shapes[: self.shapes.index(shape)]
        rank = sum(arrangements(self.length, *earlier) for earlier in before)
        pluses, minuses = shape
        for left, sign in zip(range(self.length - 1, -1, -1), signs, strict=True):
            for candidate, rest in _choices(pluses, minuses):
                if candidate == sign:
                    pluses, minuses = rest
                    break
                rank += arrangements(left, *rest)
        return rank

    def unrank(self, rank: int) -> Signs:
        """The vector at a place in the order. Raises ValueError outside 0 .. count - 1."""
        if not 0 <= rank < self.count:
            raise ValueError(f"ranks run from 0 to {self.count - 1}, got {rank}")
        for pluses, minuses in self.shapes:
            size = arrangements(self.length, pluses, minuses)
            if rank < size:
                return tuple(_unranked(self.length, pluses, minuses, rank))
            rank -= size
        raise AssertionError("the shapes' sizes add up to the count")

    def completing(self, fixed: Mapping[int, int]) -> "SignVectors":
        """All vectors that the other positions may hold if some positions are fixed, in the order of positions.

        fixed: signs by position. `completed` makes one of our vectors of the two.
        """
        signs = list(fixed.values())
        pluses, minuses = signs.count(1), signs.count(-1)
        shapes = ((p - pluses, q - minuses) for p, q in self.shapes)
        length = self.length - len(fixed)
        return SignVectors(length, tuple(shape for shape in shapes if arrangements(length, *shape)))

    def completed(self, rest: Signs, fixed: Mapping[int, int]) -> Signs:
        """The vector with `fixed` signs at their positions, and the signs of `rest` at the others, in order."""
        others = iter(rest)
        return tuple(fixed[i] if i in fixed else next(others) for i in range(self.length))


def arrangements(length: int, pluses: int, minuses: int) -> int:
    """How many vectors of a length have so many pluses and minuses; 0 where that is impossible."""
    if pluses < 0 or minuses < 0 or pluses + minuses > length:
        return 0
    return comb(length, pluses) * comb(length - pluses, minuses)


def _choices(pluses: int, minuses: int) -> Iterator[tuple[int, Shape]]:
    """The signs a position may have, in order, and the shape that is then left for the positions after it."""
    yield 1, (pluses - 1, minuses)
    yield -1, (pluses, minuses - 1)
    yield 0, (pluses, minuses)


def _unranked(length: int, pluses: int, minuses: int, rank: int) -> Iterator[int]:
    """The signs, one after another, of the vector of this rank among those of one shape."""
    for left in range(length - 1, -1, -1):
        for sign, rest in _choices(pluses, minuses):
            size = arrangements(left, *rest)
            if rank < size:
                pluses, minuses = rest
                yield sign
                break
            rank -= size


@register
@dataclass(frozen=True, slots=True)
class SignedSubset(Agreeing):
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
    pluses: int = BALANCED
    spoken: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        d = self.states
        if self.space.repeats:
            raise ValueError("signed subsets tell mutations apart, and the pairs (r, r) are none")
        if d < 2:
            raise ValueError(f"over {self.space.answers} answer there is no mutation to report")
        check_telling(self.odds)
        if self.pluses != BALANCED and not 0 < 2 * self.pluses < d:
            raise ValueError(f"pluses are 1 to {(d - 1) // 2} of {d} states, or {BALANCED} for balanced vectors")
        object.__setattr__(self, "spoken", Fraction(self.spoken))  # so that a survey with the integer 1 can be read
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

    def weight(self, symbol: int, true: int) -> int:
        """One weight for the vectors that the input favours, one for all others, one for "nothing"."""
        odds = self._favour(true, self.odds)
        u = self.spoken
        if symbol < self.quiet:
            return (u.denominator - u.numerator) * self.vectors.count * odds.other
        return u.numerator * (odds.favoured if true and self.agrees(symbol, true) else odds.other)

    @property
    def agreement(self) -> Fraction:
        """u·F/N."""
        return self.spoken * self.favoured / self.vectors.count

    def tells(self, true: int) -> bool:
        """True if there is a change."""
        return true != 0

    def agrees(self, symbol: int, true: int) -> bool:
        """True if it is a vector with + at `new` and - at `old`."""
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
        check_input(self.space, true)
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

    def said(self, symbol: int, states: Sequence[str]) -> str:
        """ "nothing", or which states there are more of, and which less."""
        if symbol < self.quiet:
            return "nothing"
        signs = list(zip(own_states(self.space, states), self.vectors.unrank(symbol - self.quiet), strict=True))
        more, less = ([name for name, sign in signs if sign == wanted] for wanted in (1, -1))
        return f"more of {listed(more, 'and')}, less of {listed(less, 'and')}"

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


@register
@dataclass(frozen=True, slots=True)
class SubsetSelection(Agreeing):
    """A symbol is a set of `chosen` of the m states; sets that hold the truth are favoured a:b.

        Pr(S | v) = a / T if v is in S, else b / T,      T = a·C(m-1, chosen-1) + b·C(m-1, chosen)

    Symbols are numbered by the rank of their sets.

    space: the m states.
    odds: a:b, favoured > other.
    chosen: how many states a set has, 1 to m - 1.
    Raises ValueError for parameters out of range, and from 2^63 symbols on.
    """

    kind: ClassVar[str] = "subset"
    space: StateSpace
    chosen: int

    def __post_init__(self) -> None:
        if self.space.reports_changes:
            raise ValueError("subset selection reports states; for changes there is signed subset selection")
        check_telling(self.odds)
        if not 1 <= self.chosen < self.space.size:
            raise ValueError(f"a set has 1 to {self.space.size - 1} of {self.space.size} states, got {self.chosen}")
        if self.symbols >= SYMBOL_LIMIT:
            raise ValueError(f"{self.symbols} sets do not fit into 63 bits: choose fewer than {self.chosen} states")

    @property
    def subsets(self) -> SignVectors:
        """The sets as vectors: a plus for each state of the set, zeros elsewhere."""
        return SignVectors(self.space.size, ((self.chosen, 0),))

    @property
    def symbols(self) -> int:
        """C(m, chosen)."""
        return self.subsets.count

    @property
    def agreement(self) -> Fraction:
        """chosen / m: the base is uniform over the sets."""
        return Fraction(self.chosen, self.space.size)

    def tells(self, true: int) -> bool:  # noqa: ARG002
        """Always: every state favours the sets that hold it."""
        return True

    def agrees(self, symbol: int, true: int) -> bool:
        """True if the set holds the state."""
        return self.subsets.unrank(symbol)[true] == 1

    def favoured_total(self, true: int, odds: Odds) -> int:
        """a·C(m-1, chosen-1) + b·C(m-1, chosen) at these odds."""
        subsets = self.subsets
        holding = subsets.completing({true: 1}).count
        return odds.favoured * holding + odds.other * (subsets.count - holding)

    def favoured_symbol_at(self, drawn: int, true: int, odds: Odds) -> int:
        """Sets that hold the state first, each by rank."""
        check_input(self.space, true)
        subsets = self.subsets
        holding = odds.favoured * subsets.completing({true: 1}).count
        fixed, weight = ({true: 1}, odds.favoured) if drawn < holding else ({true: 0}, odds.other)
        rank = (drawn if drawn < holding else drawn - holding) // weight
        return subsets.rank(subsets.completed(subsets.completing(fixed).unrank(rank), fixed))

    def said(self, symbol: int, states: Sequence[str]) -> str:
        """The states of the set, one of which may be the true one."""
        chosen = zip(own_states(self.space, states), self.subsets.unrank(symbol), strict=True)
        return listed([name for name, sign in chosen if sign], "or")
