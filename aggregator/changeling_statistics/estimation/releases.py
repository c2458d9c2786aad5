"""All nodes of a plan in the order in which estimates take them: by their ends, and there by their starts and tracks.

A plan never changes, and what is read of a survey hangs on its nodes each time; so they are listed once.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from changeling_protocol import (
    ExpectedChanges,
    KaryResponse,
    Node,
    NodeNumber,
    Randomizer,
    ReleasePlan,
    Survey,
    TrackNumber,
)
from numpy.typing import NDArray

from ..errors import EmptyNode, NotEstimable
from ..estimate import Estimate, Floats, NodeTally, PlanNode, Tallies, without_sum
from ..randomizers.kary import KaryCounterpart
from ..randomizers.registry import counterpart_of
from .enrolment import Enrolment
from .entries import expected_spreads, expected_variances
from .network import Indices, Network


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


LEAST_VARIANCE = 1e-9
"""Of one report: where nothing can change it would be all but 0, and the systems badly conditioned."""

MOST_AT_ONCE = 2**22
"""How many figures of covariances are in memory at a time, where only their diagonals are needed."""


class UsedNode(NamedTuple):
    """A node that went into an estimate.

    track: the number of its track in the plan.
    number: its number in the track, from 1.
    node: the span (s, e].
    reports: how many entries reported on it.
    """

    track: TrackNumber
    number: NodeNumber
    node: Node
    reports: int


@dataclass(frozen=True, eq=False)
class Releases:
    """The E nodes of a survey that may be published, in order of their ends.

    survey: whose they are.
    nodes, tallies: the nodes, and the tally of each.
    track, group: the numbers of each node's track and group in the plan, shape (E,).
    expansion: m/r, how many entries one report stands for, on each node, shape (E,).
    network: the nodes as edges, whose resistances are planned variances in entries squared.
    enrolment: how many entries are enrolled and heard.
    """

    survey: Survey
    nodes: tuple[UsedNode, ...]
    tallies: tuple[NodeTally, ...]
    track: Indices
    group: Indices
    expansion: Floats
    network: Network
    enrolment: Enrolment

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def by_randomizer(self) -> tuple[tuple[Randomizer, Indices], ...]:
        """The edges of the nodes that were reported through each randomizer. Tracks often have one in common."""
        numbers: dict[Randomizer, list[int]] = {}
        for number in np.unique(self.track).tolist():
            numbers.setdefault(self.survey.plan.tracks[number].randomizer, []).append(number)
        edges = (np.flatnonzero(np.isin(self.track, tracks)).astype(np.intp) for tracks in numbers.values())
        return tuple(zip(numbers, edges, strict=True))

    @cached_property
    def changes(self) -> Floats:
        """The estimated change on every edge, expanded to all entries; shape (E, z), in entries."""
        return self._diagonals[0]

    @cached_property
    def covariances(self) -> Floats:
        """C_e: the covariance of each of `changes` by itself, shape (E, z, z), in entries squared.

        It is what the randomizers add, and that not everybody is heard, as if others were silent at every closing.
        """
        return self.responses + self._silence

    @property
    def responses(self) -> Floats:
        """The covariance of each of `changes` that the randomizers add, shape (E, z, z), in entries squared."""
        return self._decoded[1]

    def bounded(self, until: int) -> bool:
        """Whether the covariance of some node that closes by a time is an upper bound."""
        return bool(self._diagonals[3][self.network.end <= until].any())

    def bounded_by(self, times: Indices) -> NDArray[np.bool_]:
        """`bounded` at several times, of the same shape."""
        bounded: NDArray[np.bool_] = times >= self.network.end[self._diagonals[3]].min(initial=self.network.periods + 1)
        return bounded

    @property
    def variances(self) -> Floats:
        """The diagonals of `covariances`, shape (E, z), in entries squared."""
        return self._diagonals[1]

    @property
    def response_variances(self) -> Floats:
        """The diagonals of `responses`, shape (E, z), in entries squared."""
        return self._diagonals[2]

    @cached_property
    def _diagonals(self) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        """Changes, diagonals of covariances and of responses, and what is bounded, without all covariances at once."""
        z = len(self.survey.answers)
        step = max(1, MOST_AT_ONCE // z**2)
        if len(self) <= step:
            return self._own_diagonals
        parts = [self._part(slice(at, at + step))._own_diagonals for at in range(0, len(self), step)]
        changes, variances, responses, bounded = (np.concatenate(each) for each in zip(*parts, strict=True))
        return changes, variances, responses, bounded

    @property
    def _own_diagonals(self) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        covariances, responses = (np.diagonal(each, axis1=1, axis2=2) for each in (self.covariances, self.responses))
        return self._decoded[0], covariances, responses, self._decoded[2]

    def _part(self, edges: slice) -> "Releases":
        """Some of the nodes."""
        network = self.network
        return replace(
            self,
            nodes=self.nodes[edges],
            tallies=self.tallies[edges],
            track=self.track[edges],
            group=self.group[edges],
            expansion=self.expansion[edges],
            network=Network(network.periods, network.start[edges], network.end[edges], network.variance[edges]),
        )

    @cached_property
    def products(self) -> Floats:
        """Q̂: unbiased for Σ_i δ_i δ_i' over all entries on every edge, (E, z, z); nan if a tally does not tell it."""
        return self._decoded[3]

    @cached_property
    def changed(self) -> Floats:
        """Unbiased for how many of all entries changed on every edge, shape (E,); nan if the tally does not tell."""
        return self._decoded[4]

    @property
    def _silence(self) -> Floats:
        """What silence adds to each change, if it strikes afresh at each: (m/heard - m/enrolled)(1/π)(Q̂ - yy'/m).

        Where a tally does not tell Q̂, how many changed stands in. π is the chance that an entry reports the node. What
        lasts of silence is common to all nodes, and not counted here. Returns shape (E, z, z).
        """
        silence = self.enrolment.silence[self.network.end]
        if not silence.any():
            return np.zeros_like(self._decoded[1])
        drawn = np.array([track.count / track.reports for track in self.survey.plan.tracks])[self.track]
        drawn /= shares(self.survey)[self.group]
        changes = self._decoded[0]
        own = np.eye(changes.shape[1])
        at_most = np.where(np.isnan(self.changed), self.enrolment.stands_for[self.network.end], self.changed)
        from_nothing = (self.network.start == 0)[:, None, None]
        spread = np.where(np.isnan(self.products), at_most[:, None, None] * own, self.products)
        spread = np.where(from_nothing, changes[:, :, None] * own, spread)
        spread -= changes[:, :, None] * changes[:, None, :] / self.enrolment.stands_for[self.network.end, None, None]
        added: Floats = (silence * drawn)[:, None, None] * spread
        return added

    @cached_property
    def _decoded(self) -> tuple[Floats, Floats, NDArray[np.bool_], Floats, Floats]:
        z = len(self.survey.answers)
        values, covariances = np.empty((len(self), z)), np.empty((len(self), z, z))
        products = np.full((len(self), z, z), np.nan)
        changed, bounded = np.full(len(self), np.nan), np.zeros(len(self), dtype=np.bool_)
        for randomizer, at in self.by_randomizer:
            decoded = counterpart_of(randomizer).estimates([self.tallies[e] for e in at.tolist()])
            values[at], covariances[at] = decoded.values, decoded.covariances
            changed[at], bounded[at] = decoded.changed, decoded.upper_bound
            if decoded.products is not None:
                products[at] = decoded.products
        # Edges from time 0 are reports of states, and first answers.
        conserved = np.flatnonzero((self.network.start > 0) & self.survey.closed)
        values[conserved], covariances[conserved] = without_sum(values[conserved], covariances[conserved])
        products[conserved] = without_sum(values[conserved], products[conserved])[1]
        x = self.expansion
        covariances *= (x**2)[:, None, None]
        return values * x[:, None], covariances, bounded, products * x[:, None, None], changed * x


