"""Tallies that count every symbol: one slot a symbol, decoded and drawn symbol by symbol.

For alphabets small enough to list. What a counterpart adds is the decoder, of one tally.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats
from ..tallies import Counts, NodeTally
from .counterpart import Counterpart, R_co
from .decoded_nodes import DecodedNodes

BLOCK = 2**22
"""The most figures unpacked at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class SymbolValues:
    """Of a single report of each symbol: a_o, shape (symbols, z); Ĉ and a_o a_o', flattened, (symbols, z²).

    upper_bound: whether Ĉ is a bound.
    """

    values: Floats
    covariances: Floats
    squares: Floats
    upper_bound: bool


@dataclass(frozen=True)
class Counted(Counterpart[R_co]):
    """O: slots are symbols, and a tally says how often each was sent."""

    @property
    def slots(self) -> int:
        return self.randomizer.symbols

    def tally(self, symbols: NDArray[np.uint64]) -> NodeTally:
        slots = np.bincount(symbols.astype(np.int64), minlength=self.randomizer.symbols)
        return NodeTally(len(symbols), slots.astype(np.int64))

    def estimates(self, tallies: Sequence[NodeTally]) -> DecodedNodes:
        """Values and covariances are sums over symbols of what a single report says; and an unbiased Ĉ being
        A diag(O) A' - Q̂, it tells Q̂ as well."""
        z = self.randomizer.space.answers
        if self.randomizer.symbols * z * z > BLOCK:
            return super().estimates(tallies)
        each = self.symbol_values
        O = np.array([tally.slots for tally in tallies], dtype=np.float64)
        covariances = (O @ each.covariances).reshape(-1, z, z)
        products: Floats | None = None
        if self.randomizer.space.reports_changes and not each.upper_bound:
            products = (O @ each.squares).reshape(-1, z, z) - covariances
        return DecodedNodes(O @ each.values, covariances, each.upper_bound, products, self.changed(tallies))

    def squares(self, tally: NodeTally) -> Floats | None:
        z = self.randomizer.space.answers
        squares: Floats = (tally.slots.astype(np.float64) @ self.symbol_values.squares).reshape(z, z)
        return squares

    @cached_property
    def symbol_values(self) -> SymbolValues:
        units = np.eye(self.randomizer.symbols, dtype=np.int64)
        decoded = [self.estimate(NodeTally(1, unit)) for unit in units]
        a = np.array([estimate.values for estimate in decoded])
        return SymbolValues(
            values=a,
            covariances=np.array([estimate.covariance.ravel() for estimate in decoded]),
            squares=(a[:, :, None] * a[:, None, :]).reshape(len(a), -1),
            upper_bound=any(estimate.upper_bound for estimate in decoded),
        )

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """One multinomial for every node and every input that somebody has."""
        held, chances = np.flatnonzero(counts.any(0)), self.probabilities
        slots = np.zeros((len(counts), self.randomizer.symbols), np.int64)
        at_once = max(1, BLOCK // slots.size)
        for start in range(0, len(held), at_once):
            some = held[start : start + at_once]
            slots += generator.multinomial(counts[:, some].T, chances[some][:, None, :]).sum(0)
        return slots

    @cached_property
    def probabilities(self) -> Floats:
        """Pr(symbol | input), shape (m, symbols), its integers divided exactly before they are rounded."""
        randomizer = self.randomizer
        totals = [randomizer.total(v) for v in range(randomizer.space.size)]
        return np.array(
            [[randomizer.weight(o, v) / total for o in range(randomizer.symbols)] for v, total in enumerate(totals)]
        )
