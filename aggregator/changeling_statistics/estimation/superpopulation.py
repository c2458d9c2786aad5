"""The covariance of a change if entries themselves were drawn from a distribution: the paper's model.

Elsewhere everybody's answers are taken as given, and only the randomizers' coins are random. Here who changed is
random too. Then nodes are not independent, so these covariances do not add up from node to node.
"""

import numpy as np
from changeling_protocol import Randomizer

from ..estimate import Estimate
from ..randomizers import counterpart_of
from ..tallies import NodeTally
from .decoding import histogram_change


def superpopulation_change(tally: NodeTally, randomizer: Randomizer) -> Estimate:
    """The change of the histogram over one node, with the covariance of multinomial reports.

        Δv̂ = A O        Ĉ = A {diag(O) - OO'/n} A'

    tally, randomizer: as for `histogram_change`, whose covariance is exceeded by M_δv {diag(ŝ) - ŝŝ'/n} M_δv'.
    Returns values of shape (z,), in entries, and a covariance of shape (z, z), in entries squared.
    Raises EmptyNode if nothing was reported; ValueError if the tally keeps sums of symbols.
    Pan 2023, appendix C, which has proportions where counts belong: docs/mathematics.md, "Decoding a node".
    """
    values = histogram_change(tally, randomizer).values
    squares = counterpart_of(randomizer).squares(tally)
    if squares is None:
        raise ValueError(f"a tally of {randomizer.symbols} symbols keeps sums, from which O O' is not known")
    return Estimate(values, squares - np.outer(values, values) / tally.reports)
