"""k-ary randomized response: decoded in closed form, O(m), never by a matrix over the alphabet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache

import numpy as np
from changeling_protocol import KaryResponse, MutationSpace, Odds, StateSpace
from changeling_protocol.randomizers import Losses

from ..estimate import Estimate, Floats
from ..tallies import Counts, NodeTally
from .change_map import ChangeMap, change_map
from .counted import BLOCK, Counted
from .counterpart import Blanket
from .decoded_nodes import DecodedNodes
from .likelihoods import Likelihoods, PairKind, merged, one_pair
from .offers import ChangeOffers, Offer
from .registry import register
from .variances import offer_of

UNIT_LOSSES = Losses(mutations=Decimal(1), appears=Decimal(1), vanishes=Decimal(1), insertions=Decimal(1))
"""In units of ln(a/b): a mutation is paid for twice, where it appears and where it vanishes."""


@dataclass(frozen=True)
class KaryCounterpart(Counted[KaryResponse]):
    """A's column of symbol o is (M_o - q·U) / (p - q) with U = M_δv 1, which spares the matrix P⁻¹."""

    answers_alike = True

    def input_counts(self, tally: NodeTally) -> Floats:
        """ŝ = P⁻¹O = (O - n·q) / (p - q): how many reports came from each input, shape (m,)."""
        return (tally.slots.astype(np.float64) - tally.reports * self._q) / self._gap

    def estimate(self, tally: NodeTally) -> Estimate:
        s = self.input_counts(tally)
        return Estimate(self._map.apply(s), self.squares(tally) - self._map.sandwich(s))

    def squares(self, tally: NodeTally) -> Floats:
        q, M, U, O = self._q, self._map, self._sum, tally.slots.astype(np.float64)
        cross = q * np.outer(M.apply(O), U)
        ADA: Floats = (M.sandwich(O) - cross - cross.T + q * q * tally.reports * np.outer(U, U)) / self._gap**2
        return ADA

    def estimates(self, tallies: Sequence[NodeTally]) -> DecodedNodes:
        rows = max(1, BLOCK // self.randomizer.symbols)
        parts = [self._columns(tallies[at : at + rows]) for at in range(0, len(tallies), rows)]
        values, covariances, products = (np.concatenate(column) for column in zip(*parts, strict=True))
        return DecodedNodes(values, covariances, False, products, self.changed(tallies))

    def report_covariance(self, true: int) -> Floats:
        """{ q·M M' + (p-q) δδ' - μμ' } / (p-q)²,  μ = q·U + (p-q) δ."""
        self.randomizer.space.pair(true)
        delta = self._map.apply(np.eye(1, self.randomizer.symbols, true)[0])
        mean = self._q * self._sum + self._gap * delta
        second = self._q * self._square + self._gap * np.outer(delta, delta)
        return (second - np.outer(mean, mean)) / self._gap**2

    def likelihoods(self, u: int, v: int) -> Likelihoods:  # noqa: ARG002
        a, b, total = self.randomizer.odds.favoured, self.randomizer.odds.other, self.randomizer.total()
        return merged([(a, b, 1), (b, a, 1), (b, b, self.randomizer.symbols - 2)], total, total)

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:
        return one_pair(self.randomizer.space, kind)

    @property
    def blanket(self) -> Blanket:
        total = self.randomizer.total()
        return Blanket(self.randomizer.odds.favoured / total, self._q, self.randomizer.symbols)

    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """With probability p - q = (a - b)/total a response is the truth, otherwise uniform over all symbols."""
        m, odds = self.randomizer.symbols, self.randomizer.odds
        kept: Counts = generator.binomial(counts, (odds.favoured - odds.other) / self.randomizer.total())
        uniform: Counts = generator.multinomial(counts.sum(1) - kept.sum(1), np.full(m, 1 / m))
        return kept + uniform

    def _columns(self, tallies: Sequence[NodeTally]) -> tuple[Floats, Floats, Floats]:
        """Values, covariances and products, (nodes, m) at a time; M diag(w) M' is linear in w = (O - nq)/(p - q)."""
        M, q, gap = self._map, self._q, self._gap
        d, u = M.answers + 1, self._sum
        O = np.array([tally.slots for tally in tallies], dtype=np.float64)
        n = np.array([tally.reports for tally in tallies], dtype=np.float64)
        W = np.zeros((len(O), d, d))
        W[:, M.old, M.new] = O  # no two inputs are the same pair
        by_new, by_old = W.sum(1), W.sum(2)
        MO = (by_new - by_old)[:, 1:]
        MOM = -(W + W.transpose(0, 2, 1))
        diagonal = np.arange(d)
        MOM[:, diagonal, diagonal] += by_new + by_old
        MOM = MOM[:, 1:, 1:]
        cross = q * MO[:, :, None] * u
        ADA = MOM - cross - cross.transpose(0, 2, 1) + (q * q * n)[:, None, None] * np.outer(u, u)
        MsM = (MOM - (n * q)[:, None, None] * self._square) / gap
        return (MO - (n * q)[:, None] * u) / gap, ADA / gap**2 - MsM, MsM

    @property
    def _q(self) -> float:
        return self.randomizer.odds.other / self.randomizer.total()

    @property
    def _gap(self) -> float:
        """p - q, without cancellation. Raises ValueError where it is 0."""
        odds = self.randomizer.odds
        if odds.favoured == odds.other:
            raise ValueError(f"odds of {odds.favoured}:{odds.other} say nothing: choose favoured > other")
        return (odds.favoured - odds.other) / self.randomizer.total()

    @property
    def _map(self) -> ChangeMap:
        return change_map(self.randomizer.space)

    @cached_property
    def _sum(self) -> Floats:
        return self._map.apply(np.ones(self.randomizer.symbols))

    @cached_property
    def _square(self) -> Floats:
        return self._map.sandwich(np.ones(self.randomizer.symbols))


@lru_cache(maxsize=1024)
def _states(space: StateSpace, odds: Odds) -> Iterable[Offer]:
    return (offer_of(KaryResponse(space, odds)),)


@lru_cache(maxsize=1024)
def _changes(answers: int, odds: Odds, closed: bool) -> Iterable[Offer]:
    return (offer_of(KaryResponse(MutationSpace(answers), odds), closed),)


register(
    KaryResponse,
    KaryCounterpart,
    states=_states,
    changes=ChangeOffers(UNIT_LOSSES, lambda answers, odds, moved, closed: _changes(answers, odds, closed)),  # noqa: ARG005
)
