"""The counterpart of a randomizer: what the statistics know of it, where its other half is what a device knows.

It tallies reports, decodes a tally with its covariance, says how well a report tells two inputs apart, and draws the
tally of many entries without drawing each report. Knows nothing of surveys, of time or of other randomizers.
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
from .agreement import of_the_base
from .decoded_nodes import DecodedNodes
from .likelihoods import Likelihoods, PairKind, all_pairs, listed_likelihoods

R_co = TypeVar("R_co", bound=Randomizer, covariant=True)


@dataclass(frozen=True, slots=True)
class Blanket:
    """A randomizer seen as a mixture: a report is either the truth, or a uniform symbol whatever the truth is.

    Once reports are shuffled, those that are uniform hide the others. A report is uniform with probability
    symbols · other.

    truth: the probability of the true symbol.
    other: of each other symbol.
    symbols: how many symbols there are.
    """

    truth: float
    other: float
    symbols: int


@dataclass(frozen=True)
class Counterpart(ABC, Generic[R_co]):
    """The statistics of one randomizer with m inputs over z answers.

    Every covariance is that of the randomizer's coins alone, given everybody's true inputs.

    randomizer: the device's half.
    answers_alike: whether the randomizer treats all answers alike. One insertion, one deletion, one move and one
    state then stand for all of them.
    """

    answers_alike: ClassVar[bool] = False
    randomizer: R_co

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many slots a tally has."""

    @abstractmethod
    def tally(self, symbols: NDArray[np.uint64]) -> NodeTally:
        """The tally of some reports.

        symbols: what was reported, shape (n,), every one below `randomizer.symbols`.
        """

    def tallies(self, symbols: NDArray[np.uint64], of: NDArray[np.int64], count: int) -> list[NodeTally]:
        """The tallies of many nodes at once, each as `tally` gives it; of a node without reports, an empty one.

        symbols: as `tally` takes them, of all nodes. of: which node each is of, from 0 on, shape (n,). count: how many
        nodes there are.
        """
        order = np.argsort(of, kind="stable")
        ends = np.cumsum(np.bincount(of, minlength=count))
        return [self.tally(part) for part in np.split(symbols[order], ends)[:count]]

    @abstractmethod
    def estimate(self, tally: NodeTally) -> Estimate:
        """The unbiased change of the histogram over a node; for reports of states, the histogram at its end.

        tally: of at least one report.
        Returns values of shape (z,), in entries, with a covariance that is unbiased too, or labelled as an upper bound.
        Raises ValueError if the randomizer says nothing, or has no unbiased decoder.
        """

    @abstractmethod
    def report_covariance(self, true: int) -> Floats:
        """The exact covariance of what one report decodes to, shape (z, z), in entries squared.

        true: the input it is a report of. Raises ValueError outside the space, and as `estimate` does.
        """

    @abstractmethod
    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """Draws the slots of several nodes from the distribution that the sums of their reports have.

        counts: how many entries have each input on each node, shape (nodes, m).
        generator: for simulations; it draws no coin of a device.
        Returns shape (nodes, slots). The distribution is exact, up to the rounding of probabilities to floats.
        """

    def sample(self, counts: Counts, generator: np.random.Generator) -> NodeTally:
        """Draws the tally of one node, as `sample_slots` does.

        counts: how many entries have each input, shape (m,).
        """
        return NodeTally(int(counts.sum()), self.sample_slots(counts[None, :], generator)[0])

    def sample_joint(self, agreed: Counts, others: Counts, base: int, generator: np.random.Generator) -> NodeTally:
        """Draws the tally of one node of a joint group, of whose reports it is known how many agree.

        agreed, others: how many reports of each input agree with it, and how many do not, shape (m,).
        base: how many reports are drawn from the base, as they have nothing to tell.
        Raises ValueError for a randomizer without a joint form.
        """
        base_agreed, base_others = of_the_base(self.randomizer, base, generator)
        slots = self.sample_agreeing(agreed + base_agreed, others + base_others, generator)
        return NodeTally(int(agreed.sum() + others.sum()) + base, slots)

    def sample_agreeing(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:  # noqa: ARG002
        """Draws slots, shape (slots,): each symbol from the base, given whether it agrees with the input it tells.

        agreed, others: as for `sample_joint`; none of an input that tells nothing.
        Raises ValueError for a randomizer without a joint form, as a counterpart that does not override this does.
        """
        raise ValueError(f"no joint sampler for {self.randomizer.kind!r}")

    def estimates(self, tallies: Sequence[NodeTally]) -> DecodedNodes:
        """What `estimate` says of each tally, and how many entries changed, as far as the tallies tell.

        tallies: at least one.
        """
        decoded = [self.estimate(tally) for tally in tallies]
        return DecodedNodes(
            values=np.array([estimate.values for estimate in decoded]),
            covariances=np.array([estimate.covariance for estimate in decoded]),
            upper_bound=any(estimate.upper_bound for estimate in decoded),
            products=None,
            changed=self.changed(tallies),
        )

    def changed(self, tallies: Sequence[NodeTally]) -> Floats:
        """Unbiased for how many of the reporting entries changed on each node, shape (nodes,); nan if tallies do not
        tell, which is what a counterpart that does not override this says."""
        return np.full(len(tallies), np.nan)

    def squares(self, tally: NodeTally) -> Floats | None:  # noqa: ARG002
        """A diag(O) A' = Σ a a' over the reports, a what each decodes to; shape (z, z), in entries squared.

        None if the tally does not count symbols but keeps sums, from which it is not known.
        """
        return None

    def likelihoods(self, u: int, v: int) -> Likelihoods:
        """The exact probabilities of symbols under the inputs u and v; symbols of one likelihood ratio are added up.

        Raises ValueError if the alphabet is too large to list, and there is no closed form.
        """
        return listed_likelihoods(self.randomizer, u, v)

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:
        """Pairs of inputs of a kind. At every epsilon, one of them is told apart as well as any pair of that kind."""
        return all_pairs(self.randomizer.space, kind)

    @property
    def blanket(self) -> Blanket | None:
        """The randomizer as a mixture of the truth and a uniform symbol; None if it is no such mixture."""
        return None
