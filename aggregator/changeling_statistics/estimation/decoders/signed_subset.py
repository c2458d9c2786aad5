"""Decoding signed subset selection: add the signs up and scale; its covariance follows from symmetry alone.

Every state but the two of a mutation looks alike, so second moments need four numbers, whatever z is.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import SignedSubset

from ...symbol_contents import all_contents
from ...tallies import NodeTally, counts_symbols
from ..estimate import Estimate, Floats


@dataclass(frozen=True)
class SignedSubsetDecoder:
    """A vector w decodes to c·w and nothing to 0, with c = Z / uK and Z = 1 + uK.

    Without a change E ww' = u·B; with a change old -> new it is (u/Z)·B + (uK/Z)·B_F, where B and B_F are the
    second moments of a uniform vector and of a uniform favoured one:

        B   = ξ + (η - ξ) I               η the share of signs that are not zero, ξ fixed by the sum of the signs
        B_F = the same with η_F and ξ_F over the other states; 1, 1, -1 at (old, old), (new, new), (old, new)
    """

    randomizer: SignedSubset

    def estimate(self, tally: NodeTally) -> Estimate:
        """Δv̂ = c·Σw. Its covariance is that of `_counted` or `_summed`, in entries squared."""
        O, d = tally.slots.astype(np.float64), self._d
        if counts_symbols(self.randomizer):
            w = all_contents(self.randomizer).astype(np.float64)
            sums, quiet = O @ w, O[: self.randomizer.quiet].sum()
            covariance, upper_bound = self._counted(w.T @ (O[:, None] * w), tally.reports, quiet)
        else:
            sums, quiet = O[1 : 1 + d] - O[1 + d :], O[0]
            covariance, upper_bound = self._summed(tally.reports, quiet), True
        return Estimate(self._scale * sums[1:], covariance[1:, 1:], upper_bound)

    def report_covariance(self, true: int) -> Floats:
        old, new = self.randomizer.space.pair(true)
        return self._covariance(old, new)[1:, 1:]

    def mean_variances(self) -> tuple[float, float]:
        c, u, d = self._scale, self._spoken, self._d
        with_sign = 2 / d + (1 - 2 / d) * self._nonzero_rest
        changed = c * c * u / self._norm * self._nonzero + c * with_sign - 2 / d
        return c * c * u * self._nonzero, changed

    def _counted(self, squares: Floats, reports: int, quiet: float) -> tuple[Floats, bool]:
        """c²·Σww' less Σδδ' where the second moments tell it, which they do unless u = 1 or, for balanced
        vectors of an even number of states, always; there the last term is bounded by zero."""
        randomizer, d = self.randomizer, self._d
        told = randomizer.spoken < 1 and (d == 2 or d % 2 == 1 or randomizer.pluses != 0)
        moved = self._moved(squares, reports, quiet) if told else np.zeros((d, d))
        return self._scale**2 * squares - moved, not told

    def _moved(self, squares: Floats, reports: int, quiet: float) -> Floats:
        """Σδδ' over the entries that changed, without bias, from Σww' and how many said nothing.

        With m_ik changes between i and k, t_i = Σ_k m_ik and n_c in all, off the diagonal
        E Σww' = ξν + (1/c){ξ_F (n_c - t_i - t_k) - (1 - ξ_F) m_ik}, ν the number of vectors but for the favour.
        """
        c, d, u = self._scale, self._d, self._spoken
        xi, xi_rest = self._pair, self._pair_rest
        base = u / (1 - u) * quiet
        changed = (reports - quiet / (1 - u)) / (1 - 1 / self._norm)
        off = squares - np.diag(np.diag(squares))
        common = xi * base + xi_rest * changed / c
        touched = c * ((d - 1) * common - 2 * xi_rest * changed / c - off.sum(1)) / (1 + xi_rest * (d - 3))
        spread = touched[:, None] + touched[None, :]
        between = (c * (common - off) - xi_rest * spread) / (1 - xi_rest)
        np.fill_diagonal(between, 0)
        moved: Floats = np.diag(touched) - between
        return moved

    def _summed(self, reports: int, quiet: float) -> Floats:
        """(n_0 + g·n_c)·C_0, where g·C_0 is the least multiple of C_0 above the covariance of every change.

        Where u = 1 nothing tells n_c, and the larger of the two multiples counts for everybody. It has to cover
        entries that all change alike: for balanced vectors with u = min(1, 1/K), up to an eighth too large.
        """
        if self.randomizer.quiet:
            changed = (reports - quiet / (1 - self._spoken)) / (1 - 1 / self._norm)
            return (reports + (self._excess - 1) * changed) * self._covariance(0, 0)
        return reports * max(1.0, self._excess) * self._covariance(0, 0)

    @cached_property
    def _excess(self) -> float:
        """g, the same for every mutation: the largest eigenvalue of its covariance in units of C_0."""
        values, vectors = np.linalg.eigh(self._covariance(0, 0))
        kept = values > 1e-9 * values[-1]
        whitening = vectors[:, kept] / np.sqrt(values[kept])
        return float(np.linalg.eigvalsh(whitening.T @ self._covariance(0, 1) @ whitening)[-1])

    def _covariance(self, old: int, new: int) -> Floats:
        """Of one decoded report over all states, NULL included, shape (d, d); no change where old == new."""
        c, u, d = self._scale, self._spoken, self._d
        B = _alike(d, self._nonzero, self._pair)
        if old == new:
            return c * c * u * B
        favoured = _alike(d, self._nonzero_rest, self._pair_rest)
        moved = np.zeros((d, d))
        ends = np.ix_([old, new], [old, new])
        moved[ends] = [[1, -1], [-1, 1]]
        favoured[[old, new], :] = favoured[:, [old, new]] = 0
        favoured[ends] = moved[ends]
        return c * c * u / self._norm * B + c * favoured - moved

    @property
    def _d(self) -> int:
        return self.randomizer.states

    @property
    def _spoken(self) -> float:
        return float(self.randomizer.spoken)

    @cached_property
    def _gain(self) -> float:
        """uK."""
        r = self.randomizer
        share = r.favoured / r.vectors.count
        return self._spoken * share * ((r.odds.favoured - r.odds.other) / r.odds.other)

    @property
    def _norm(self) -> float:
        """Z."""
        return 1 + self._gain

    @property
    def _scale(self) -> float:
        """c: what one sign is worth, in entries."""
        return self._norm / self._gain

    @property
    def _zeros(self) -> int:
        return self._d - 2 * self.randomizer.pluses if self.randomizer.pluses else 0

    @property
    def _sum_squared(self) -> int:
        """(Σ_i w_i)²: 1 for balanced vectors of an odd number of states."""
        return self._d % 2 if not self.randomizer.pluses else 0

    @property
    def _nonzero(self) -> float:
        """η."""
        return 1 - self._zeros / self._d

    @property
    def _nonzero_rest(self) -> float:
        """η_F."""
        return 1 - self._zeros / (self._d - 2) if self._d > 2 else 0.0

    @property
    def _pair(self) -> float:
        """ξ."""
        return (self._sum_squared - self._d * self._nonzero) / (self._d * (self._d - 1))

    @property
    def _pair_rest(self) -> float:
        """ξ_F."""
        rest = self._d - 2
        return (self._sum_squared - rest * self._nonzero_rest) / (rest * (rest - 1)) if rest > 1 else 0.0


def _alike(d: int, diagonal: float, elsewhere: float) -> Floats:
    return np.full((d, d), elsewhere) + (diagonal - elsewhere) * np.eye(d)
