"""All nodes of a track decoded at once: what `histogram_change` gives, a column of tallies at a time.

For k-RR in closed form over the columns; any other randomizer is decoded node by node. Beside each change stands
what its tally says of who changed: the products Σ_i δ_i δ_i' that sampling errors are made of.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, singledispatch

import numpy as np
from changeling_protocol import KaryResponse, Randomizer, SignedSubset

from ..tallies import NodeTally, counts_symbols, slot_count
from .change_map import change_map
from .decoding import histogram_change
from .estimate import Floats

BLOCK = 2**22
"""The most slots unpacked to floats at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """values of shape (nodes, z), covariances (nodes, z, z); upper_bound: whether one of them is a bound.

    products: Q̂ = M_δv diag(ŝ) M_δv', unbiased for Σ_i δ_i δ_i' over those who reported, (nodes, z, z); None where
    the tallies do not identify it. changed: unbiased for how many of those changed, (nodes,), nan where unknown.
    """

    values: Floats
    covariances: Floats
    upper_bound: bool
    products: Floats | None
    changed: Floats


@singledispatch
def decode_many(randomizer: Randomizer, tallies: Sequence[NodeTally]) -> Batch:
    """The changes of the histogram over several nodes of one track, as `histogram_change` decodes each.

    Where symbols are counted, values and covariances are sums over symbols of what a single report says; and an
    unbiased Ĉ being A diag(O) A' - Q̂, it tells Q̂ as well.
    """
    z = randomizer.space.answers
    if not counts_symbols(randomizer) or randomizer.symbols * z * z > BLOCK:
        decoded = [histogram_change(tally, randomizer) for tally in tallies]
        values = np.array([estimate.values for estimate in decoded])
        covariances = np.array([estimate.covariance for estimate in decoded])
        changed = np.array([_changed(randomizer, tally) for tally in tallies])
        return Batch(values, covariances, any(estimate.upper_bound for estimate in decoded), None, changed)
    says, spread, squares, upper_bound = _symbols(randomizer)
    O = np.array([tally.slots for tally in tallies], dtype=np.float64)
    covariances = (O @ spread).reshape(-1, z, z)
    products: Floats | None = None
    if randomizer.space.reports_changes and not upper_bound:
        products = (O @ squares).reshape(-1, z, z) - covariances
    changed = np.array([_changed(randomizer, tally) for tally in tallies])
    return Batch(O @ says, covariances, upper_bound, products, changed)


def symbol_squares(randomizer: Randomizer) -> Floats:
    """a_o a_o' of every symbol's decoded report a_o, flattened: shape (symbols, z²)."""
    return _symbols(randomizer)[2]


@lru_cache(maxsize=64)
def _symbols(randomizer: Randomizer) -> tuple[Floats, Floats, Floats, bool]:
    """Of a single report of each symbol: a_o, shape (symbols, z); Ĉ and a_o a_o', (symbols, z²); whether Ĉ bounds."""
    units = np.eye(slot_count(randomizer), dtype=np.int64)
    decoded = [histogram_change(NodeTally(1, unit), randomizer) for unit in units]
    a = np.array([estimate.values for estimate in decoded])
    spread = np.array([estimate.covariance.ravel() for estimate in decoded])
    squares = (a[:, :, None] * a[:, None, :]).reshape(len(a), -1)
    return a, spread, squares, any(estimate.upper_bound for estimate in decoded)


def _changed(randomizer: Randomizer, tally: NodeTally) -> float:
    """n_c of a signed subset: "nothing" is sent with probability 1 - u without a change, (1 - u)/Z with one."""
    if not isinstance(randomizer, SignedSubset) or not randomizer.quiet:
        return float("nan")
    odds, u = randomizer.odds, float(randomizer.spoken)
    gain = u * (randomizer.favoured / randomizer.vectors.count) * ((odds.favoured - odds.other) / odds.other)
    return float((tally.reports - tally.slots[0] / (1 - u)) * (1 + gain) / gain)


@decode_many.register
def _(randomizer: KaryResponse, tallies: Sequence[NodeTally]) -> Batch:
    rows = max(1, BLOCK // randomizer.symbols)
    parts = [_kary(randomizer, tallies[at : at + rows]) for at in range(0, len(tallies), rows)]
    values, covariances, products = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Batch(values, covariances, False, products, np.full(len(tallies), np.nan))


def _kary(randomizer: KaryResponse, tallies: Sequence[NodeTally]) -> tuple[Floats, Floats, Floats]:
    # As in decoding.py, (nodes, m) at a time. M diag(w) M' is linear in w, and w = (O - nq)/(p - q).
    M = change_map(randomizer.space)
    d, total = M.answers + 1, randomizer.total()
    p, q = randomizer.odds.favoured / total, randomizer.odds.other / total
    O = np.array([tally.slots for tally in tallies], dtype=np.float64)
    n = np.array([tally.reports for tally in tallies], dtype=np.float64)
    W = np.zeros((len(O), d, d))
    W[:, M.old, M.new] = O  # no two inputs are the same pair
    by_new, by_old = W.sum(1), W.sum(2)
    MO = (by_new - by_old)[:, 1:]
    ones = np.ones(randomizer.symbols)
    u = M.apply(ones)
    MOM = -(W + W.transpose(0, 2, 1))
    diagonal = np.arange(d)
    MOM[:, diagonal, diagonal] += by_new + by_old
    MOM = MOM[:, 1:, 1:]
    cross = q * MO[:, :, None] * u
    ADA = MOM - cross - cross.transpose(0, 2, 1) + (q * q * n)[:, None, None] * np.outer(u, u)
    MsM = (MOM - (n * q)[:, None, None] * M.sandwich(ones)) / (p - q)
    return (MO - (n * q)[:, None] * u) / (p - q), ADA / (p - q) ** 2 - MsM, MsM
