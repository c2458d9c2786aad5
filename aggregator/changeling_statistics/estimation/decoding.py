"""From a node's tally to the change of the histogram over it: unbiased, with its exact covariance.

Knows tallies and randomizers; nothing of surveys, time or HTTP.
"""

from changeling_protocol import KaryResponse, Randomizer

from ..errors import EmptyNode
from ..estimate import Estimate, Floats
from ..randomizers import counterpart_of
from ..randomizers.kary import KaryCounterpart
from ..tallies import NodeTally


def histogram_change(tally: NodeTally, randomizer: Randomizer) -> Estimate:
    """Unbiased change of the histogram over one node; for state reports, the histogram at its end.

        Δv̂ = M_δv P⁻¹ O        Ĉ = A diag(O) A' - M_δv diag(P⁻¹ O) M_δv',  A = M_δv P⁻¹

    tally: O, shape (slots,), reports per slot, and how many reports. Given the true answers the reports are
    independent, and Ĉ is unbiased for the covariance of that randomness alone, so it adds up over nodes. Where
    the slots do not identify its last term Ĉ is too large on average, and the estimate is an `upper_bound`.
    Returns values of shape (z,) in entries, covariance (z, z) in entries squared.
    Raises EmptyNode if nothing was reported, TypeError for an unknown kind of randomizer, and ValueError for
    one that says nothing or that has no unbiased decoder.
    Pan 2023, eq. 46; covariance: docs/mathematics.md, "Decoding a node".
    """
    if tally.reports == 0:
        raise EmptyNode("nothing was reported on this node")
    return counterpart_of(randomizer).estimate(tally)


def input_counts(tally: NodeTally, randomizer: KaryResponse) -> Floats:
    """How many reports came from each input, unbiased: ŝ = P⁻¹O = (O - n·q) / (p - q), shape (m,), in O(m).

    Raises ValueError where the randomizer says nothing.
    """
    return KaryCounterpart(randomizer).input_counts(tally)
