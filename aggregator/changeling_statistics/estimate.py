"""Tallies, which are all that a server keeps, and what may be shown of them; estimates, which are never clipped.

An estimate is a sum of very many small reports, so its errors are taken to be normal, with the variance that they have
if a hypothesised histogram is true (`Estimate.curve`). An interval holds what is not rejected.

A batch is what the entries of one group and stratum say at one closing: how many were heard is one cell, and on each
node that ends there is another, of so many reports. A snapshot freezes a batch as it is, reports and attendance
together. Of a batch's snapshots each cell has as many as in the one before, or at least the survey's minimum more; so
no single report moves what is shown. Knows no clock: the caller says what is counted by now, and whether the closing is
sealed. docs/mathematics.md, "Snapshots".

Unions of strata are sums of whole numbers: they equal the tallies that would have been counted for the union directly.
Of each, every published part has enough reports. Attendance is of who takes part, which is public, and is given whole.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from statistics import NormalDist
from typing import TypeAlias, TypeVar

import numpy as np
from changeling_protocol import Breakdown, NodeNumber, ReleasePlan, StratumNumber, TrackNumber, count_strata
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]


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
A = TypeVar("A", bound=int)
B = TypeVar("B", bound=int)
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


Batch: TypeAlias = Hashable
"""Names a group and a stratum, at one closing."""
Cell: TypeAlias = PlanNode | None
"""A node, or None for those who were heard."""
CellCounts: TypeAlias = Mapping[Batch, Mapping[Cell, int]]
"""How many each cell of each batch of a closing has, reports or members; what has none may be left out."""

MINIMUMS = 10
"""A cell is shown before it is sealed only if it has so many times as much as may be left out of it, which is less than
the survey's minimum; so at most one report in as many is left out for good where that is missing as it is sealed."""


def batches_to_show(shown: CellCounts, counted: CellCounts, minimum: int, *, sealed: bool) -> frozenset[Batch]:
    """The batches of a closing of which a snapshot is to be taken now; all others stay as they are shown.

    shown: the batches that are shown, each as of its last snapshot.
    counted: all batches as they are counted by now; no cell has fewer than it is shown with.
    minimum: the survey's, at least 1.
    sealed: whether nothing more will be counted.
    A closing is first shown when each cell that has any has `enough`, or else when it is sealed. A batch that is heard
    of later waits for that, too, and has the minimum in each cell then or is never shown.
    """
    batches = {batch for batch, cells in counted.items() if any(cells.values())}
    if not shown:
        large = all(_moves({}, counted[batch], enough(minimum)) for batch in batches)
        return frozenset(batches if large or sealed else ())
    return frozenset(
        batch
        for batch in batches
        if (batch in shown or sealed)
        and counted[batch] != shown.get(batch)
        and _moves(shown.get(batch, {}), counted[batch], minimum)
    )


def enough(minimum: int) -> int:
    """How many a cell needs to be shown before it is sealed. minimum: the survey's, at least 1."""
    return max(minimum, MINIMUMS * (minimum - 1))


def _moves(before: Mapping[Cell, int], after: Mapping[Cell, int], least: int) -> bool:
    """True if each cell has as many as before, or at least so many more."""
    return all((more := count - before.get(cell, 0)) == 0 or more >= least for cell, count in after.items())


NodeCell: TypeAlias = tuple[TrackNumber, NodeNumber, StratumNumber]
"""A node of a survey's plan, and the stratum of the entries that reported on it."""
ClosingCell: TypeAlias = tuple[int, int, StratumNumber]
"""A group, a period at which a node ends, and the stratum of the entries that were heard there."""


