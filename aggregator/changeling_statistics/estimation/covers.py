"""The paper's own estimator: a histogram is the sum of node estimates over a cover.

The range (0, t] is covered by the fewest nodes of a hierarchy. Their estimates are independent, so values add up, and
covariances too (Pan 2023, section 6.2). It is one path through the release graph, while `histogram` uses all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
from changeling_protocol import Node, NodeNumber, Survey, TrackNumber, cover

from ..errors import NotEstimable
from ..estimate import Estimate, Floats
from ..tallies import PlanNode, Tallies
from .decoding import histogram_change
from .network import Network
from .releases import UsedNode


@dataclass(frozen=True, slots=True)
class CoverSum:
    """The histogram at the end of a period, from a cover.

    period: its number, 0 to T.
    estimate: how many of those who reported hold each answer 1..z, with their covariance.
    nodes: the cover.
    """

    period: int
    estimate: Estimate
    nodes: tuple[UsedNode, ...]


def cover_histogram(survey: Survey, tallies: Tallies, period: int) -> CoverSum:
    """The histogram at the end of a period, from the fewest nodes that cover the periods up to it.

    tallies: those that may be published. period: 0 to T.
    Raises NotEstimable, which names the node, if one of the cover has too few reports; ValueError outside 0..T, or if
    the plan is not a hierarchy of changes that every entry reports.
    """
    return _Covers(survey, tallies).at(period)


def cover_series(survey: Survey, tallies: Tallies, until: int) -> list[CoverSum]:
    """The histograms at the ends of periods 1 to `until`, each as `cover_histogram` has it. Raises as that does."""
    covers = _Covers(survey, tallies)
    return [covers.at(period) for period in range(1, until + 1)]


def cover_row(network: Network, period: int) -> Floats:
    """The weights of the cover sum at the end of a period: 1 on the edges of its cover, else 0; shape (E,)."""
    spans = {(s, e): at for at, (s, e) in enumerate(zip(network.start.tolist(), network.end.tolist(), strict=True))}
    row = np.zeros(len(network.start))
    for node in cover(Node(0, period), {end - start for start, end in spans}):
        row[spans[node.start, node.end]] = 1.0
    return row


class _Covers:
    """Cover sums over one survey's tallies, each node decoded once."""

    def __init__(self, survey: Survey, tallies: Tallies) -> None:
        if len(survey.plan.groups) > 1 or not all(t.reports_changes and t.first == 0 for t in survey.plan.tracks):
            raise ValueError("cover sums need one group of change tracks that start with the calendar")
        self._survey, self._tallies = survey, tallies
        self._by_width = {track.width: number for number, track in survey.plan.numbered(0)}
        self._decoded: dict[PlanNode, Estimate] = {}

    def at(self, period: int) -> CoverSum:
        if not 0 <= period <= self._survey.calendar.periods:
            raise ValueError(f"periods are numbered 0 to {self._survey.calendar.periods}, got {period}")
        nodes = tuple(self._used(period))
        z = len(self._survey.answers)
        nothing = Estimate(np.zeros(z), np.zeros((z, z)))
        estimates = (self._estimate(used.track, used.number) for used in nodes)
        return CoverSum(period, reduce(Estimate.__add__, estimates, nothing), nodes)

    def _used(self, period: int) -> Iterator[UsedNode]:
        for node in cover(Node(0, period), self._by_width) if period else ():
            track, number = self._by_width[node.width], NodeNumber(node.end // node.width)
            tally = self._tallies.get((track, number))
            if tally is None or tally.reports < self._survey.minimum:
                raise NotEstimable(
                    f"period {period} needs the node ({node.start}, {node.end}] of track {track}, "
                    "which has too few reports"
                )
            yield UsedNode(track, number, node, tally.reports)

    def _estimate(self, track: TrackNumber, number: NodeNumber) -> Estimate:
        key = (track, number)
        if key not in self._decoded:
            self._decoded[key] = histogram_change(self._tallies[key], self._survey.plan.tracks[track].randomizer)
        return self._decoded[key]
