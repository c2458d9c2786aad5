"""The covariance if entries were themselves draws from one distribution: the paper's model, by name.

The default is conditional: given everybody's answers, only responses are random. Here the next population of the
same kind is meant, so who changed is random too. Not independent from node to node, so it does not add up.
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

    Shapes and units as `histogram_change`, whose covariance it exceeds by M_δv {diag(ŝ) - ŝŝ'/n} M_δv'. Raises
    EmptyNode if nothing was reported, and ValueError where the tally keeps sums of symbols. Pan 2023, appendix C,
    which has proportions where counts belong: docs/mathematics.md, "Decoding a node".
    """
    values = histogram_change(tally, randomizer).values
    squares = counterpart_of(randomizer).squares(tally)
    if squares is None:
        raise ValueError(f"a tally of {randomizer.symbols} symbols keeps sums, from which O O' is not known")
    return Estimate(values, squares - np.outer(values, values) / tally.reports)
