"""The published nodes of a survey as edges of its release graph, each with its expansion and its planned variance.

A node (s, e] of changes measures v_e - v_s; one of states measures v_e - v_0; in units of how many entries those who
are heard stand for (`Enrolment`). How much an edge weighs depends on the plan, on how many were heard and on what the
designer expects, never on what was answered, nor on how many reported on the node itself.

Who is silent is taken to be like who is heard, and newcomers change from nothing. In units m, which fall by the share
of those who enrolled since, the mean change of those heard is an edge of the release graph again; m starts as the
number heard at the first closing, and is the number of entries where nobody is ever silent. docs/mathematics.md, "Who
is missing".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from changeling_protocol import Node, NodeNumber, Randomizer, ReleasePlan, Survey, TrackNumber
from numpy.typing import NDArray

from ..errors import EmptyNode
from ..estimate import Attendance, Estimate, Floats, GroupClosing, Indices, NodeTally, PlanNode, Tallies, without_sum
from ..randomizers.counterpart import counterpart_of
from .entries import LEAST_VARIANCE, change_variances, expected_variances
from .network import Network

RECENT = 5
"""The number of closings whose median says which share of the entries is heard."""


@dataclass(frozen=True, eq=False)
class Enrolment:
    """How many entries are enrolled and heard, at the times 0..T; at times that are no closings nobody is heard.

    heard: shape (T+1,).
    stands_for: m, how many entries those who are heard stand for, up to one factor, shape (T+1,).
    new: how many have enrolled by each time, of those heard at their first closing, shape (T+1,).
    missed: how many have enrolled earlier than at the closing where they were first heard, by each time, shape (T+1,).
    Those of whom no closing that counts ever said so are among them: as many as were heard at once beyond all others.
    by_group: how many have been heard of by each time, shape (groups, T+1).
    """

    heard: Floats
    stands_for: Floats
    new: Floats
    missed: Floats
    by_group: Floats

    @classmethod
    def of(cls, attendance: Mapping[GroupClosing, Attendance], survey: Survey) -> "Enrolment":
        """The enrolment that the attendance at a survey's closings tells.

        Closings at which fewer are heard than the survey's minimum count as lost: nothing of them is published. In a
        closed cohort nobody is new later on.
        """
        plan, periods = survey.plan, survey.calendar.periods
        counts = np.zeros((3, len(plan.groups), periods + 1))
        if attendance:
            group, period = np.array([*attendance], np.intp).T
            counts[:, group, period] = np.array([(each.heard, each.new, each.missed) for each in attendance.values()]).T
        heard, new, missed = counts.sum(1)
        counted = np.flatnonzero(heard >= max(1, survey.minimum)).astype(np.intp)
        newcomers = np.zeros(len(counted)) if survey.closed else _newcomers(new, missed, counted, _closings(plan))
        told = np.cumsum(counts[1] + counts[2], axis=1)
        by_group = np.maximum(told, np.maximum.accumulate(counts[0], axis=1))
        return cls(
            heard=heard,
            stands_for=_stands_for(heard, newcomers, counted),
            new=np.cumsum(new),
            missed=np.cumsum(missed) + (by_group - told).sum(0),
            by_group=by_group,
        )

    @cached_property
    def enrolled(self) -> Floats:
        """How many entries were heard of by each time, shape (T+1,)."""
        enrolled: Floats = self.new + self.missed
        return enrolled

    @cached_property
    def latest(self) -> Floats:
        """How many were heard at the last closing by each time at which anybody was, shape (T+1,); 0 before it."""
        return self._at_each_time(self.heard[self._there])

    @cached_property
    def scales(self) -> Floats:
        """The factor from units m to entries, as known at each time: enrolled / m; 0 where nobody is."""
        return np.divide(self.enrolled, self.stands_for, out=np.zeros_like(self.new), where=self.stands_for > 0)

    @cached_property
    def recent(self) -> Floats:
        """The excess of m / heard over m / enrolled, as known at each time: the median of the latest closings; (T+1,).

        0 if nobody is silent.
        """
        return self._at_each_time(self._least_and_recent[1])

    @cached_property
    def lasting(self) -> Floats:
        """The part of `recent` that is due to entries which fell silent for long, shape (T+1,).

        It is what exceeds the closing at which fewest were silent; the rest strikes others at each closing.
        """
        return self._at_each_time(self._lasting)

    @cached_property
    def silence(self) -> Floats:
        """m / heard - m / enrolled at each time, but for those who stay silent, as known then; shape (T+1,).

        0 where everybody was heard, or nobody.
        """
        silence, there = np.zeros(len(self.heard)), self._there
        m, heard = self.stands_for[there], self.heard[there]
        silence[there] = np.maximum(0.0, m / heard - m / self.enrolled[there] - self._lasting)
        return silence

    @property
    def _there(self) -> Indices:
        """The times at which anybody was heard."""
        return np.flatnonzero(self.heard)

    def _at_each_time(self, figures: Floats) -> Floats:
        """Figures of the times at which anybody was heard, each until the next of them; 0 before the first."""
        last = np.searchsorted(self._there, np.arange(len(self.heard)), side="right")
        return np.concatenate([[0.0], figures])[last]

    @property
    def _lasting(self) -> Floats:
        """`lasting` at each of the times at which anybody was heard."""
        least, recent = self._least_and_recent
        lasting: Floats = np.maximum(0.0, recent - least)
        return lasting

    @cached_property
    def _least_and_recent(self) -> tuple[Floats, Floats]:
        """The excess of m / heard over m / enrolled, at the times at which anybody was heard, as known then.

        At the closing at which fewest were silent, and the median of the latest closings.
        """
        m, heard, new, missed = (each[self._there] for each in (self.stands_for, self.heard, self.new, self.missed))
        least, recent, times = np.zeros(len(m)), np.zeros(len(m)), np.arange(len(m))
        step = max(1, MOST_AT_ONCE // max(1, len(m)))
        for rows in (slice(first, first + step) for first in range(0, len(m), step)):
            at, known = times[rows, None], times[: rows.stop]
            shares = np.maximum(0.0, (m / heard)[known] - m[known] / (new[known] + missed[at]))
            least[rows] = np.min(shares, axis=1, where=known <= at, initial=np.inf)
            latest = at - np.arange(RECENT)
            there = np.take_along_axis(shares, np.maximum(latest, 0), axis=1)
            recent[rows] = np.nanmedian(np.where(latest >= 0, there, np.nan), axis=1)
        return least, recent


def _stands_for(heard: Floats, newcomers: Floats, counted: Indices) -> Floats:
    """m, from the closings that count. Where all who are heard are new, one more is taken to be there: m stays finite.

    newcomers: how many of those heard enrolled since the last closing that counts, at each that does.
    """
    growth = np.ones(len(heard))
    if not len(counted):
        return growth
    old = heard[counted] - newcomers
    growth[counted] = np.where(old > 0, heard[counted] / np.maximum(old, 1), heard[counted] + 1)
    growth[: counted[0] + 1] = 1.0
    m: Floats = heard[counted[0]] * np.cumprod(growth)
    return m


def _newcomers(new: Floats, missed: Floats, counted: Indices, closings: Indices) -> Floats:
    """The number of those heard at each closing that counts who enrolled since the last one that does.

    closings: all of the plan, rising. After one that does not count, those who were missed enrolled meanwhile, and so
    did those who said so there; after one that does they were offline.
    """
    told, before = np.cumsum(new + missed), np.concatenate([[0], counted[:-1]]).astype(np.intp)
    adjacent = closings[np.maximum(np.searchsorted(closings, counted) - 1, 0)] <= before
    newcomers: Floats = np.where(adjacent, new[counted], told[counted] - told[before])
    return newcomers


def _closings(plan: ReleasePlan) -> Indices:
    """The periods at which a node of any track ends, rising; of tracks about any question, as all make closings."""
    tracks = {(each.first, each.width, each.count) for group in plan.groups for each in group.tracks + group.hidden}
    ends = [first + width * np.arange(1, count + 1, dtype=np.intp) for first, width, count in tracks]
    return np.unique(np.concatenate(ends))


@dataclass(frozen=True, slots=True, eq=False)
class PlanNodes:
    """The N nodes of a plan, each with the edge of the release graph that it is, by their ends, starts and tracks.

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
    """The nodes of all tracks of a plan. What is read of a survey hangs on them each time, so they are listed once."""
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
    def reports(self) -> Floats:
        """How many reports each node has, shape (E,)."""
        return np.array([tally.reports for tally in self.tallies], np.float64)

    @cached_property
    def later(self) -> NDArray[np.bool_]:
        """True for the edges of change nodes that start after time 0, shape (E,)."""
        changes = np.array([track.reports_changes for track in self.survey.plan.tracks], np.bool_)[self.track]
        later: NDArray[np.bool_] = changes & (self.network.start > 0)
        return later

    @cached_property
    def moved(self) -> tuple[Floats, NDArray[np.bool_]]:
        """How many entries changed on each edge, shape (E,); and where tallies tell it: elsewhere it is expected."""
        network, expected = self.network, self.survey.expected
        counted = np.where(np.isnan(self.changed), np.einsum("eaa->e", self.products) / 2, self.changed)
        spans = zip(network.start.tolist(), network.end.tolist(), strict=True)
        likely = self.enrolment.stands_for[network.end] * [expected.share_changed(*span) for span in spans]
        return np.where(np.isnan(counted), likely, counted), ~np.isnan(counted)

    @property
    def changes(self) -> Floats:
        """The estimated change on every edge, expanded to all entries; shape (E, z), in entries."""
        return self._decoded[0]

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

    def bounded_by(self, times: Indices) -> NDArray[np.bool_]:
        """True where the covariance of some node that closes by a time is an upper bound, of the shape of the times."""
        bounded: NDArray[np.bool_] = times >= self.network.end[self.loose].min(initial=self.network.periods + 1)
        return bounded

    @property
    def loose(self) -> NDArray[np.bool_]:
        """True for each edge whose covariance is an upper bound, shape (E,)."""
        return self._decoded[2]

    @property
    def variances(self) -> Floats:
        """The diagonals of `covariances`, shape (E, z), in entries squared."""
        return np.diagonal(self.covariances, axis1=1, axis2=2)

    @property
    def response_variances(self) -> Floats:
        """The diagonals of `responses`, shape (E, z), in entries squared."""
        return np.diagonal(self.responses, axis1=1, axis2=2)

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
        """The addition of silence to each change, if it strikes afresh at each: (m/heard - m/enrolled)(1/π)(Q̂ - yy'/m).

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
    of_report = _all_planned(survey)[at]
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


def planned_variances(survey: Survey, number: TrackNumber, end: Indices) -> Floats:
    """The variance of one report that is expected on each of some nodes of a track, over the chance to report there.

        1/π · {variance of a report + (1 - π) E δ²}, mean over the answers, shape (nodes,)

    number: the track's. end: when its nodes close, shape (nodes,).
    The second term is the sampling error, as if entries were drawn afresh for every node. In truth nodes have sampling
    errors in common; so the figure decides how nodes are weighed, and is not published.
    """
    plan, expected, track = survey.plan, survey.expected, survey.plan.tracks[number]
    group = plan.groups[plan.group_of(number)]
    chance = group.share / plan.total_share * track.reports / track.count
    start = end - track.width
    variance = expected_variances(track.randomizer, start, end, expected, survey.closed)
    if chance < 1:
        since = start if track.reports_changes else np.zeros_like(end)
        variance = variance + (1 - chance) * change_variances(len(survey.answers), expected, since, end)
    return np.maximum(variance, LEAST_VARIANCE) / chance


@lru_cache(maxsize=16)
def _all_planned(survey: Survey) -> Floats:
    """`planned_variances` of all nodes, in the order of `plan_nodes`. No tally matters, so it is made once."""
    planned = plan_nodes(survey.plan)
    variance = np.empty(len(planned.end))
    for number in range(len(survey.plan.tracks)):
        at = planned.track == number
        variance[at] = planned_variances(survey, TrackNumber(number), planned.end[at])
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
