"""A dataset from which items are only deleted, restarted when about half of them are gone: a node of the interval tree.

    round r:  n~ = |D| + Lap(1/ε_r); Q(D) by the static mechanism; infinite streams of the deletions and their number
    restart:  once deletions~ > n~/2 + 2γ, with what is left as D; halt, answering 0 for ever, if then n~ < 2γ

Guarantee: (epsilon, delta) for ever: four mechanisms a round at ε_r = 3ε/2π²r², three of them with δ_r = 2δ/π²r², and
Σ 6/π²r² = 1 (taken a little below 6/π², to be a fraction). γ bounds the error of the number of deletions with
probability 1 - β/π²r². Neighbours: an item more at first, or deleted once more, or both.
Source: Qiu, Yi, algorithm 3, lemma 10.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import log, log1p, pi
from typing import Generic

from ..counters.infinite import InfiniteMechanism, InfiniteState, block_of
from ..errors import BadState
from ..noise import Noise
from ..static import BasicCounting, Data, Static, check_answers, check_data

BASEL = Fraction(6079271018540266, 10**16)
"""6/π², rounded down: BASEL · Σ 1/r² < 1."""


@dataclass(frozen=True, slots=True)
class NodeState(Generic[Data]):
    """round: r, from 1 on. remaining: the true D by now. size: n~, noisy. answers: on D as the round began, noisy.

    deleted, number: the streams of what was deleted since, and of how many that were. halted: it answers 0 for ever.
    """

    round: int
    remaining: Data
    size: int
    answers: Data
    deleted: InfiniteState[Data]
    number: InfiniteState[int]
    halted: bool = False


@dataclass(frozen=True, slots=True)
class DeletingNode(Generic[Data]):
    """A node at the price (epsilon, delta). failure: β, of the bound on the error of the number of deletions.

    counting: the static mechanism for sizes; it gets no delta, so it is one of pure epsilon.
    """

    static: Static[Data]
    epsilon: Fraction
    delta: Fraction
    failure: float
    counting: Static[int] = BasicCounting()  # noqa: RUF009 frozen

    def begun(self, data: Data, noise: Noise, round_: int = 1) -> NodeState[Data]:
        """The state of a round that begins on this dataset; releases its size and its answers. round_: from 1 on."""
        epsilon, delta = self.round_share(round_)
        size = self._sized(data, round_, noise)
        answers = self.static.under(epsilon, delta).release(data, noise)
        return NodeState(round_, data, size, answers, self.stream(round_).start(), self._number(round_).start())

    def step(self, state: NodeState[Data], deleted: Data, noise: Noise) -> NodeState[Data]:
        """The state after one more segment. deleted: the items of D that it deletes."""
        remaining = state.remaining - deleted
        if state.halted:
            return replace(state, remaining=remaining)
        r = state.round
        after_q, _ = self.stream(r).step(state.deleted, deleted, noise)
        after_n, gone = self._number(r).step(state.number, self.static.size(deleted), noise)
        wide = self._error_bound(r, after_n.time)
        if gone <= state.size / 2 + 2 * wide:
            return replace(state, remaining=remaining, deleted=after_q, number=after_n)
        size = self._sized(remaining, r + 1, noise)
        if size < 2 * self._error_bound(r + 1, after_n.time):
            zero = self.static.zero()
            return replace(state, round=r + 1, remaining=remaining, size=size, answers=zero, halted=True)
        epsilon, delta = self.round_share(r + 1)
        answers = self.static.under(epsilon, delta).release(remaining, noise)
        return NodeState(r + 1, remaining, size, answers, self.stream(r + 1).start(), self._number(r + 1).start())

    def answers(self, state: NodeState[Data]) -> Data:
        """On D by now: the round's answers less the deletions since, or 0."""
        return self.static.zero() if state.halted else state.answers - state.deleted.answers

    def round_share(self, r: int) -> tuple[Fraction, Fraction]:
        """(ε_r, δ_r) of each mechanism of round r."""
        return self.epsilon * BASEL / (4 * r**2), self.delta * BASEL / (3 * r**2)

    def stream(self, r: int) -> InfiniteMechanism[Data]:
        """The stream of what is deleted during round r."""
        return InfiniteMechanism(self.static, *self.round_share(r))

    def check(self, state: NodeState[Data]) -> None:
        """Raises BadState for a state that no node at this price reaches, as far as its shape tells."""
        if state.round < 1:
            raise BadState(f"the rounds of a node are counted from 1, and the state is of round {state.round}")
        check_data(self.static, state.remaining)
        check_answers(self.static, state.answers)
        self.stream(state.round).check(state.deleted)
        self._number(state.round).check(state.number)

    def _number(self, r: int) -> InfiniteMechanism[int]:
        return InfiniteMechanism(self.counting, self.round_share(r)[0])

    def _sized(self, data: Data, r: int, noise: Noise) -> int:
        return self.counting.under(self.round_share(r)[0], Fraction(0)).release(self.static.size(data), noise)

    def _error_bound(self, r: int, time: int) -> float:
        i, inside = block_of(time + 1)
        return error_bound(i, (inside - 1).bit_count(), self.failure / (pi * r) ** 2) / float(self.round_share(r)[0])


@lru_cache(maxsize=4096)
def error_bound(blocks: int, nodes: int, failure: float) -> float:
    """γ·ε: the error of an infinite counter of Laplace noise that adds so many blocks and nodes, not exceeded with
    probability 1 - failure.

    Chernoff: the least (ln(2/failure) - Σ ln(1 - s²b²)) / s, over i blocks of b = 2 and nodes of b = 2i, at ε = 1.
    """
    scales = [2.0] * blocks + [2.0 * blocks] * nodes or [2.0]
    widest = max(scales)
    bound = float("inf")
    for tenth in range(1, 100):
        s = tenth / 100 / widest
        bound = min(bound, (log(2 / failure) - sum(log1p(-((s * b) ** 2)) for b in scales)) / s)
    return bound
