"""What the statistics know of one randomizer: the other half of what a device knows of it.

How its reports are tallied, what a tally says and how surely, how well a report tells two inputs apart, and how the
tally of many entries is drawn without asking each. Knows nothing of surveys, of time or of other randomizers.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np
from changeling_protocol import Randomizer
from numpy.typing import NDArray

from ..estimate import Estimate, Floats
from ..tallies import Counts, NodeTally
from .decoded_nodes import DecodedNodes
from .likelihoods import Likelihoods, PairKind, all_pairs, listed_likelihoods

R_co = TypeVar("R_co", bound=Randomizer, covariant=True)


@dataclass(frozen=True, slots=True)
class Blanket:
    """A report that is the true symbol with probability `truth`, and each other of `symbols` with `other`.

    So with probability symbols · other it is uniform whatever is true; shuffled, the others' uniform reports hide it.
    """

    truth: float
    other: float
    symbols: int


@dataclass(frozen=True)
class Counterpart(ABC, Generic[R_co]):
    """The statistics of a randomizer of m inputs over z answers. Every covariance is that of the responses alone.

    answers_alike: whether all answers are treated alike, so that one insertion, one deletion, one move and one state
    stand for all of them.
    """

    answers_alike: ClassVar[bool] = False
    randomizer: R_co

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many slots a tally has."""

    @abstractmethod
    def tally(self, symbols: NDArray[np.uint64]) -> NodeTally:
        """The tally of n symbols, shape (n,), all of them in range."""

    @abstractmethod
    def estimate(self, tally: NodeTally) -> Estimate:
        """The change of the histogram that a tally of at least one report says; of states, the histogram.

        Unbiased, with the covariance unbiased as well or labelled as a bound. Raises ValueError where the randomizer
        says nothing or has no unbiased decoder.
        """

    @abstractmethod
    def report_covariance(self, true: int) -> Floats:
        """The exact covariance of one decoded report from the input `true`, shape (z, z), in entries squared.

        Raises ValueError outside the space, and as `estimate`.
        """

    @abstractmethod
    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """The slots of several nodes, drawn as the sums of their reports are distributed, without drawing each.

        counts: how many entries have which input on each node, shape (nodes, m). generator: for simulations; no
        coin of a device. Returns shape (nodes, slots). Exact up to the rounding of probabilities to floats.
        """

    def sample(self, counts: Counts, generator: np.random.Generator) -> NodeTally:
        """The tally of one node, drawn like `sample_slots`; counts: shape (m,)."""
        return NodeTally(int(counts.sum()), self.sample_slots(counts[None, :], generator)[0])

    def estimates(self, tallies: Sequence[NodeTally]) -> DecodedNodes:
        """What `estimate` says of each of at least one tallies, and what they say of who changed."""
        decoded = [self.estimate(tally) for tally in tallies]
        return DecodedNodes(
            values=np.array([estimate.values for estimate in decoded]),
            covariances=np.array([estimate.covariance for estimate in decoded]),
            upper_bound=any(estimate.upper_bound for estimate in decoded),
            products=None,
            changed=self.changed(tallies),
        )

    def changed(self, tallies: Sequence[NodeTally]) -> Floats:
        """Unbiased for how many of the reporting entries changed on each node, shape (nodes,); nan where unknown."""
        return np.full(len(tallies), np.nan)

    def squares(self, tally: NodeTally) -> Floats | None:  # noqa: ARG002
        """A diag(O) A', shape (z, z): what single reports decode to, squared and added up; None if the tally keeps
        sums of symbols, from which it is not known."""
        return None

    def likelihoods(self, u: int, v: int) -> Likelihoods:
        """How likely symbols are under the inputs u and v, merged by likelihood ratio, exactly.

        Raises ValueError where the alphabet is too large to list and there is no closed form.
        """
        return listed_likelihoods(self.randomizer, u, v)

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:
        """Pairs of inputs of a kind among which one is told apart best, at every epsilon."""
        return all_pairs(self.randomizer.space, kind)

    @property
    def blanket(self) -> Blanket | None:
        """The same report as a truth or a uniform symbol, where it is that."""
        return None
