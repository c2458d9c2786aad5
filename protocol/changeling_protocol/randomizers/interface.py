"""What every randomizer is: exact integer odds, a sampler on them, and the loss they cost.

What the statistics know of each, its tallies, decoder and covariance, stands in changeling_statistics.randomizers.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Protocol, Self

from ..coins import Coins
from .spaces import Space

SYMBOL_LIMIT = 2**63
"""Symbols are numbered below this, so that they fit into the columns of a fold."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss of one node, ln max over outputs of Pr(o|u)/Pr(o|v), by kind of the inputs u and v.

    mutations: two mutations (L_mm); appears: a mutation against no change (L_m0); vanishes: no change
    against a mutation (L_0m); insertions: two insertions (L_ii). Of a state report all are one figure.
    """

    mutations: Decimal
    appears: Decimal
    vanishes: Decimal
    insertions: Decimal


class Randomizer(Hashable, Protocol):
    """Maps a true input to a random symbol by exact integer weights; a value, so that it can key a cache.

    kind: the name that it is registered under, and known by in signed bytes.
    """

    kind: ClassVar[str]

    @property
    def space(self) -> Space: ...

    @property
    def symbols(self) -> int:
        """How many symbols there are; they are numbered from 0."""
        ...

    @property
    def losses(self) -> Losses: ...

    def weight(self, symbol: int, true: int) -> int:
        """Pr(symbol | true) = weight(symbol, true) / total(true), exactly."""
        ...

    def total(self, true: int) -> int:
        """The sum of the input's weights over all symbols."""
        ...

    def respond(self, true: int, coins: Coins) -> int:
        """The symbol to report for the true input. Raises ValueError outside the space."""
        ...

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total(true)) selects: what `respond` does with its one draw."""
        ...

    def as_fields(self) -> dict[str, Any]:
        """Its parameters in a survey's signed bytes, besides its kind and its space."""
        ...

    @classmethod
    def from_fields(cls, space: Space, fields: dict[str, Any]) -> Self | None:
        """The randomizer on this space whose `as_fields` these are, or None where they are not of its form.

        fields: of canonical MessagePack, without booleans. Raises ValueError where a parameter is out of range.
        """
        ...


def symbol_bytes(randomizer: Randomizer) -> int:
    """The fixed width of a symbol on the wire, in bytes."""
    return max(1, ((randomizer.symbols - 1).bit_length() + 7) // 8)
