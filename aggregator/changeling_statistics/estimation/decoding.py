"""From a node's tally to the change of the histogram over the node, unbiased and with its covariance.

Knows tallies and randomizers; nothing of surveys, time or HTTP.
"""

from changeling_protocol import KaryResponse, Randomizer

from ..errors import EmptyNode
from ..estimate import Estimate, Floats
from ..randomizers import counterpart_of
from ..randomizers.kary import KaryCounterpart
from ..tallies import NodeTally


def histogram_change(tally: NodeTally, randomizer: Randomizer) -> Estimate:
    """The unbiased change of the histogram over one node; for reports of states, the histogram at its end.

        Δv̂ = M_δv P⁻¹ O        Ĉ = A diag(O) A' - M_δv diag(P⁻¹ O) M_δv',  A = M_δv P⁻¹

    tally: the sums O, shape (slots,), and the number of reports.
    randomizer: the one that the node was reported through.
    Returns values of shape (z,), in entries, and a covariance of shape (z, z), in entries squared. The covariance is
    that of the randomizer's coins, given the true answers: coins of different nodes are independent, so it adds up.
    If the slots do not tell its last term it is too large on average, and the estimate says `upper_bound`.
    Raises EmptyNode if nothing was reported, TypeError for an unknown kind of randomizer, ValueError for one that says
    nothing or has no unbiased decoder.
    Pan 2023, eq. 46; covariance: docs/mathematics.md, "Decoding a node".
    """
    if tally.reports == 0:
        raise EmptyNode("nothing was reported on this node")
    return counterpart_of(randomizer).estimate(tally)


def input_counts(tally: NodeTally, randomizer: KaryResponse) -> Floats:
    """Unbiased for how many reports of k-RR came from each input: ŝ = P⁻¹O = (O - n·q) / (p - q), shape (m,).

    Takes O(m) steps. Raises ValueError for odds of 1:1, which say nothing.
    """
    return KaryCounterpart(randomizer).input_counts(tally)
