"""The aggregator's half of a randomizer: how its tallies decode, and how noisy one report is."""

from typing import Protocol

from ...tallies import NodeTally
from ..estimate import Estimate, Floats


class Decoder(Protocol):
    """Unbiased inversion of one randomizer over z answers; every covariance is that of the response noise alone."""

    def estimate(self, tally: NodeTally) -> Estimate:
        """The change of the histogram that a tally of at least one report says, or the histogram of states."""
        ...

    def report_covariance(self, true: int) -> Floats:
        """Cov(decoded report | true input), shape (z, z), exactly. Raises ValueError outside the space."""
        ...

    def mean_variances(self) -> tuple[float, float]:
        """The variance of one decoded report, averaged over answers: without a change, and over uniform mutations.

        For state reports both are the average over uniform states.
        """
        ...
