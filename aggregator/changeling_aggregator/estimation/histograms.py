"""Histograms at any time as sums of node estimates over a cover, the paper's own way.

The range (0, t] is covered by the fewest nodes of the plan's hierarchy; their estimates are independent and add
up, values and covariances alike (Pan 2023, section 6.2).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
from changeling_protocol import Node, Survey, cover

from ..errors import NotEstimable
from ..tallies import Tallies
from .decoding import histogram_change
from .estimate import Estimate


@dataclass(frozen=True, slots=True)
class UsedNode:
    """A node that went into an estimate: its track, its number there, and how many entries reported on it."""

    track: int
    number: int
    node: Node
    reports: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """The histogram at the end of a period.

    estimate: entries per answer 1..z. nodes: what it is made of, left to right.
    """

    period: int
    estimate: Estimate
    nodes: tuple[UsedNode, ...]


def histogram(survey: Survey, tallies: Tallies, period: int) -> Histogram:
    """The histogram at the end of `period`, 0 to T, from the tallies that may be published.

    Raises NotEstimable, naming the node, where one of the cover is missing, and ValueError outside 0..T.
    """
    return _Covers(survey, tallies).at(period)


def series(survey: Survey, tallies: Tallies, until: int) -> list[Histogram]:
    """The histograms at the ends of periods 1 to `until`; raises as `histogram` does."""
    covers = _Covers(survey, tallies)
    return [covers.at(period) for period in range(1, until + 1)]


class _Covers:
    """Cover sums over one survey's tallies, each node decoded once."""

    def __init__(self, survey: Survey, tallies: Tallies) -> None:
        if len(survey.plan.groups) > 1 or not all(t.reports_changes and t.first == 0 for t in survey.plan.tracks):
            raise ValueError("cover sums need one group of change tracks that start with the calendar")
        self._survey, self._tallies = survey, tallies
        self._by_width = {track.width: number for number, track in enumerate(survey.plan.tracks)}
        self._decoded: dict[tuple[int, int], Estimate] = {}

    def at(self, period: int) -> Histogram:
        if not 0 <= period <= self._survey.calendar.periods:
            raise ValueError(f"periods are numbered 0 to {self._survey.calendar.periods}, got {period}")
        nodes = tuple(self._used(period))
        z = len(self._survey.answers)
        nothing = Estimate(np.zeros(z), np.zeros((z, z)))
        estimates = (self._estimate(used.track, used.number) for used in nodes)
        return Histogram(period, reduce(Estimate.__add__, estimates, nothing), nodes)

    def _used(self, period: int) -> Iterator[UsedNode]:
        for node in cover(Node(0, period), self._by_width) if period else ():
            track, number = self._by_width[node.width], node.end // node.width
            tally = self._tallies.get((track, number))
            if tally is None or tally.reports == 0:
                raise NotEstimable(
                    f"period {period} needs the node ({node.start}, {node.end}] of track {track}, "
                    "which has too few reports"
                )
            yield UsedNode(track, number, node, tally.reports)

    def _estimate(self, track: int, number: int) -> Estimate:
        key = (track, number)
        if key not in self._decoded:
            self._decoded[key] = histogram_change(self._tallies[key], self._survey.plan.tracks[track].randomizer)
        return self._decoded[key]