def releases(survey: Survey, tallies: Tallies) -> Releases:
    """The nodes of a survey that may be published: those with reports, and at least as many as the survey's minimum.

    tallies: of the nodes, and the attendance of closings; nodes with too few reports are left out.
    A report stands for m / (reports on the node) entries, a ratio estimator: unbiased given the counts, none of which
    depends on an answer. docs/mathematics.md, "Who is missing".
    """
    planned, least = plan_nodes(survey.plan), max(1, survey.minimum)
    there = list(map(tallies.nodes.get, planned.keys))
    at = [place for place, tally in enumerate(there) if tally is not None and tally.reports >= least]
    known = [tally for place in at if (tally := there[place]) is not None]
    enrolment = Enrolment.of(tallies.attendance, survey)
    start, end = planned.start[at], planned.end[at]
    of_report = _of_reports(survey.plan, len(survey.answers), survey.expected, survey.closed)[at]
    return Releases(
        survey=survey,
        nodes=tuple(
            UsedNode(*planned.keys[place], planned.spans[place], tally.reports)
            for place, tally in zip(at, known, strict=True)
        ),
        tallies=tuple(known),
        track=planned.track[at],
        group=planned.group[at],
        expansion=enrolment.stands_for[end] / np.array([tally.reports for tally in known], np.float64),
        network=Network(
            survey.calendar.periods, start, end, of_report * enrolment.stands_for[end] ** 2 / enrolment.heard[end]
        ),
        enrolment=enrolment,
    )


