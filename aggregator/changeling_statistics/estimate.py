"""Tallies, which are all that a server keeps; estimates, which are never clipped; and their intervals.

An estimate is a sum of very many small reports, so its errors are taken to be normal, with the variance that they have
if a hypothesised histogram is true (`Estimate.curve`). An interval holds what is not rejected.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TypeAlias, TypeVar

import numpy as np
from changeling_protocol import NodeNumber, ReleasePlan, TrackNumber
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


SETTLED = 6
"""So many steps of a fixed point, or of Newton's method, are enough for four digits."""


def _bennett(y: Floats) -> Floats:
    """The u at which (1 + u) ln(1 + u) - u is y, by Newton's method from above."""
    u = y / 3 + np.sqrt(y * y / 9 + 2 * y)
    for _ in range(SETTLED):
        u -= ((1 + u) * np.log1p(u) - u - y) / np.maximum(np.log1p(u), 1e-12)
    return u


@dataclass(frozen=True, slots=True, eq=False)
class VarianceCurve:
    """The variance that an estimate has if θ is true: max{floor, level + linear θ + bent θ (1 - θ/entries)}.

    level, linear, bent, floor: shape (..., z), for θ in entries.
    entries: how many entries there are, shape (..., z).
    up, down: by how much a single report of an entry without the answer moves the estimate up or down, mean over what
    its variance is made of, shape (..., z), in entries; of an entry with it, the other way round. Few large steps have
    longer tails than a normal error.
    spare: how much more the variance is at most, shape (..., z), where tallies tell it of all answers together alone:
    one that changes far more often than the others has more. Intervals that all have to hold take it.
    """

    level: Floats
    linear: Floats
    bent: Floats
    floor: Floats
    entries: Floats
    up: Floats
    down: Floats
    spare: Floats

    @classmethod
    def constant(cls, variances: Floats) -> "VarianceCurve":
        """The same variance whatever is true; one below zero counts as none."""
        none = np.zeros_like(variances)
        return cls(none, none, none, np.maximum(variances, 0.0), none + 1.0, none, none, none)

    @property
    def parts(self) -> tuple[Floats, ...]:
        """All figures that make it up, in the order of their names above."""
        return self.level, self.linear, self.bent, self.floor, self.entries, self.up, self.down, self.spare

    def plus(self, variances: Floats) -> "VarianceCurve":
        """These variances and others, shape (..., z), that are there whatever is true."""
        level, linear, bent, floor, *rest = self.parts
        return VarianceCurve(level + variances, linear, bent, floor + variances, *rest)

    def times(self, factor: Floats) -> "VarianceCurve":
        """The variances of the estimate times a factor, shape (..., 1)."""
        level, linear, bent, floor, entries, up, down, spare = self.parts
        square = factor**2
        by = (level * square, linear * factor, bent * factor, floor * square)
        return VarianceCurve(*by, entries * factor, up * factor, down * factor, spare * square)

    def at(self, values: Floats) -> Floats:
        """The variance if these values are true, shape (..., z)."""
        above = self.level + self.linear * values + self.bent * values * (1 - values / self.entries)
        return np.maximum(self.floor, above)

    def ends(self, values: Floats, critical: float) -> Floats:
        """The least and the largest θ that is so near the estimate as its own variance allows, shape (..., z, 2).

        values: the estimates, shape (..., z).
        critical: how many standard errors away it may be: (values - θ)² <= critical² V(θ). An end may be farther, as
        few large steps make errors skew: by critical² - 1 sixths of the skewness (Cornish and Fisher 1938), the lower
        end where that is upward, the upper one where it is downward.
        """
        ends = self._normal_ends(values, critical)
        for side, sign in ((0, 1), (1, -1)):
            for _ in range(SETTLED):
                skew = np.maximum(sign * self.skewness(self._possible(ends[..., side])), 0.0)
                farther = critical + max(critical**2 - 1, 0.0) / 6 * skew
                ends[..., side] = self._normal_ends(values, farther)[..., side]
        return ends

    def skewness(self, values: Floats) -> Floats:
        """How skew the errors are if these values are true; above 0 where those upward are the larger ones.

        Of those that tell of an answer, each entry is heard with one chance in 1 + bent, and else missing.
        """
        V, share = self.at(values), self._shares(values)
        of_entries = self.bent * self.entries * share * (1 - share)
        thirds = (self.up - self.down) * np.maximum(V - of_entries, 0.0) * (1 - 2 * self._of_holders(values))
        thirds += np.maximum(self.bent - 1, 0.0) * of_entries * (1 - 2 * share)
        skewness: Floats = np.divide(thirds, V**1.5, out=np.zeros_like(V), where=V > 0)
        return skewness

    def _possible(self, values: Floats) -> Floats:
        return np.clip(values, 0.0, np.maximum(self.entries, 0.0))

    def _shares(self, values: Floats) -> Floats:
        shares: Floats = np.clip(values / np.where(self.entries > 0, self.entries, 1.0), 0.0, 1.0)
        return shares

    def _of_holders(self, values: Floats) -> Floats:
        """Which part of what the coins add is of those that hold an answer, if these values are true; from 0 to 1."""
        share = self._shares(values)
        more = np.maximum(self.linear, 0.0) * self.entries * share
        all_ = self.floor + more
        part: Floats = np.divide(self.floor * share + more, all_, out=share.copy(), where=all_ > 0)
        return part

    def _normal_ends(self, values: Floats, critical: float | Floats) -> Floats:
        """`ends` for errors that are not skew. critical: one, or of shape (..., z)."""
        square, entries = critical**2, np.where(self.entries > 0, self.entries, 1.0)
        # of the parabola a θ² - 2 b θ + c <= 0
        a = np.maximum(1 + square * self.bent / entries, 1e-9)
        b = values + square * (self.linear + self.bent) / 2
        c = values**2 - square * self.level
        inside = b * b - a * c
        reach, half = np.sqrt(np.maximum(inside, 0.0)), critical * np.sqrt(self.floor)
        low, high = (np.where(inside >= 0, (b + side * reach) / a, values) for side in (-1, 1))
        return np.stack([np.minimum(low, values - half), np.maximum(high, values + half)], axis=-1)

    def far_ends(self, values: Floats, critical: float) -> Floats:
        """`ends` that are right far out in the tails, where the errors of a few large steps are not normal.

        Of steps s in one direction, of variance V together, more than t has at most the chance exp(-V/s² h(ts/V)),
        h(u) = (1 + u) ln(1 + u) - u (Bennett 1962), which stands in for that of a normal error, exp(-critical²/2).
        """
        most = replace(self, level=self.level + self.spare)
        ends = most.ends(values, critical)
        for side, (usual, of_holders) in enumerate(((self.up, self.down), (self.down, self.up))):
            for _ in range(SETTLED):
                end = self._possible(ends[..., side])
                part = self._of_holders(end)
                steps = usual * (1 - part) + of_holders * part
                V = np.maximum(most.at(end), 1e-9 * steps**2)
                relative = np.sqrt(np.divide(steps**2, V, out=np.zeros_like(V), where=V > 0))
                excess = _bennett(critical**2 * relative**2 / 2)
                farther = np.where(relative > 1e-6, excess / np.maximum(relative, 1e-6), critical)
                ends[..., side] = most._normal_ends(values, np.maximum(farther, critical))[..., side]
        return ends


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A histogram, or the change of one, as it is estimated.

    values: unbiased, shape (z,), in entries. They may be below zero.
    covariance: shape (z, z), in entries squared. It is itself estimated, without bias unless `upper_bound` is set.
    upper_bound: whether the covariance is on average too large, because the tallies do not tell all of it
    (docs/mathematics.md, "Decoding a node").
    law: works out the variances at every value that may be true, for intervals; None if only the covariance is known.
    """

    values: Floats
    covariance: Floats
    upper_bound: bool = False
    law: Callable[[], VarianceCurve] | None = None

    def curve(self) -> VarianceCurve:
        """The variances at every value that may be true."""
        return self.law() if self.law is not None else VarianceCurve.constant(np.diag(self.covariance))

    @property
    def standard_errors(self) -> Floats:
        """The root of each variance, shape (z,), in entries.

        As the covariance is estimated too, a variance can come out below zero if there are few reports; its standard
        error is then nan.
        """
        variances = np.diag(self.covariance)
        return np.sqrt(np.where(variances >= 0, variances, np.nan))

    def times(self, factor: float) -> "Estimate":
        """This estimate in another unit."""

        def law() -> VarianceCurve:
            return self.curve().times(np.full(1, factor))

        return Estimate(self.values * factor, self.covariance * factor**2, self.upper_bound, law)


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

    def about(self, plan: ReleasePlan, question: int) -> "Tallies":
        """The tallies that estimates of one question of a plan are made of, as `Survey.about` numbers its tracks."""
        places = {number: TrackNumber(at) for at, number in enumerate(plan.numbers_about(question))}
        nodes = {(places[track], at): tally for (track, at), tally in self.nodes.items() if track in places}
        return Tallies(nodes, self.attendance)

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


NORMAL = NormalDist()


def intervals(estimate: Estimate, level: float = 0.95) -> Floats:
    """Confidence intervals, one for each answer by itself: lower and upper ends, shape (z, 2), in entries.

    level: the probability with which each of them covers, between 0 and 1.
    """
    return estimate.curve().ends(estimate.values, half_width(level))


def half_width(level: float, together: int = 1) -> float:
    """The half-width, in standard errors, of each of some intervals for normal errors that cover together.

    level: the probability with which they do, between 0 and 1. Raises ValueError outside.
    """
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}")
    return NORMAL.inv_cdf(0.5 + level ** (1 / together) / 2)