def select(breakdowns: Sequence[Breakdown], told: Mapping[str, Collection[str]]) -> list[StratumNumber]:
    """The strata that have one of the values told for each of the breakdowns told, rising.

    breakdowns: those that the survey declares.
    told: values by the name of their breakdown; a breakdown that is not named may have any value.
    Raises ValueError, which names what is not declared; and if no value is told for a name.

    >>> system, channel = Breakdown("system", ("linux", "mac")), Breakdown("channel", ("release", "beta"))
    >>> select([system, channel], {"channel": ["beta"]})
    [1, 3]
    """
    declared = {each.name: each.values for each in breakdowns}
    if unknown := sorted(told.keys() - declared):
        raise ValueError(f"the survey declares the breakdowns {sorted(declared)}, not {unknown}")
    for name, values in told.items():
        if not values or not set(values) <= set(declared[name]):
            raise ValueError(f"{name!r} is one or more of {list(declared[name])}, got {sorted(values)}")
    chosen = [
        [place for place, value in enumerate(each.values) if each.name not in told or value in told[each.name]]
        for each in breakdowns
    ]
    numbers = np.arange(count_strata(breakdowns)).reshape([len(each.values) for each in breakdowns] or [1])
    return [StratumNumber(number) for number in (numbers[np.ix_(*chosen)] if chosen else numbers).ravel().tolist()]


def withheld(reports: Mapping[StratumNumber, int], minimum: int) -> set[StratumNumber]:
    """The strata of a node whose cells may be shown only along with all the others.

    reports: by stratum, of the cells that have any.
    minimum: the fewest reports, at least 1, that anything published may be about.
    These are the cells with fewer reports than the minimum. If they have fewer all together, the smallest of the others
    is withheld with them: else the whole less all the others would show them.
    """
    small = {stratum for stratum, count in reports.items() if count < minimum}
    others = sorted(reports.keys() - small)
    if others and 0 < sum(reports[stratum] for stratum in small) < minimum:
        small.add(min(others, key=lambda stratum: reports[stratum]))
    return small


class StratifiedTallies:
    """All tallies of a survey by stratum.

    nodes: the tally of each cell that has reports.
    attendance: of each group, closing and stratum that somebody was heard of.
    minimum: the fewest reports that anything published may be about; 1 to publish everything.
    """

    def __init__(
        self, nodes: Mapping[NodeCell, NodeTally], attendance: Mapping[ClosingCell, Attendance], minimum: int
    ) -> None:
        self._minimum = max(1, minimum)
        self._nodes, self._attendance = _by_stratum(nodes), _by_stratum(attendance)
        self._withheld = {
            node: withheld({stratum: cell.reports for stratum, cell in cells.items()}, self._minimum)
            for node, cells in self._nodes.items()
        }

    def union(self, strata: Collection[StratumNumber]) -> Tallies:
        """The tallies of the entries of these strata, which may be published.

        A node is there if it has at least the minimum of reports, and none of its cells is withheld; or the union
        leaves out no cell with reports. So whatever is made of unions, by adding and subtracting them, is about at
        least so many reports, or none. docs/mathematics.md, "Unions of strata".
        """
        chosen, nodes = frozenset(strata), dict[PlanNode, NodeTally]()
        for node, cells in self._nodes.items():
            if cells.keys() <= chosen or chosen.isdisjoint(self._withheld[node]):
                total = _union(cells, chosen)
                if total is not None and total.reports >= self._minimum:
                    nodes[node] = total
        unions = ((closing, _union(cells, chosen)) for closing, cells in self._attendance.items())
        return Tallies(nodes, {closing: heard for closing, heard in unions if heard is not None})


def _by_stratum(cells: Mapping[tuple[A, B, StratumNumber], V]) -> dict[tuple[A, B], dict[StratumNumber, V]]:
    by_stratum: dict[tuple[A, B], dict[StratumNumber, V]] = {}
    for one, other, stratum in sorted(cells):
        by_stratum.setdefault((one, other), {})[stratum] = cells[one, other, stratum]
    return by_stratum


def _union(cells: Mapping[StratumNumber, V], chosen: frozenset[StratumNumber]) -> V | None:
    """What these strata have together; None if they have nothing."""
    there = [cell for stratum, cell in cells.items() if stratum in chosen]
    return reduce(add, there) if there else None
