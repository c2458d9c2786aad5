"""The tally of one node, drawn from how many entries have which input: distributed as the sum of their reports.

Exact up to the rounding of probabilities to floats; the cost does not depend on how many entries there are.
"""

from functools import lru_cache, singledispatch

import numpy as np
from changeling_protocol import CustomResponse, KaryResponse, Randomizer, SignedSubset, SubsetSelection, UnaryEncoding
from changeling_statistics.symbol_contents import ByContents, all_contents
from changeling_statistics.tallies import Counts, NodeTally, counts_symbols
from numpy.typing import NDArray

from .sums_sampler import sample_bit_sums, sample_set_sums, sample_signed_sums


@singledispatch
def sample_tally(
    randomizer: Randomizer,
    counts: Counts,  # noqa: ARG001
    generator: np.random.Generator,  # noqa: ARG001
) -> NodeTally:
    """The tally of a node on which counts[u] entries have the input u; counts: shape (m,)."""
    raise TypeError(f"no aggregated sampler for a {type(randomizer).__name__}")


@sample_tally.register
def _(randomizer: KaryResponse, counts: Counts, generator: np.random.Generator) -> NodeTally:
    # With probability p - q = (a - b)/total a response is the truth, otherwise it is uniform over all symbols.
    m, odds, reports = randomizer.symbols, randomizer.odds, int(counts.sum())
    kept = generator.binomial(counts, (odds.favoured - odds.other) / randomizer.total())
    uniform = generator.multinomial(reports - kept.sum(), np.full(m, 1 / m))
    return NodeTally(reports, kept + uniform)


@sample_tally.register
def _(randomizer: CustomResponse, counts: Counts, generator: np.random.Generator) -> NodeTally:
    return _by_symbol(randomizer, counts, generator)


@sample_tally.register
def _(randomizer: SignedSubset, counts: Counts, generator: np.random.Generator) -> NodeTally:
    if counts_symbols(randomizer):
        return _by_symbol(randomizer, counts, generator)
    return NodeTally(int(counts.sum()), sample_signed_sums(randomizer, counts, generator))


@sample_tally.register
def _(randomizer: SubsetSelection, counts: Counts, generator: np.random.Generator) -> NodeTally:
    if counts_symbols(randomizer):
        return _by_symbol(randomizer, counts, generator)
    return NodeTally(int(counts.sum()), sample_set_sums(randomizer, counts, generator))


@sample_tally.register
def _(randomizer: UnaryEncoding, counts: Counts, generator: np.random.Generator) -> NodeTally:
    if counts_symbols(randomizer):
        return _by_symbol(randomizer, counts, generator)
    return NodeTally(int(counts.sum()), sample_bit_sums(randomizer, counts, generator))


def _by_symbol(randomizer: CustomResponse | ByContents, counts: Counts, generator: np.random.Generator) -> NodeTally:
    """One multinomial for every input that somebody has."""
    held = np.flatnonzero(counts)
    slots = generator.multinomial(counts[held], probabilities(randomizer)[held]).sum(0)
    return NodeTally(int(counts.sum()), slots)


@lru_cache(maxsize=32)
def probabilities(randomizer: CustomResponse | ByContents) -> NDArray[np.float64]:
    """Pr(symbol | input), shape (inputs, symbols): for alphabets small enough to list."""
    space = randomizer.space
    match randomizer:
        case CustomResponse():
            columns = zip(*randomizer.weights, strict=True)
            shares = [[w / randomizer.total(v) for w in column] for v, column in enumerate(columns)]
            return np.array(shares)
        case SignedSubset():
            said, pairs = all_contents(randomizer), [space.pair(v) for v in range(space.size)]
            kinds = np.array([(said[:, new] == 1) & (said[:, old] == -1) for old, new in pairs])
        case SubsetSelection() | UnaryEncoding():
            kinds = all_contents(randomizer).T == 1
    if isinstance(randomizer, UnaryEncoding):
        others = kinds.sum(0) - kinds
        q = randomizer.odds.other / (randomizer.odds.favoured + randomizer.odds.other)
        chances: NDArray[np.float64] = 0.5 * q**others * (1 - q) ** (space.size - 1 - others)
        return chances
    found = np.empty(kinds.shape)
    for v, kind in enumerate(kinds):
        # All symbols of a kind have one weight, so one of each tells it; "nothing" is a kind of its own.
        for chosen in (kind, ~kind):
            symbols = np.flatnonzero(chosen)
            if len(symbols):
                found[v, symbols] = randomizer.weight(int(symbols[-1]), v) / randomizer.total(v)
        if isinstance(randomizer, SignedSubset) and randomizer.quiet:
            found[v, 0] = randomizer.weight(0, v) / randomizer.total(v)
    return found
