"""What every randomizer is: exact integer weights, a sampler on them, and the loss they cost.

This is the device's half. The other half, how reports are tallied and decoded, is in
changeling_statistics.randomizers.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Protocol, Self

from ..canonical import Fields
from ..coins import Coins
from .odds import Odds
from .spaces import Space

SYMBOL_LIMIT = 2**63
"""Symbols are numbered below this, so that the server can keep them in columns of 64-bit integers."""


@dataclass(frozen=True, slots=True)
class Losses:
    """How well one report tells two inputs u and v apart: max over symbols of ln Pr(o|u)/Pr(o|v), rounded up.

    Each figure is the largest over the pairs of inputs of one kind. For a report of a state all four are the same.

    mutations: u and v are two mutations (L_mm).
    appears: u is a mutation, v is no change (L_m0).
    vanishes: u is no change, v is a mutation (L_0m).
    insertions: u and v are two insertions (L_ii).
    """

    mutations: Decimal
    appears: Decimal
    vanishes: Decimal
    insertions: Decimal


class Randomizer(Hashable, Protocol):
    """Maps a true input to a random symbol by exact integer weights.

    A value: two randomizers of equal parameters are equal, so that they can be the keys of a cache.
    kind: the name that the class is registered under, and known by in signed bytes.
    """

    kind: ClassVar[str]

    @property
    def space(self) -> Space:
        """The true inputs it can be given."""
        ...

    @property
    def symbols(self) -> int:
        """How many symbols there are; they are numbered from 0."""
        ...

    @property
    def losses(self) -> Losses:
        """What one report can tell. Raises ValueError where that is infinite."""
        ...

    def weight(self, symbol: int, true: int) -> int:
        """The weight of a symbol for an input: Pr(symbol | true) = weight(symbol, true) / total(true), exactly."""
        ...

    def total(self, true: int) -> int:
        """The sum of an input's weights over all symbols."""
        ...

    def respond(self, true: int, coins: Coins) -> int:
        """Draws the symbol to report for a true input. Raises ValueError outside the space, without naming the input.

        coins: one integer below `total(true)` is drawn from them.
        """
        ...

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total(true)) selects: what `respond` does with its one draw.

        Of all those integers exactly weight(symbol, true) select each symbol.
        """
        ...

    def said(self, symbol: int, states: Sequence[str]) -> str:
        """What a symbol says in words, to the person whose report it is; no two symbols say the same.

        states: the names of the states from NULL on.
        """
        ...

    def as_fields(self) -> Fields:
        """Its parameters as they stand in a survey's signed bytes, without its kind and its space."""
        ...

    @classmethod
    def from_fields(cls, space: Space, fields: Fields) -> Self | None:
        """The randomizer on this space whose `as_fields` these are; None if they are not of its form.

        fields: read from signed bytes; there are no booleans among them.
        Raises ValueError for a parameter that is out of range.
        """
        ...


class Agreeing(Randomizer, Protocol):
    """A randomizer that can take part in a joint response: every symbol agrees with an input, or does not.

    An input that tells nothing is answered from the base: each symbol with its weight, whatever was asked. One that
    tells favours the symbols that agree with it over all others by some odds; at odds of 1:1 it, too, is answered from
    the base. `symbol_at` is `favoured_symbol_at` at the randomizer's own odds.
    """

    @property
    def odds(self) -> Odds:
        """a:b: how a symbol that agrees with an input is weighed against one that does not."""
        ...

    @property
    def agreement(self) -> Fraction:
        """p: how likely a symbol of the base agrees with an input that tells; the same for all of them."""
        ...

    def tells(self, true: int) -> bool:
        """Whether an input favours any symbols."""
        ...

    def agrees(self, symbol: int, true: int) -> bool:
        """Whether a symbol agrees with an input that tells."""
        ...

    def favoured_total(self, true: int, odds: Odds) -> int:
        """How many integers `favoured_symbol_at` chooses by."""
        ...

    def favoured_symbol_at(self, drawn: int, true: int, odds: Odds) -> int:
        """The symbol that the integer `drawn` in [0, favoured_total) selects if these odds favour those that agree.

        Raises ValueError outside the space, without naming the input.
        """
        ...

    def at_odds(self, odds: Odds) -> Self:
        """The same randomizer at other odds. Raises ValueError for odds that say nothing."""
        ...


def symbol_bytes(randomizer: Randomizer) -> int:
    """The fixed width of a symbol on the wire, in bytes: room for all of them, and for one more value that is none."""
    return (randomizer.symbols.bit_length() + 7) // 8
