"""Tallies with a slot for every symbol, for alphabets that are small enough to list; and of symbols with contents.

A counterpart that derives from `CountedCounterpart` has only its decoder to add: `estimate`, and `report_covariance`;
that of custom randomizers reads everything off their matrix P, and the planner offers none. Sign vectors, sets and bits
say something of every state: if there are few such symbols, a tally counts each; if there are many, it adds up what
they say of each state, as decoding needs hardly more than that.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from changeling_protocol import CustomResponse, SignVectors, agreeing, arrangements
from numpy.typing import NDArray

from ..estimate import Counts, Estimate, Floats, NodeTally
from .counterpart import Counterpart, DecodedNodes, R_co, change_map, register_counterpart, sample_agreements

BLOCK = 2**22
"""The most figures unpacked at a time."""
MOST_LISTED = 2**18
"""With more figures of all symbols together, nodes are decoded one by one, which is faster then."""


@dataclass(frozen=True, slots=True, eq=False)
class SymbolValues:
    """The values that a single report of each symbol o decodes to.

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
class CountedCounterpart(Counterpart[R_co]):
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
        if self.randomizer.symbols * z * z > MOST_LISTED:
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
        """The estimates of a tally of one report, for each symbol."""
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
        """Mask of the symbols that agree with an input that tells, shape (symbols,)."""
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


Contents: TypeAlias = NDArray[np.int8]
"""The content of n symbols for each state, shape (n, states): +1, -1 or 0 for signs, 1 or 0 for sets and bits.

For reports of states, the states are the inputs: NULL only if it is one.
"""

MOST_COUNTED_SYMBOLS = 4096
"""With up to so many symbols, a tally counts each."""
_AT_ONCE = 2**16
"""How many symbols are unranked at a time, which bounds the memory."""