def shares(survey: Survey) -> Floats:
    """f_g: the chance with which an entry draws each group, shape (groups,)."""
    return np.array([group.share for group in survey.plan.groups]) / survey.plan.total_share


def planned_variances(survey: Survey, number: TrackNumber, end: Indices, heard: Floats, stands_for: Floats) -> Floats:
    """The variance that is expected of each of some nodes of a track, in entries squared, mean over the answers.

        stands_for² / (π heard) · {variance of a report + (1 - π) E δ²}

    number: the track's. end: when its nodes close, shape (nodes,).
    heard: how many entries are heard then. stands_for: how many these stand for. π is the chance to report on a node.
    The second term is the sampling error, as if entries were drawn afresh for every node. In truth nodes have sampling
    errors in common; so the figure decides how nodes are weighed, and is not published.
    """
    of_report = _of_report(survey.plan, len(survey.answers), survey.expected, survey.closed, number, end)
    planned: Floats = of_report * stands_for**2 / heard
    return planned


def _of_report(
    plan: ReleasePlan, answers: int, expected: ExpectedChanges, closed: bool, number: TrackNumber, end: Indices
) -> Floats:
    """1/π · {variance of a report + (1 - π) E δ²} on each of some nodes of a track, shape (nodes,)."""
    track = plan.tracks[number]
    group = plan.groups[plan.group_of(number)]
    chance = group.share / plan.total_share * track.reports / track.count
    start = end - track.width
    variance = expected_variances(track.randomizer, start, end, expected, closed)
    if chance < 1:
        since = start if track.reports_changes else np.zeros_like(end)
        variance = variance + (1 - chance) * expected_spreads(answers, expected, since, end)
    return np.maximum(variance, LEAST_VARIANCE) / chance


@lru_cache(maxsize=16)
def _of_reports(plan: ReleasePlan, answers: int, expected: ExpectedChanges, closed: bool) -> Floats:
    """`_of_report` of all nodes of a plan, in the order of `plan_nodes`. It hangs on no tally, so it is made once."""
    planned = plan_nodes(plan)
    variance = np.empty(len(planned.end))
    for number in range(len(plan.tracks)):
        at = planned.track == number
        variance[at] = _of_report(plan, answers, expected, closed, TrackNumber(number), planned.end[at])
    return variance


def histogram_change(tally: NodeTally, randomizer: Randomizer) -> Estimate:
    """The unbiased change of the histogram over one node; for reports of states, the histogram at its end.

        Δv̂ = M_δv P⁻¹ O        Ĉ = A diag(O) A' - M_δv diag(P⁻¹ O) M_δv',  A = M_δv P⁻¹

    tally: the sums O, shape (slots,), and the number of reports.
    randomizer: the one that the node was reported through.
    Returns values of shape (z,), in entries, and a covariance of shape (z, z), in entries squared. The covariance is
    that of the randomizer's coins, given the true answers: coins of different nodes are independent, so it adds up.
    If the slots do not tell its last term it is too large on average, and the estimate says `upper_bound`.
    Raises EmptyNode if nothing was reported, TypeError for an unknown kind of randomizer, ValueError for one that says
    nothing or has no unbiased decoder.
    Pan 2023, eq. 46; covariance: docs/mathematics.md, "Decoding a node".
    """
    if tally.reports == 0:
        raise EmptyNode("nothing was reported on this node")
    return counterpart_of(randomizer).estimate(tally)


def input_counts(tally: NodeTally, randomizer: KaryResponse) -> Floats:
    """Unbiased for how many reports of k-RR came from each input: ŝ = P⁻¹O = (O - n·q) / (p - q), shape (m,).

    Takes O(m) steps. Raises ValueError for odds of 1:1, which say nothing.
    """
    return KaryCounterpart(randomizer).input_counts(tally)


def superpopulation_change(tally: NodeTally, randomizer: Randomizer) -> Estimate:
    """The change of the histogram over one node, with the covariance of multinomial reports.

        Δv̂ = A O        Ĉ = A {diag(O) - OO'/n} A'

    tally, randomizer: as for `histogram_change`, whose covariance is exceeded by M_δv {diag(ŝ) - ŝŝ'/n} M_δv'.
    Returns values of shape (z,), in entries, and a covariance of shape (z, z), in entries squared.
    Raises EmptyNode if nothing was reported; ValueError if the tally keeps sums of symbols.
    Pan 2023, appendix C, which has proportions where counts belong: docs/mathematics.md, "Decoding a node".
    """
    values = histogram_change(tally, randomizer).values
    squares = counterpart_of(randomizer).squares(tally)
    if squares is None:
        raise ValueError(f"a tally of {randomizer.symbols} symbols keeps sums, from which O O' is not known")
    return Estimate(values, squares - np.outer(values, values) / tally.reports)


