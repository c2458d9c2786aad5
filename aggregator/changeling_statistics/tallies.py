"""Tallies: what the server keeps of a node, how many reports there were and their sum per slot, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from changeling_protocol.quantities import NodeNumber, TrackNumber
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NodeTally:
    """O: the sums per slot, shape (slots,), of `reports` reports. What a slot is, the randomizer's counterpart says."""

    reports: int
    slots: Counts

    def __add__(self, other: "NodeTally") -> "NodeTally":
        return NodeTally(self.reports + other.reports, self.slots + other.slots)


PlanNode: TypeAlias = tuple[TrackNumber, NodeNumber]
"""A node of a survey's plan: the number of its track in the plan, and its own number in the track."""

Tallies: TypeAlias = Mapping[PlanNode, NodeTally]
