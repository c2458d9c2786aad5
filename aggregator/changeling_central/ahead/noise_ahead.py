"""The noise of a tree's best estimates, from noise on its blocks: exactly what whole changes would go through.

All is whole parts of 2^-bits units. A block's estimate is its children's sum, plus a rounded share of what its own
measurement says more; a child's is its own, plus a rounded share of what its parent knows more. Both differences stay
as they are when true changes are added to every block's measurement, so these go through unchanged.
"""

import numpy as np
from changeling_statistics import Counts, Floats

from ..noise import Noise
from .blocks import Blocks, Layers, Weights

MOST_WEIGHED, UNIT = 2**12, 40


def drawn_changes(
    blocks: Blocks, weights: Weights, scales: Layers, top: int, bits: int, width: int, noise: Noise
) -> Counts:
    """The noise of the changes of the periods in one block of the highest layer, shape (periods, w), on the lattice.

    scales: of each block's Laplace noise, inf for one that is not measured. top: the block's number. width: w.
    """
    layers = [_within(blocks, layer, top) for layer in range(len(blocks.widths))]
    return estimated_changes(
        blocks,
        weights,
        top,
        [_drawn(scales[layer][first:end], width, noise) << bits for layer, (first, end) in enumerate(layers)],
    )


def estimated_changes(blocks: Blocks, weights: Weights, top: int, measured: list[Counts]) -> Counts:
    """The best estimate of each period's change within a block of the highest layer, from its blocks' measurements.

    measured: of each layer, the measurements of its blocks within the block, shape (blocks, w), on the lattice.
    """
    known, sums = [measured[0]], []
    for layer in range(1, len(blocks.widths)):
        first, end = _within(blocks, layer, top)
        children = _within(blocks, layer - 1, top)[0]
        together = np.add.reduceat(known[-1], blocks.first_children(layer)[first:end] - children)
        own = weights.own[layer][first:end, None]
        known.append(together + np.rint(own * (measured[layer] - together)).astype(np.int64))
        sums.append(together)
    best = known[-1]
    for layer in reversed(range(len(blocks.widths) - 1)):
        first, end = _within(blocks, layer, top)
        parent = blocks.parents(layer)[first:end]
        more = (best - sums[layer])[parent - parent[0]]
        until = weights.until[layer][first:end, None]
        shares = np.where(until == 1.0, more, np.rint(until * more).astype(np.int64))
        last = np.append(parent[1:] != parent[:-1], True)
        shares[last] = more[last]
        eldest = np.append(True, last[:-1])
        earlier = np.concatenate([np.zeros_like(shares[:1]), shares[:-1]])
        earlier[eldest] = 0
        best = known[layer] + shares - earlier
    return best


def level_weights(blocks: Blocks, weights: Weights, period: int) -> Layers:
    """With which weight each block's measurement is in the level at the end of this period, a number for each block.

    ValueError for a highest layer whose blocks have more than 2^12 periods.
    """
    if blocks.widths[-1] > MOST_WEIGHED and blocks.periods > MOST_WEIGHED:
        raise ValueError(f"weights are told of blocks of at most {MOST_WEIGHED} periods, got {blocks.widths[-1]}")
    found = tuple(np.zeros(count) for count in blocks.counts)
    for top in range(-(-period // blocks.widths[-1])):
        parts = [_within(blocks, layer, top) for layer in range(len(blocks.widths))]
        size = sum(end - first for first, end in parts)
        measured, at = [], 0
        for first, end in parts:
            unit = np.zeros((end - first, size), np.int64)
            unit[:, at : at + end - first] = np.eye(end - first, dtype=np.int64) << UNIT
            measured.append(unit)
            at += end - first
        level = estimated_changes(blocks, weights, top, measured)[: period - parts[0][0]].sum(0)
        at = 0
        for layer, (first, end) in enumerate(parts):
            found[layer][first:end] = np.ldexp(level[at : at + end - first].astype(np.float64), -UNIT)
            at += end - first
    return found


def _within(blocks: Blocks, layer: int, top: int) -> tuple[int, int]:
    """The first block of a layer within a block of the highest, and the one after the last."""
    step = blocks.widths[-1] // blocks.widths[layer]
    return top * step, min((top + 1) * step, blocks.counts[layer])


def _drawn(scales: Floats, width: int, noise: Noise) -> Counts:
    """Independent draws for these blocks, shape (blocks, w); those of one scale are drawn together."""
    found, which = np.unique(scales, return_inverse=True)
    drawn = np.zeros((len(scales), width), np.int64)
    for number, scale in enumerate(found.tolist()):
        if np.isfinite(scale):
            at = np.flatnonzero(which == number)
            drawn[at] = noise.laplace(scale, len(at) * width).reshape(-1, width)
    return drawn
