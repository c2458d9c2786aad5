"""Signed subset selection, whose reports are vectors of signs: its counterpart, and what it offers the planner.

Signs are added up and scaled, and the covariance follows from their moments. All states but the two of a mutation are
alike, so four numbers give all second moments, whatever z is. The planner is offered one for every number of pluses,
each at its best u.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from math import comb, sqrt

import numpy as np
from changeling_protocol import BALANCED, SYMBOL_LIMIT, MutationSpace, Odds, SignedSubset, SignVectors, Space
from numpy.typing import NDArray

from ..estimate import Counts, Estimate, Floats, NodeTally
from .counted import Contents, WithContents, sample_vector_sums, unrank_signs
from .counterpart import ANY_ODDS, ONE_CHANGE, ChangeOffers, Likelihoods, merged, register_counterpart


@dataclass(frozen=True, slots=True)
class SignMoments:
    """The second moments of the signs w_i of a uniform vector over d >= 2 states.

    states: d.
    favoured: π, the share of vectors that a mutation favours.
    nonzero: η = E w_i², the share of signs that are not zero.
    pair: ξ = E w_i w_j for two states i and j.
    nonzero_rest, pair_rest: η_F and ξ_F, the same for a uniform vector among those that a mutation favours, over the
    d - 2 states that it leaves alone.
    """

    states: int
    favoured: float
    nonzero: float
    pair: float
    nonzero_rest: float
    pair_rest: float

    @classmethod
    def of(cls, states: int, pluses: int) -> "SignMoments":
        """The moments over so many states.

        pluses: j, how many states get a plus, and how many a minus; 0 for balanced vectors.
        """
        low, high = (pluses, pluses) if pluses else (states // 2, states - states // 2)
        odd = (high - low) ** 2
        return cls(
            states,
            low * high / (states * (states - 1)),
            *_moments(states, low + high, odd),
            *_moments(states - 2, low + high - 2, odd),
        )


def _moments(positions: int, signs: int, odd: int) -> tuple[float, float]:
    """E w_i² and E w_i w_j of uniform vectors: `signs` of the positions have a sign, and all add up to ±√odd."""
    if positions < 1:
        return 0.0, 0.0
    pair = (odd - signs) / (positions * (positions - 1)) if positions > 1 else 0.0
    return signs / positions, pair


def _alike(d: int, diagonal: float, elsewhere: float) -> Floats:
    return np.full((d, d), elsewhere) + (diagonal - elsewhere) * np.eye(d)


FINEST = 2**32
"""u is a whole number of such parts."""


def changes(space: MutationSpace, odds: Odds, moved: float, closed: bool) -> Iterator[SignedSubset]:
    """Signed subsets, one for each number of pluses whose vectors fit into a symbol. Arguments as for `best_spoken`."""
    for pluses in shapes(space):
        yield best_spoken(space, odds, pluses, moved, closed)


def agreeing(space: Space, p: float) -> Iterator[SignedSubset]:
    """Signed subsets, one for each number of pluses, of the u at which the base agrees with probability p, if any."""
    if isinstance(space, MutationSpace) and not space.repeats:
        for pluses in shapes(space):
            spoken = round(p / SignMoments.of(space.states, pluses).favoured * FINEST)
            if 1 <= spoken <= FINEST:
                yield SignedSubset(space, ANY_ODDS, pluses, Fraction(spoken, FINEST))


def shapes(space: MutationSpace) -> Iterator[int]:
    """Every number of pluses whose vectors fit into a symbol, the balanced ones first."""
    for pluses in (BALANCED, *range(1, (space.states - 1) // 2 + 1)):
        if space.states > 1 and _fits(space.states, pluses):
            yield pluses


def best_spoken(space: MutationSpace, odds: Odds, pluses: int, moved: float, closed: bool) -> SignedSubset:
    """The signed subset of one number of pluses, at the best u for entries of which a share moves.

        uK = √(1 + moved (η + K w) / ((1 - moved) η)), as far as u <= 1

    η and w are the means over the answers of E w_i², of a uniform vector and of one that a move favours.

    space: the mutations.
    odds: a:b.
    pluses: j, or 0 for balanced vectors.
    moved: the share of the entries that move on a node.
    closed: whether changes add up to zero over the answers, so that the mean of a vector over them counts for nothing.
    """
    z, signs = space.answers, SignMoments.of(space.states, pluses)
    ends = min(2, z)  # how many answers a mutation touches that is no insertion, as far as there is one
    nonzero, favoured = signs.nonzero, (ends + (z - ends) * signs.nonzero_rest) / z
    if closed:  # the signs of the mutation's two states add up to zero, so the sum over the answers is that of the rest
        nonzero = (signs.nonzero - signs.pair) * (1 - 1 / z)
        favoured -= (z - 2) * (signs.nonzero_rest + (z - 3) * signs.pair_rest) / z**2
    K = signs.favoured * (odds.favoured / odds.other - 1)
    steady, changed = max(1 - moved, 1e-9) * nonzero, moved * (nonzero + K * favoured)
    u = min(1.0, sqrt(1 + changed / steady) / K)
    return SignedSubset(space, odds, pluses, Fraction(1) if u == 1 else Fraction(max(1, round(u * FINEST)), FINEST))


def _fits(states: int, pluses: int) -> bool:
    """True if the vectors and "nothing" are fewer than SYMBOL_LIMIT."""
    low, high = (pluses, pluses) if pluses else (states // 2, states - states // 2)
    return comb(states, low) * comb(states - low, high) * (1 if low == high else 2) + 1 < SYMBOL_LIMIT


AGREES = 1, -1
CLASSES = tuple(product((1, -1, 0), repeat=2))
"""The signs that a vector can have at `new` and at `old`; those with the signs `AGREES` agree."""


@lru_cache(maxsize=256)
def _classes(randomizer: SignedSubset) -> tuple[list[SignVectors], Floats]:
    """The vectors over the other states for each class; and how likely a report that does not agree says nothing, or
    is of each class, shape (10,)."""
    vectors, u = randomizer.vectors, float(randomizer.spoken)
    rests = [vectors.completing({0: at_new, 1: at_old}) for at_new, at_old in CLASSES]
    chances = np.array([1 - u, *(u * rest.count / vectors.count for rest in rests)])
    chances[1 + CLASSES.index(AGREES)] = 0
    return rests, chances / chances.sum()


@dataclass(frozen=True)
class SignedSubsetCounterpart(WithContents[SignedSubset]):
    """A tally counts symbols, or keeps sums: how many reports said nothing, then how many gave each of the d
    states a plus, then how many gave it a minus.

    A vector w decodes to c·w and "nothing" to 0, with c = Z / uK and Z = 1 + uK. Without a change E ww' = u·B. With a
    change old -> new it is (u/Z)·B + (uK/Z)·B_F. Here B is the second moment of a uniform vector, and B_F that of a
    uniform favoured one:

        B   = ξ + (η - ξ) I,   η the mean square of a sign, ξ the mean product of two
        B_F = the same with η_F and ξ_F over the other states; 1 at (old, old) and (new, new), -1 at (old, new)

    All shapes are over the d states, NULL included if it is one.
    """

    answers_alike = True

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
            covariance, upper_bound = self._counted(w.T @ (O[:, None] * w), tally.reports, quiet)
        else:
            sums, quiet = O[1 : 1 + d] - O[1 + d :], O[0]
            covariance, upper_bound = self._summed(tally.reports, quiet), True
        return Estimate(self.scale * sums[self._answers], covariance[self._answers, self._answers], upper_bound)

    def changed(self, tallies: Sequence[NodeTally]) -> Floats:
        """From how many said nothing, which slot 0 counts in either form of tally; nan if u = 1."""
        if not self.randomizer.quiet:
            return super().changed(tallies)
        return np.array([self._changed(tally.reports, float(tally.slots[0])) for tally in tallies])

    def report_covariance(self, true: int) -> Floats:
        """The covariance in closed form, from the second moments of the signs."""
        self.randomizer.space.pair(true)  # raises outside the space
        return self._of_change(*self.randomizer.positions(true))[self._answers, self._answers]

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

    def sample_agreeing_sums(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
        """Draws the sums class by class of the signs at `old` and `new`, never a vector by itself."""
        rests, chances = _classes(self.randomizer)
        held = np.flatnonzero(agreed + others)
        old, new = np.array([self.randomizer.positions(true) for true in held.tolist()], np.intp).reshape(-1, 2).T
        drawn = generator.multinomial(others[held], chances)
        drawn[:, 1 + CLASSES.index(AGREES)] = agreed[held]
        rows, elsewhere = np.arange(len(held)), np.ones((len(held), self.randomizer.states), np.bool_)
        elsewhere[rows, old] = elsewhere[rows, new] = False
        signs = np.zeros((2, len(held), self.randomizer.states), np.int64)
        for (at_new, at_old), rest, reports in zip(CLASSES, rests, drawn[:, 1:].T, strict=True):
            if not reports.any():
                continue
            for of_sign, sign, at_rest in zip(
                signs, (1, -1), sample_vector_sums(rest, reports, generator), strict=True
            ):
                of_sign[elsewhere] += at_rest.ravel()
                of_sign[rows, new] += reports * (at_new == sign)
                of_sign[rows, old] += reports * (at_old == sign)
        return np.concatenate([[drawn[:, 0].sum()], *signs.sum(1)])

    @property
    def _answers(self) -> slice:
        """The states without NULL."""
        return slice(self.randomizer.states - self.randomizer.space.answers, None)

    @property
    def scale(self) -> float:
        """c: what one sign is worth, in entries."""
        return self._norm / self._gain

    def _of_change(self, old: int, new: int) -> Floats:
        """The covariance of what one report of old -> new decodes to, shape (d, d), in entries squared.

        With old == new, of a report of no change.
        """
        c, u, moments = self.scale, self._spoken, self._moments
        B = _alike(moments.states, moments.nonzero, moments.pair)
        if old == new:
            return c * c * u * B
        favoured = _alike(moments.states, moments.nonzero_rest, moments.pair_rest)
        moved = np.zeros((moments.states, moments.states))
        ends = np.ix_([old, new], [old, new])
        moved[ends] = [[1, -1], [-1, 1]]
        favoured[[old, new], :] = favoured[:, [old, new]] = 0
        favoured[ends] = moved[ends]
        return c * c * u / self._norm * B + c * favoured - moved

    def _changed(self, reports: int, quiet: float) -> float:
        """n_c, unbiased for how many entries changed; u must be below 1.

        reports: how many reported. quiet: how many of them said nothing, which has the probability 1 - u without a
        change, and (1 - u)/Z with one.
        """
        return (reports - quiet / (1 - self._spoken)) / (1 - 1 / self._norm)

    def _counted(self, squares: Floats, reports: int, quiet: float) -> tuple[Floats, bool]:
        """The covariance estimated from counts of symbols, shape (d, d), and whether it is an upper bound.

        squares: Σww' over all reports.
        reports: how many there are.
        quiet: how many said nothing.
        It is c²·Σww' - Σδδ'. The counts tell Σδδ' unless u = 1, or vectors are balanced over an even number of states,
        four or more; then Σδδ' is left out, which makes a bound.
        """
        randomizer, d = self.randomizer, self._moments.states
        told = randomizer.spoken < 1 and (d == 2 or d % 2 == 1 or randomizer.pluses != 0)
        moved = self._moved(squares, reports, quiet) if told else np.zeros((d, d))
        return self.scale**2 * squares - moved, not told

    def _summed(self, reports: int, quiet: float) -> Floats:
        """An upper bound of the covariance from sums alone, shape (d, d): (n_0 + g·n_c)·C_0.

        C_0 is the covariance of a report of no change, and g·C_0 the least multiple of it that is above the covariance
        of every change. n_c entries changed, n_0 did not. If u = 1 the sums do not tell n_c, and everybody counts with
        the larger of 1 and g. As all entries might change alike, the bound can be too large: for balanced vectors with
        u = min(1, 1/K) by up to an eighth.
        """
        if self.randomizer.quiet:
            return (reports + (self._excess - 1) * self._changed(reports, quiet)) * self._of_change(0, 0)
        return reports * max(1.0, self._excess) * self._of_change(0, 0)

    def _moved(self, squares: Floats, reports: int, quiet: float) -> Floats:
        """Unbiased for Σδδ' over the entries that changed, from Σww' and how many said nothing.

        Let m_ik entries have changed between the states i and k, in either direction, t_i = Σ_k m_ik, and n_c in all.
        Then, off the diagonal, E Σww' = ξν + (1/c){ξ_F (n_c - t_i - t_k) - (1 - ξ_F) m_ik}, where ν is how many
        vectors are sent, less those that are sent because changes favour them.
        """
        c, d, u = self.scale, self._moments.states, self._spoken
        xi, xi_rest = self._moments.pair, self._moments.pair_rest
        base = u / (1 - u) * quiet
        changed = self._changed(reports, quiet)
        off = squares - np.diag(np.diag(squares))
        common = xi * base + xi_rest * changed / c
        touched = c * ((d - 1) * common - 2 * xi_rest * changed / c - off.sum(1)) / (1 + xi_rest * (d - 3))
        spread = touched[:, None] + touched[None, :]
        between = (c * (common - off) - xi_rest * spread) / (1 - xi_rest)
        np.fill_diagonal(between, 0)
        moved: Floats = np.diag(touched) - between
        return moved

    @cached_property
    def _excess(self) -> float:
        """g, the same for every mutation: the largest eigenvalue of its covariance in units of C_0."""
        values, vectors = np.linalg.eigh(self._of_change(0, 0))
        kept = values > 1e-9 * values[-1]
        whitening = vectors[:, kept] / np.sqrt(values[kept])
        return float(np.linalg.eigvalsh(whitening.T @ self._of_change(0, 1) @ whitening)[-1])

    @cached_property
    def _moments(self) -> SignMoments:
        return SignMoments.of(self.randomizer.states, self.randomizer.pluses)

    @property
    def _spoken(self) -> float:
        """u."""
        return float(self.randomizer.spoken)

    @cached_property
    def _gain(self) -> float:
        """uK."""
        odds = self.randomizer.odds
        return self._spoken * self._moments.favoured * ((odds.favoured - odds.other) / odds.other)

    @property
    def _norm(self) -> float:
        """Z."""
        return 1 + self._gain

    def _probability(self, symbol: int, true: int) -> float:
        return self.randomizer.weight(symbol, true) / self.randomizer.total(true)


register_counterpart(
    SignedSubset, SignedSubsetCounterpart, changes=ChangeOffers(ONE_CHANGE, changes), agreeing=agreeing
)
