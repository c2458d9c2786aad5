"""Tallies: what the server keeps of a node, how many reports there were and their sum per slot, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NodeTally:
    """O: the sums per slot, shape (slots,), of `reports` reports. What a slot is, the randomizer's counterpart says."""

    reports: int
    slots: Counts

    def __add__(self, other: "NodeTally") -> "NodeTally":
        return NodeTally(self.reports + other.reports, self.slots + other.slots)


Tallies: TypeAlias = Mapping[tuple[int, int], NodeTally]
"""By (number of the track in the plan, number of the node in the track)."""
