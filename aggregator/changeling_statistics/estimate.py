"""The values that everything here is about: tallies, which is all that a server keeps, and estimates, never clipped."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from changeling_protocol import NodeNumber, TrackNumber
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A histogram, or the change of one, as it is estimated.

    values: unbiased, shape (z,), in entries. They may be below zero.
    covariance: shape (z, z), in entries squared. It is itself estimated, without bias unless `upper_bound` is set.
    upper_bound: whether the covariance is on average too large, because the tallies do not tell all of it
    (docs/mathematics.md, "Decoding a node").
    """

    values: Floats
    covariance: Floats
    upper_bound: bool = False

    @property
    def standard_errors(self) -> Floats:
        """The root of each variance, shape (z,), in entries.

        As the covariance is estimated too, a variance can come out below zero if there are few reports; its standard
        error is then nan.
        """
        variances = np.diag(self.covariance)
        return np.sqrt(np.where(variances >= 0, variances, np.nan))

    def __add__(self, other: "Estimate") -> "Estimate":
        """The sum of two independent estimates; its covariance is an upper bound if one of theirs is."""
        upper_bound = self.upper_bound or other.upper_bound
        return Estimate(self.values + other.values, self.covariance + other.covariance, upper_bound)


Counts: TypeAlias = NDArray[np.int64]
K = TypeVar("K")
V = TypeVar("V", "NodeTally", "Attendance")


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


@dataclass(frozen=True, slots=True)
class Attendance:
    """How many entries of a group were heard at one closing, whether they had to report on a node there or not.

    heard: all of them.
    new: of these, how many had enrolled since the closing before: it is the first they could answer.
    missed: how many had enrolled earlier, but were never heard before.
    """

    heard: int = 0
    new: int = 0
    missed: int = 0

    def __add__(self, other: "Attendance") -> "Attendance":
        """The attendance of the entries of both."""
        return Attendance(self.heard + other.heard, self.new + other.new, self.missed + other.missed)


PlanNode: TypeAlias = tuple[TrackNumber, NodeNumber]
"""A node of a survey's plan: the number of its track in the plan, and its own number in the track."""

GroupClosing: TypeAlias = tuple[int, int]
"""The number of a group in a survey's plan, and a period at which a node of any track of the plan ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Tallies(Mapping[PlanNode, NodeTally]):
    """All tallies of a survey, or of the entries of some of its strata: by node, and by closing.

    nodes: the tally of each node that somebody reported on.
    attendance: of each group at each closing at which somebody was heard.
    """

    nodes: Mapping[PlanNode, NodeTally]
    attendance: Mapping[GroupClosing, Attendance]

    def __getitem__(self, node: PlanNode) -> NodeTally:
        """The tally of a node. Raises KeyError where there is none."""
        return self.nodes[node]

    def __iter__(self) -> Iterator[PlanNode]:
        """The nodes that have a tally."""
        return iter(self.nodes)

    def __len__(self) -> int:
        """How many nodes have one."""
        return len(self.nodes)

    def __add__(self, other: "Tallies") -> "Tallies":
        """The tallies of the entries of both: nobody may be in both."""
        return Tallies(_added(self.nodes, other.nodes), _added(self.attendance, other.attendance))


def _added(first: Mapping[K, V], second: Mapping[K, V]) -> dict[K, V]:
    added = dict(first)
    for key, more in second.items():
        added[key] = added[key] + more if key in added else more
    return added


def conserves(closed: bool, reports_changes: bool, start: int) -> bool:
    """True if the change over a node adds up to zero over the answers.

    closed: whether the cohort is closed.
    reports_changes: whether changes are reported on the node, and not states.
    start: the period after which the node starts.
    """
    return closed and reports_changes and start > 0


def without_sum(values: Floats, covariances: Floats) -> tuple[Floats, Floats]:
    """Estimates with the mean over the answers taken off, and their covariances: Pv and PCP, P = I - 11'/z.

    values: v, shape (..., z). covariances: C, shape (..., z, z).
    """
    centred = covariances - covariances.mean(-1, keepdims=True)
    return values - values.mean(-1, keepdims=True), centred - centred.mean(-2, keepdims=True)
