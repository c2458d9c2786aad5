"""A calendar cut into blocks of blocks of periods, and how exactly its levels are known once every block is measured.

Each block's change is measured by itself, with a variance of its own. The best estimate of a block weighs its own
measurement against the sum of its children's; what the parent then knows better is shared out among the children by
their variances. So all that a level needs is two passes over the layers. Reads no data.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_statistics import Floats, Indices

Layers = tuple[Floats, ...]
"""A number for every block of every layer, the layer of single periods first."""


@dataclass(frozen=True)
class Blocks:
    """widths: of the layers' blocks in periods, 1 first, each dividing the next. The last block of a layer may be less.

    ValueError for other widths.
    """

    periods: int
    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        pairs = zip(self.widths, self.widths[1:], strict=False)
        if self.periods < 1 or self.widths[:1] != (1,) or any(b <= a or b % a for a, b in pairs):
            raise ValueError(
                f"blocks of {self.periods} periods have widths 1, …, each dividing the next: {self.widths}"
            )
        if len(self.widths) > 1 and self.widths[-2] >= self.periods:
            raise ValueError(f"two layers of {self.widths} hold all {self.periods} periods as one block: fewer layers")

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many blocks each layer has."""
        return tuple(-(-self.periods // width) for width in self.widths)

    def first_children(self, layer: int) -> Indices:
        """Of each block of a layer but the lowest, the number of its first child."""
        step = self.widths[layer] // self.widths[layer - 1]
        return np.arange(0, self.counts[layer - 1], step)

    def parents(self, layer: int) -> Indices:
        """Of each block of a layer but the highest, the number of its parent."""
        return np.arange(self.counts[layer]) // (self.widths[layer + 1] // self.widths[layer])

    def places(self, layer: int) -> Floats:
        """Where each block lies among its siblings, from -1 for the first to 1 for the last; an only one at 0."""
        count = self.counts[layer]
        step = self.widths[layer + 1] // self.widths[layer] if layer + 1 < len(self.widths) else count
        at = np.arange(count)
        siblings = np.minimum(step, count - at // step * step)
        places: Floats = (2 * (at % step) + 1 - siblings) / np.maximum(siblings - 1, 1)
        return places


@dataclass(frozen=True)
class Weights:
    """How the measurements are weighed.

    own: per layer, the weight of each block's own measurement against its children's sum; of single periods 1.
    until: per layer but the highest, the share of what the parent knows better that falls on a block and its elder
    siblings; 1 for the last. variances: of the level at the end of each period, shape (periods,).
    """

    own: Layers
    until: Layers
    variances: Floats


def weights(blocks: Blocks, variances: Layers) -> Weights:
    """The best weights. variances: of each block's measurement, inf for one that is not measured."""
    known = [variances[0]]
    own = [np.ones(blocks.periods)]
    before: list[Floats] = []
    for layer in range(1, len(blocks.widths)):
        together = np.add.reduceat(known[-1], blocks.first_children(layer))
        weight = 1 / (1 + variances[layer] / together)
        own.append(weight)
        before.append(together)
        known.append(together * (1 - weight))
    at_end = np.cumsum(known[-1])
    at_start = at_end - known[-1]
    between, until = at_start, []
    for layer in reversed(range(len(blocks.widths) - 1)):
        parent, v = blocks.parents(layer), known[layer]
        first = blocks.first_children(layer + 1)
        together = before[layer][parent]
        ends = np.cumsum(v)
        ends = ends - (ends[first] - v[first])[parent]  # of the variances of a block and its elder siblings
        q = np.minimum(ends / together, 1.0)
        p = np.maximum((ends - v) / together, 0.0)
        a, b, c = at_start[parent], at_end[parent], between[parent]
        at_start, at_end, between = (
            a * (1 - p) ** 2 + b * p**2 + 2 * c * p * (1 - p) + together * p * (1 - p),
            a * (1 - q) ** 2 + b * q**2 + 2 * c * q * (1 - q) + together * q * (1 - q),
            a * (1 - p) * (1 - q) + b * p * q + c * ((1 - p) * q + p * (1 - q)) + together * p * (1 - q),
        )
        until.append(q)
    return Weights(tuple(own), tuple(reversed(until)), at_end)