class Missing(NamedTuple):
    """A node of the plan that is not published.

    track: the number of its track. node: its span.
    """

    track: int
    node: Node


def not_estimable(releases: Releases, time: int, until: int, origin: int = 0) -> NotEstimable:
    """The error that names a missing node: the first one on the way from `origin` to `time` where fewest are missing.

    until: only nodes that close by this period count.
    """
    asked = f"period {time}" if origin == 0 else f"the window ({origin}, {time}]"
    missing = missing_on_the_way(releases, Node(origin, time), until)
    if missing is None:
        return NotEstimable(f"{asked} is not estimable: no nodes of the plan that close by period {until} lead to it")
    track, node = missing
    return NotEstimable(
        f"{asked} is not estimable: it needs the node ({node.start}, {node.end}] of track {track}, "
        "which has too few reports, or is not shown before late ones are in"
    )


def missing_on_the_way(releases: Releases, span: Node, until: int) -> Missing | None:
    """The first missing node on the way from one time to another where fewest are missing; None if there is no way.

    until: only nodes that close by this period count.
    """
    ways = _Ways(span.start)
    links = _links(releases)
    for time in range(1, until + 1):
        ways.join(links[time])
    return ways.missing(span.end)


def first_missing(releases: Releases, until: int, *, retrospective: bool) -> list[Missing | None]:
    """`missing_on_the_way` from time 0 to each time 1 to `until`.

    retrospective: whether all nodes count; if not, those that close by the time in question.
    """
    ways, links, periods = _Ways(0), _links(releases), releases.survey.calendar.periods
    online: list[Missing | None] = []
    for time in range(1, periods + 1):
        ways.join(links[time])
        online.append(ways.missing(time))
    return [ways.missing(time) for time in range(1, until + 1)] if retrospective else online[:until]


_Link: TypeAlias = tuple[int, int, Missing | None]
"""Two times, and the node between them if it is missing."""


class _Ways:
    """The ways from one time to all others on which fewest nodes are missing, as more nodes close.

    A way is known by how many are missing, and by the first of them to close.
    """

    def __init__(self, origin: int) -> None:
        self._best: dict[int, tuple[int, Missing | None]] = {origin: (0, None)}
        self._links: defaultdict[int, list[tuple[int, Missing | None]]] = defaultdict(list)

    def missing(self, time: int) -> Missing | None:
        """The first missing node on the way to a time; None if none is missing, or there is no way."""
        return self._best.get(time, (0, None))[1]

    def join(self, links: Sequence[_Link]) -> None:
        """More links; ways only get better."""
        for start, end, missing in links:
            self._links[start].append((end, missing))
            self._links[end].append((start, missing))
        waiting = deque(time for start, end, _ in links for time in (start, end) if time in self._best)
        while waiting:
            at = waiting.popleft()
            count, first = self._best[at]
            for other, missing in self._links[at]:
                reached = (count, first) if missing is None else (count + 1, _earlier(first, missing))
                if other not in self._best or reached[0] < self._best[other][0]:
                    self._best[other] = reached
                    waiting.append(other)


def _earlier(first: Missing | None, second: Missing) -> Missing:
    return (
        second if first is None else min(first, second, key=lambda each: (each.node.end, each.node.start, each.track))
    )


def _links(releases: Releases) -> defaultdict[int, list[_Link]]:
    """The nodes of the plan by the period with which they close."""
    published = {(used.track, used.number) for used in releases.nodes}
    links: defaultdict[int, list[_Link]] = defaultdict(list)
    for number, track in enumerate(releases.survey.plan.tracks):
        for at, node in enumerate(track.nodes(), 1):
            start = node.start if track.reports_changes else 0
            missing = None if (number, at) in published else Missing(number, node)
            links[node.end].append((start, node.end, missing))
    return links


def check_period(survey: Survey, period: int) -> None:
    """Raises ValueError for a period outside the calendar; 0 is its start."""
    if not 0 <= period <= survey.calendar.periods:
        raise ValueError(f"periods are numbered 0 to {survey.calendar.periods}, got {period}")


@dataclass(frozen=True, slots=True)
class Gap:
    """A histogram, or the change of one, that the published nodes do not identify.

    span: the times that are not connected, (start, end]; for a histogram the start is 0.
    missing: the node that is missing, of those without which the two are not connected the first; None if no nodes
    of the plan lead there by then.
    """

    span: Node
    missing: Missing | None
