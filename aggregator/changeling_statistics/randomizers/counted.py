"""Tallies with a slot for every symbol, for alphabets that are small enough to list.

A counterpart that derives from `Counted` has only its decoder to add: `estimate`, and `report_covariance`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import agreeing
from numpy.typing import NDArray

from ..estimate import Floats
from ..tallies import Counts, NodeTally
from .counterpart import Counterpart, R_co
from .decoded_nodes import DecodedNodes

BLOCK = 2**22
"""The most figures unpacked at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class SymbolValues:
    """What a single report of each symbol o decodes to.

    values: a_o, shape (symbols, z), in entries.
    covariances: the covariance Ĉ estimated from that report, flattened, shape (symbols, z²).
    squares: a_o a_o', flattened, shape (symbols, z²).
    upper_bound: whether one of the covariances is a bound.
    """

    values: Floats
    covariances: Floats
    squares: Floats
    upper_bound: bool


@dataclass(frozen=True)
class Counted(Counterpart[R_co]):
    """A counterpart whose tallies say how often each symbol was sent."""

    @property
    def slots(self) -> int:
        """One for each symbol."""
        return self.randomizer.symbols

    def tally(self, symbols: NDArray[np.uint64]) -> NodeTally:
        """How often each symbol stands among these."""
        slots = np.bincount(symbols.astype(np.int64), minlength=self.randomizer.symbols)
        return NodeTally(len(symbols), slots.astype(np.int64))

    def tallies(self, symbols: NDArray[np.uint64], of: NDArray[np.int64], count: int) -> list[NodeTally]:
        """All counted in one go, where the slots of all nodes are not many more than the reports."""
        m = self.randomizer.symbols
        if count * m > max(len(symbols), BLOCK // 8):
            return super().tallies(symbols, of, count)
        slots = np.bincount(of * m + symbols.astype(np.int64), minlength=count * m).reshape(count, m)
        reports = slots.sum(axis=1).tolist()
        return [NodeTally(n, each) for n, each in zip(reports, slots.astype(np.int64), strict=True)]

    def estimates(self, tallies: Sequence[NodeTally]) -> DecodedNodes:
        """All nodes at once: values and covariances are sums over symbols of what a single report decodes to.

        An unbiased Ĉ is A diag(O) A' - Q̂, so it tells Q̂ as well.
        """
        z = self.randomizer.space.answers
        if self.randomizer.symbols * z * z > BLOCK:
            return super().estimates(tallies)
        by_symbol = self.symbol_values
        O = np.concatenate([tally.slots for tally in tallies]).reshape(len(tallies), -1).astype(np.float64)
        covariances = (O @ by_symbol.covariances).reshape(-1, z, z)
        products: Floats | None = None
        if self.randomizer.space.reports_changes and not by_symbol.upper_bound:
            products = (O @ by_symbol.squares).reshape(-1, z, z) - covariances
        return DecodedNodes(O @ by_symbol.values, covariances, by_symbol.upper_bound, products, self.changed(tallies))

    def squares(self, tally: NodeTally) -> Floats | None:
        """Σ_o O_o a_o a_o', over symbols."""
        z = self.randomizer.space.answers
        squares: Floats = (tally.slots.astype(np.float64) @ self.symbol_values.squares).reshape(z, z)
        return squares

    @cached_property
    def symbol_values(self) -> SymbolValues:
        """What `estimate` says of a tally of one report, for each symbol."""
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
        """One multinomial draw for every node and every input that an entry has there."""
        held, chances = np.flatnonzero(counts.any(0)), self.probabilities
        slots = np.zeros((len(counts), self.randomizer.symbols), np.int64)
        at_once = max(1, BLOCK // slots.size)
        for start in range(0, len(held), at_once):
            inputs = held[start : start + at_once]
            slots += generator.multinomial(counts[:, inputs].T, chances[inputs][:, None, :]).sum(0)
        return slots

    def sample_agreeing(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """A multinomial draw for every input, of those that agree and of those that do not."""
        slots = np.zeros(self.randomizer.symbols, np.int64)
        for true in np.flatnonzero(agreed + others).tolist():
            agrees = self.agreeing_symbols(true)
            for reports, among in ((agreed[true], agrees), (others[true], ~agrees)):
                if reports:
                    chances = np.where(among, self.probabilities[true], 0)
                    slots += generator.multinomial(reports, chances / chances.sum())
        return slots

    def agreeing_symbols(self, true: int) -> NDArray[np.bool_]:
        """Which symbols agree with an input that tells, shape (symbols,)."""
        joint_form = agreeing(self.randomizer)
        return np.array([joint_form.agrees(symbol, true) for symbol in range(joint_form.symbols)])

    @cached_property
    def probabilities(self) -> Floats:
        """Pr(symbol | input), shape (m, symbols): each a ratio of integers, rounded once to a float."""
        randomizer = self.randomizer
        totals = [randomizer.total(v) for v in range(randomizer.space.size)]
        return np.array(
            [[randomizer.weight(o, v) / total for o in range(randomizer.symbols)] for v, total in enumerate(totals)]
        )
