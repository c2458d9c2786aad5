"""Tallies: how many reports a node has, and their sum per slot. The server keeps nothing else of a node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from changeling_protocol.quantities import NodeNumber, TrackNumber
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NodeTally:
    """The tally of one node.

    reports: how many entries reported.
    slots: O, the sum of their reports in each slot, shape (slots,). What a slot is depends on the randomizer.
    """

    reports: int
    slots: Counts

    def __add__(self, other: "NodeTally") -> "NodeTally":
        """The tally of the reports of both."""
        return NodeTally(self.reports + other.reports, self.slots + other.slots)


PlanNode: TypeAlias = tuple[TrackNumber, NodeNumber]
"""A node of a survey's plan: the number of its track in the plan, and its own number in the track."""

Tallies: TypeAlias = Mapping[PlanNode, NodeTally]
