"""All nodes of a plan in the order in which estimates take them: by their ends, and there by their starts and tracks.

A plan never changes, and what is read of a survey hangs on its nodes each time; so they are listed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from changeling_protocol import Node, ReleasePlan

from ..tallies import PlanNode
from .network import Indices


@dataclass(frozen=True, slots=True, eq=False)
class PlanNodes:
    """The N nodes of a plan, each with the edge of the release graph that it is.

    keys, spans: each node's track and number, and its span of periods.
    track, group: the numbers of its track and group in the plan, shape (N,).
    start, end: the two times of the edge, shape (N,); a report of a state is about all since time 0.
    """

    keys: Sequence[PlanNode]
    spans: Sequence[Node]
    track: Indices
    group: Indices
    start: Indices
    end: Indices


@lru_cache(maxsize=16)
def plan_nodes(plan: ReleasePlan) -> PlanNodes:
    """The nodes of all tracks of a plan."""
    nodes = [
        (node.end, node.start, number, at)
        for group in range(len(plan.groups))
        for number, track in plan.numbered(group)
        for at, node in zip(track.node_numbers(), track.nodes(), strict=True)
    ]
    nodes.sort()
    track = np.array([number for _, _, number, _ in nodes], np.intp)
    changes = np.array([each.reports_changes for each in plan.tracks], np.bool_)
    return PlanNodes(
        keys=tuple((number, at) for _, _, number, at in nodes),
        spans=tuple(Node(start, end) for end, start, _, _ in nodes),
        track=track,
        group=np.array([plan.group_of(number) for _, _, number, _ in nodes], np.intp),
        start=np.where(changes[track], np.array([start for _, start, _, _ in nodes], np.intp), 0),
        end=np.array([end for end, _, _, _ in nodes], np.intp),
    )
