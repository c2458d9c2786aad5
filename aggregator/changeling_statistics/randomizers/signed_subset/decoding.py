"""How signed subsets are decoded: signs are added up and scaled, and the covariance follows from their moments.

All states but the two of a mutation are alike, so four numbers give all second moments, whatever z is.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import SignedSubset

from ...estimate import Floats
from .moments import SignMoments


@dataclass(frozen=True)
class Decoder:
    """Decodes a vector w to c·w and "nothing" to 0, with c = Z / uK and Z = 1 + uK.

    Without a change E ww' = u·B. With a change old -> new it is (u/Z)·B + (uK/Z)·B_F. Here B is the second moment of
    a uniform vector, and B_F that of a uniform favoured one:

        B   = ξ + (η - ξ) I,   η the mean square of a sign, ξ the mean product of two
        B_F = the same with η_F and ξ_F over the other states; 1 at (old, old) and (new, new), -1 at (old, new)

    All shapes are over the d states, NULL included if it is one.
    """

    randomizer: SignedSubset

    @property
    def scale(self) -> float:
        """c: what one sign is worth, in entries."""
        return self._norm / self._gain

    def covariance(self, old: int, new: int) -> Floats:
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

    def changed(self, reports: int, quiet: float) -> float:
        """n_c, unbiased for how many entries changed; u must be below 1.

        reports: how many reported. quiet: how many of them said nothing, which has the probability 1 - u without a
        change, and (1 - u)/Z with one.
        """
        return (reports - quiet / (1 - self._spoken)) / (1 - 1 / self._norm)

    def counted(self, squares: Floats, reports: int, quiet: float) -> tuple[Floats, bool]:
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

    def summed(self, reports: int, quiet: float) -> Floats:
        """An upper bound of the covariance from sums alone, shape (d, d): (n_0 + g·n_c)·C_0.

        C_0 is the covariance of a report of no change, and g·C_0 the least multiple of it that is above the covariance
        of every change. n_c entries changed, n_0 did not. If u = 1 the sums do not tell n_c, and everybody counts with
        the larger of 1 and g. As all entries might change alike, the bound can be too large: for balanced vectors with
        u = min(1, 1/K) by up to an eighth.
        """
        if self.randomizer.quiet:
            return (reports + (self._excess - 1) * self.changed(reports, quiet)) * self.covariance(0, 0)
        return reports * max(1.0, self._excess) * self.covariance(0, 0)

    def _moved(self, squares: Floats, reports: int, quiet: float) -> Floats:
        """Unbiased for Σδδ' over the entries that changed, from Σww' and how many said nothing.

        Let m_ik entries have changed between the states i and k, in either direction, t_i = Σ_k m_ik, and n_c in all.
        Then, off the diagonal, E Σww' = ξν + (1/c){ξ_F (n_c - t_i - t_k) - (1 - ξ_F) m_ik}, where ν is how many
        vectors are sent, less those that are sent because changes favour them.
        """
        c, d, u = self.scale, self._moments.states, self._spoken
        xi, xi_rest = self._moments.pair, self._moments.pair_rest
        base = u / (1 - u) * quiet
        changed = self.changed(reports, quiet)
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
        values, vectors = np.linalg.eigh(self.covariance(0, 0))
        kept = values > 1e-9 * values[-1]
        whitening = vectors[:, kept] / np.sqrt(values[kept])
        return float(np.linalg.eigvalsh(whitening.T @ self.covariance(0, 1) @ whitening)[-1])

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


def _alike(d: int, diagonal: float, elsewhere: float) -> Floats:
    return np.full((d, d), elsewhere) + (diagonal - elsewhere) * np.eye(d)
