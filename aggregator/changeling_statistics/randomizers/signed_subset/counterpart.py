"""The counterpart of signed subset selection: its tallies, estimates, likelihoods and sampler."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import Odds, SignedSubset
from numpy.typing import NDArray

from ...estimate import Estimate, Floats
from ...tallies import Counts, NodeTally
from ..agreement import sample_agreements
from ..likelihoods import Likelihoods, PairKind, merged, one_pair
from ..sign_vectors import unrank_signs
from ..symbol_contents import Contents, WithContents
from .decoding import Decoder
from .sampling import sample_sums


@dataclass(frozen=True)
class SignedSubsetCounterpart(WithContents[SignedSubset]):
    """A tally counts symbols, or keeps sums: how many reports said nothing, then how many gave each of the d
    states a plus, then how many gave it a minus."""

    answers_alike = True

    @cached_property
    def decoder(self) -> Decoder:
        """What decodes the sums of signs."""
        return Decoder(self.randomizer)

    @property
    def sum_slots(self) -> int:
        """1 + 2d."""
        return 1 + 2 * self.randomizer.states

    def contents(self, symbols: NDArray[np.uint64]) -> Contents:
        """The signs of each symbol, shape (n, d); "nothing" is a row of zeros."""
        randomizer = self.randomizer
        told = symbols >= randomizer.quiet
        signs = np.zeros((len(symbols), randomizer.states), np.int8)
        signs[told] = unrank_signs(randomizer.vectors, symbols[told].astype(np.int64) - randomizer.quiet)
        return signs

    def added_up(self, symbols: NDArray[np.uint64]) -> Counts:
        """How many said nothing, then pluses, then minuses, state by state."""
        said, quiet = self.contents(symbols), np.count_nonzero(symbols < self.randomizer.quiet)
        pluses, minuses = (np.count_nonzero(said == sign, axis=0) for sign in (1, -1))
        return np.concatenate([[quiet], pluses, minuses]).astype(np.int64)

    def estimate(self, tally: NodeTally) -> Estimate:
        """Δv̂ = c·Σw. The covariance is unbiased if symbols are counted and tell it, and else an upper bound."""
        O, d = tally.slots.astype(np.float64), self.randomizer.states
        if self.counts_symbols:
            w = self.all_contents
            sums, quiet = O @ w, O[: self.randomizer.quiet].sum()
            covariance, upper_bound = self.decoder.counted(w.T @ (O[:, None] * w), tally.reports, quiet)
        else:
            sums, quiet = O[1 : 1 + d] - O[1 + d :], O[0]
            covariance, upper_bound = self.decoder.summed(tally.reports, quiet), True
        return Estimate(self.decoder.scale * sums[self._answers], covariance[self._answers, self._answers], upper_bound)

    def changed(self, tallies: Sequence[NodeTally]) -> Floats:
        """From how many said nothing, which slot 0 counts in either form of tally; nan if u = 1."""
        if not self.randomizer.quiet:
            return super().changed(tallies)
        return np.array([self.decoder.changed(tally.reports, float(tally.slots[0])) for tally in tallies])

    def report_covariance(self, true: int) -> Floats:
        """In closed form, from the second moments of the signs."""
        self.randomizer.space.pair(true)  # raises outside the space
        return self.decoder.covariance(*self.randomizer.positions(true))[self._answers, self._answers]

    @cached_property
    def probabilities(self) -> Floats:
        """All symbols that an input favours have one weight, all others another, and "nothing" one of its own."""
        randomizer = self.randomizer
        chances = np.empty((randomizer.space.size, randomizer.symbols))
        for true in range(randomizer.space.size):
            favoured = self.agreeing_symbols(true)
            for chosen in (favoured, ~favoured):
                symbols = np.flatnonzero(chosen)
                if len(symbols):
                    chances[true, symbols] = self._probability(int(symbols[-1]), true)
            if randomizer.quiet:
                chances[true, 0] = self._probability(0, true)
        return chances

    def agreeing_symbols(self, true: int) -> NDArray[np.bool_]:
        """The vectors with + at `new` and - at `old`; none without a change."""
        old, new = self.randomizer.positions(true)
        agrees: NDArray[np.bool_] = (self.all_contents[:, new] == 1) & (self.all_contents[:, old] == -1)
        return agrees

    def likelihoods(self, u: int, v: int) -> Likelihoods:
        """Five classes: "nothing", and vectors favoured by both inputs, by u alone, by v alone, by neither."""
        randomizer, vectors = self.randomizer, self.randomizer.vectors
        none = Odds(1, 1)
        (au, bu), (av, bv) = ((odds.favoured, odds.other) for odds in (randomizer.odds if t else none for t in (u, v)))
        spoken = randomizer.spoken.numerator
        wanted = [{new: 1, old: -1} for old, new in (randomizer.positions(true) for true in (u, v))]
        favours_u, favours_v = (randomizer.favoured if true else 0 for true in (u, v))
        agree = u and v and all(wanted[1].get(state, sign) == sign for state, sign in wanted[0].items())
        both = vectors.completing({**wanted[0], **wanted[1]}).count if agree else 0
        only_u, only_v = favours_u - both, favours_v - both
        quiet = (randomizer.spoken.denominator - spoken) * vectors.count
        classes = [
            (quiet * bu, quiet * bv, 1),
            (spoken * au, spoken * av, both),
            (spoken * au, spoken * bv, only_u),
            (spoken * bu, spoken * av, only_v),
            (spoken * bu, spoken * bv, vectors.count - both - only_u - only_v),
        ]
        return merged(classes, randomizer.total(u), randomizer.total(v))

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:
        """One pair of each kind; of two mutations, one and its reverse, as no vector is favoured by both."""
        return one_pair(self.randomizer.space, kind)

    def sample_sums(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """First how many reports agree, then the sums class by class."""
        return self.sample_agreeing_sums(*sample_agreements(self.randomizer, counts, generator), generator)

    def sample_agreeing_sums(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """Draws the sums class by class of the signs at `old` and `new`, never a vector by itself."""
        return sample_sums(self.randomizer, agreed, others, generator)

    @property
    def _answers(self) -> slice:
        """The states without NULL."""
        return slice(self.randomizer.states - self.randomizer.space.answers, None)

    def _probability(self, symbol: int, true: int) -> float:
        return self.randomizer.weight(symbol, true) / self.randomizer.total(true)
