"""From a node's tally to the change of the histogram over it: unbiased, with its exact covariance.

Knows tallies and randomizers; nothing of surveys, time or HTTP.
"""

from functools import singledispatch

import numpy as np
from changeling_protocol import KaryResponse, Randomizer

from ..tallies import NodeTally
from .change_map import change_map
from .estimate import Estimate, Floats


class EmptyNode(ValueError):
    """Nothing was reported on a node, so it says nothing."""


def histogram_change(tally: NodeTally, randomizer: Randomizer) -> Estimate:
    """Unbiased change of the histogram over one node; for state reports, the histogram at its end.

        Δv̂ = M_δv P⁻¹ O        Ĉ = A diag(O) A' - M_δv diag(P⁻¹ O) M_δv',  A = M_δv P⁻¹

    tally: O, shape (slots,), reports per slot, and how many reports. Given the true answers the reports are
    independent, and Ĉ is unbiased for the covariance of that randomness alone, so it adds up over nodes.
    Returns values of shape (z,) in entries, covariance (z, z) in entries squared.
    Raises EmptyNode if nothing was reported. Pan 2023, eq. 46; covariance: design.md 4.3.
    """
    if tally.reports == 0:
        raise EmptyNode("nothing was reported on this node")
    return _decode(randomizer, tally)


def input_counts(tally: NodeTally, randomizer: KaryResponse) -> Floats:
    """ŝ = P⁻¹O = (O - n·q) / (p - q): how many reports came from each input; shape (m,), O(m)."""
    p, q = _truth_and_other(randomizer)
    return (tally.slots.astype(np.float64) - tally.reports * q) / (p - q)


@singledispatch
def _decode(randomizer: Randomizer, tally: NodeTally) -> Estimate:  # noqa: ARG001
    raise TypeError(f"no decoder for a {type(randomizer).__name__}")


@_decode.register
def _(randomizer: KaryResponse, tally: NodeTally) -> Estimate:
    # A's column of symbol o is (M_o - q·u) / (p - q) with u = M_δv 1, which spares the matrix P⁻¹.
    p, q = _truth_and_other(randomizer)
    M = change_map(randomizer.space)
    O = tally.slots.astype(np.float64)
    s = input_counts(tally, randomizer)
    u, MO = M.apply(np.ones_like(O)), M.apply(O)
    cross = q * np.outer(MO, u)
    ADA = (M.sandwich(O) - cross - cross.T + q * q * tally.reports * np.outer(u, u)) / (p - q) ** 2
    return Estimate(M.apply(s), ADA - M.sandwich(s))


def _truth_and_other(randomizer: KaryResponse) -> tuple[float, float]:
    total = randomizer.total()
    return randomizer.odds.favoured / total, randomizer.odds.other / total