@dataclass(frozen=True)
class WithContents(CountedCounterpart[R_co]):
    """A counterpart whose symbols say something of every state.

    most_counted: with more symbols than that, tallies keep sums of what the symbols say.
    """

    most_counted: int = MOST_COUNTED_SYMBOLS

    @property
    def counts_symbols(self) -> bool:
        """True if each slot of a tally counts one symbol; if not, the slots are `content_sums`."""
        return self.randomizer.symbols <= self.most_counted

    @property
    @abstractmethod
    def sum_slots(self) -> int:
        """How many slots `content_sums` has."""

    @abstractmethod
    def contents(self, symbols: NDArray[np.uint64]) -> Contents:
        """The content of each symbol for each state, shape (n, states).

        symbols: shape (n,), every one below `randomizer.symbols`.
        """

    @abstractmethod
    def added_up(self, symbols: NDArray[np.uint64]) -> Counts:
        """`content_sums` of symbols that are few enough to hold all their contents in memory."""

    def sample_sums(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """Draws the `content_sums` of many reports, without drawing each: first how many agree, then what they say.

        counts: how many entries have each input, shape (m,).
        """
        return self.sample_agreeing_sums(*sample_agreements(self.randomizer, counts, generator), generator)

    def sample_agreeing_sums(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """Draws `content_sums` as `sample_agreeing` draws slots. Raises ValueError as that does."""
        return Counterpart.sample_agreeing(self, agreed, others, generator)

    @cached_property
    def all_contents(self) -> Floats:
        """The content of every symbol for each state, shape (symbols, states); for small alphabets."""
        return self.contents(np.arange(self.randomizer.symbols, dtype=np.uint64)).astype(np.float64)

    def content_sums(self, symbols: NDArray[np.uint64]) -> Counts:
        """The content of the symbols for each state, added up over the symbols, shape (sum_slots,)."""
        sums = np.zeros(self.sum_slots, np.int64)
        for start in range(0, len(symbols), _AT_ONCE):
            sums += self.added_up(symbols[start : start + _AT_ONCE])
        return sums

    @property
    def slots(self) -> int:
        """One for each symbol, or those of the sums."""
        return super().slots if self.counts_symbols else self.sum_slots

    def tally(self, symbols: NDArray[np.uint64]) -> NodeTally:
        """Counts of the symbols, or sums of what they say."""
        if self.counts_symbols:
            return super().tally(symbols)
        return NodeTally(len(symbols), self.content_sums(symbols))

    def tallies(self, symbols: NDArray[np.uint64], of: NDArray[np.int64], count: int) -> list[NodeTally]:
        """Counted in one go, or node by node what the symbols say."""
        if self.counts_symbols:
            return super().tallies(symbols, of, count)
        return Counterpart.tallies(self, symbols, of, count)

    def estimates(self, tallies: Sequence[NodeTally]) -> DecodedNodes:
        """Symbol by symbol where they are counted, else node by node."""
        return super().estimates(tallies) if self.counts_symbols else Counterpart.estimates(self, tallies)

    def squares(self, tally: NodeTally) -> Floats | None:
        """None for sums."""
        return super().squares(tally) if self.counts_symbols else None

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """Counts as `Counted` draws them, or sums node by node."""
        if self.counts_symbols:
            return super().sample_slots(counts, generator)
        return np.array([self.sample_sums(row, generator) for row in counts])

    def sample_agreeing(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """Counts as `Counted` draws them, or sums."""
        if self.counts_symbols:
            return super().sample_agreeing(agreed, others, generator)
        return self.sample_agreeing_sums(agreed, others, generator)


def unrank_signs(vectors: SignVectors, ranks: NDArray[np.int64]) -> Contents:
    """The sign vectors of some ranks, shape (n, length).

    ranks: from 0 to vectors.count - 1, shape (n,).
    """
    signs = np.empty((len(ranks), vectors.length), np.int8)
    remaining = ranks.copy()
    shape_of = np.zeros(len(ranks), np.intp)
    for shape in vectors.shapes[:-1]:
        size = arrangements(vectors.length, *shape)
        later = (remaining >= size) & (shape_of == vectors.shapes.index(shape))
        remaining[later] -= size
        shape_of[later] += 1
    pluses, minuses = np.array(vectors.shapes, np.intp)[shape_of].T
    for position in range(vectors.length):
        sizes = _sizes(vectors, vectors.length - position - 1)
        with_plus, with_minus = sizes[pluses, minuses + 1], sizes[pluses + 1, minuses]
        plus = remaining < with_plus
        minus = ~plus & (remaining < with_plus + with_minus)
        remaining -= np.where(plus, 0, np.where(minus, with_plus, with_plus + with_minus))
        pluses, minuses = pluses - plus, minuses - minus
        signs[:, position] = plus.astype(np.int8) - minus
    return signs


@lru_cache(maxsize=1024)
def _sizes(vectors: SignVectors, left: int) -> NDArray[np.int64]:
    """How many arrangements p pluses and q minuses have on the last `left` positions, in row p + 1, column q + 1.

    Row and column 0 stand for -1, which is impossible, and are 0. Only cells that the vectors can reach are filled;
    the others could exceed 63 bits.
    """
    table = np.zeros((max(p for p, _ in vectors.shapes) + 2, max(q for _, q in vectors.shapes) + 2), np.int64)
    for most_pluses, most_minuses in vectors.shapes:
        for p in range(most_pluses + 1):
            for q in range(most_minuses + 1):
                used = vectors.length - left
                if most_pluses - p + most_minuses - q <= used:
                    table[p + 1, q + 1] = arrangements(left, p, q)
    return table


def sample_vector_sums(vectors: SignVectors, counts: Counts, generator: np.random.Generator) -> tuple[Counts, Counts]:
    """Draws how often each position has a plus, and how often a minus, in sums of uniform vectors.

    counts: how many vectors each sum is of, shape (sums,).
    Returns pluses and minuses, each of shape (sums, length). Position by position it draws how many vectors have a
    plus, a minus or a zero there, given how many of each they have left.
    """
    shapes = np.array(vectors.shapes, np.intp)
    # left[i, p, q]: how many vectors of row i still have p pluses and q minuses to place.
    left = np.zeros((len(counts), *(shapes.max(0) + 1)), np.int64)
    sizes = np.array([arrangements(vectors.length, *shape) / vectors.count for shape in vectors.shapes])
    left[:, shapes[:, 0], shapes[:, 1]] = generator.multinomial(counts, sizes)
    pluses, minuses = (np.zeros((len(counts), vectors.length), np.int64) for _ in range(2))
    for position in range(vectors.length):
        drawn = generator.multinomial(left, _chances(left.shape[1:], vectors.length - position))
        pluses[:, position] = drawn[..., 0].sum((1, 2))
        minuses[:, position] = drawn[..., 1].sum((1, 2))
        left = drawn[..., 2].copy()
        left[:, :-1] += drawn[:, 1:, :, 0]
        left[:, :, :-1] += drawn[:, :, 1:, 1]
    return pluses, minuses


@lru_cache(maxsize=1024)
def _chances(shape: tuple[int, int], length: int) -> Floats:
    """The chances of +, - and 0 at the first of `length` positions, shape (*shape, 3), by pluses and minuses left."""
    chances = np.zeros((*shape, 3))
    chances[..., 2] = 1
    for p, q in np.ndindex(shape):
        if every := arrangements(length, p, q):
            first = ((p - 1, q), (p, q - 1), (p, q))
            chances[p, q] = [arrangements(length - 1, *rest) / every for rest in first]
    return chances


_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Listed(CountedCounterpart[R_co]):
    """The decoder A = M_δv (P'D⁻¹P)⁺P'D⁻¹, D the diagonal of the mean of P's columns.

    Of all unbiased decoders it has the least variance if all inputs are equally frequent. It is dense, and takes
    O(symbols·m²) steps once.
    """

    def estimate(self, tally: NodeTally) -> Estimate:
        """A O, with the covariance A diag(O) A' - M_δv diag(ŝ) M_δv'.

        If the symbols do not tell the last term it is left out, and the covariance is an upper bound.
        Raises ValueError if there is no unbiased decoder.
        """
        O = tally.slots.astype(np.float64)
        covariance = (self._weights * O) @ self._weights.T
        if self._identified:
            covariance = covariance - (self._map * (self._inverse @ O)) @ self._map.T
        return Estimate(self._weights @ O, covariance, not self._identified)

    def report_covariance(self, true: int) -> Floats:
        """A diag(P's column) A' - δδ'."""
        old, new = self.randomizer.space.pair(true)
        delta = np.zeros(self.randomizer.space.answers + 1)
        delta[new] += 1
        delta[old] -= 1
        covariance: Floats = (self._weights * self.probabilities[true]) @ self._weights.T
        return covariance - np.outer(delta[1:], delta[1:])

    @cached_property
    def _identified(self) -> bool:
        """True if M_δv diag(s) M_δv' can be estimated without bias from the symbols."""
        products = (self._map[:, None] * self._map[None, :]).reshape(-1, self._map.shape[1])
        return _same(products @ self._inverse @ self._matrix, products)

    @cached_property
    def _possible(self) -> NDArray[np.intp]:
        """The inputs that occur: all but the paper's pairs (r, r), which are reported as no change."""
        inputs, pairs = np.arange(self.randomizer.space.size), change_map(self.randomizer.space)
        possible = (inputs == 0) | (pairs.old != pairs.new) | (not self.randomizer.space.reports_changes)
        return np.flatnonzero(possible)

    @cached_property
    def _matrix(self) -> Floats:
        """P, shape (symbols, possible inputs)."""
        return np.ascontiguousarray(self.probabilities.T)[:, self._possible]

    @cached_property
    def _map(self) -> Floats:
        """M_δv, shape (z, possible inputs)."""
        pairs, z = change_map(self.randomizer.space), self.randomizer.space.answers
        states = np.eye(z + 1)
        return (states[:, pairs.new] - states[:, pairs.old])[1:, self._possible]

    @cached_property
    def _inverse(self) -> Floats:
        """(P'D⁻¹P)⁺P'D⁻¹, by way of the pseudo-inverse of D^(-1/2)P."""
        root = np.sqrt(self._matrix.mean(1))
        inverse: Floats = np.linalg.pinv(self._matrix / root[:, None], rcond=1e-12) / root
        return inverse

    @cached_property
    def _weights(self) -> Floats:
        """A, shape (z, symbols)."""
        weights = self._map @ self._inverse
        if not _same(weights @ self._matrix, self._map):
            raise ValueError(
                "this randomizer cannot be decoded without bias: two mixtures of inputs that change the histogram "
                "differently send the same symbols equally often"
            )
        return weights


def _same(product: Floats, wanted: Floats) -> bool:
    return bool(np.abs(product - wanted).max() < _TOLERANCE)


register_counterpart(CustomResponse, Listed)
