"""What is shown of surveys, as this process last read it: the snapshots that the fold took, and nothing else.

Estimates, status and everything else that anybody may read is made of this alone. A node with fewer reports than the
survey's minimum is left out; so is one of a union of strata from which, by subtraction, fewer could be told.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

from changeling_protocol import StratumNumber, Survey, SurveyId
from changeling_statistics import (
    Attendance,
    GroupClosing,
    NodeTally,
    PlanNode,
    Solution,
    StratifiedTallies,
    Tallies,
    releases,
    smoothing,
)

from ..ingest import PublishedSurvey
from ..store import Store
from ..store.snapshots import Looked, Lot, LotKey, looked_at_survey, shown_lots
from .questions import Method

MOST_SURVEYS = 32
MOST_UNIONS = 32
MOST_SOLUTIONS = 4


@dataclass(eq=False)
class Shown:
    """What is shown of a survey at one revision."""

    survey: Survey
    looked: Looked
    lots: Mapping[LotKey, Lot]
    _unions: OrderedDict[tuple[StratumNumber, ...] | None, Tallies] = field(default_factory=OrderedDict)
    _solutions: OrderedDict[object, Solution] = field(default_factory=OrderedDict)
    _stratified: StratifiedTallies | None = None
    _lock: Lock = field(default_factory=Lock)

    @property
    def revision(self) -> int:
        """It differs where what is shown does."""
        return self.looked.revision

    @property
    def final(self) -> int:
        """Up to which period it is shown for good; late reports may still change what comes after."""
        return self.looked.final

    @property
    def last(self) -> int:
        """The last period of which anything is shown; 0 if nothing is."""
        return max((period for period, _, _ in self.lots), default=0)

    def tallies(self, strata: tuple[StratumNumber, ...] | None = None) -> Tallies:
        """The tallies that estimates may be made of. strata: whose, rising; None for everybody's."""
        with self._lock:
            if strata not in self._unions:
                self._unions[strata] = self._everybody() if strata is None else self._stratify().union(strata)
                if len(self._unions) > MOST_UNIONS:
                    self._unions.popitem(last=False)
            self._unions.move_to_end(strata)
            return self._unions[strata]

    def solution(self, strata: tuple[StratumNumber, ...] | None, method: Method) -> Solution:
        """What estimates are made with, worked out once. Raises ValueError where a method needs more nodes."""
        tallies, asked = self.tallies(strata), (strata, method)
        with self._lock:
            if asked not in self._solutions:
                graph = releases(self.survey, tallies)
                if method is Method.SMOOTHED:
                    self._solutions[asked] = smoothing(graph)
                else:
                    self._solutions[asked] = Solution(graph, method is Method.RETROSPECTIVE)
                if len(self._solutions) > MOST_SOLUTIONS:
                    self._solutions.popitem(last=False)
            self._solutions.move_to_end(asked)
            return self._solutions[asked]

    def _everybody(self) -> Tallies:
        nodes: dict[PlanNode, NodeTally] = {}
        closings: dict[GroupClosing, Attendance] = {}
        for (period, group, _), lot in self.lots.items():
            other = closings.get((group, period))
            if other is None:  # no node ends at two closings
                closings[group, period] = lot.attendance
                nodes.update(lot.nodes)
                continue
            closings[group, period] = other + lot.attendance
            for node, tally in lot.nodes.items():
                nodes[node] = nodes[node] + tally if node in nodes else tally
        minimum = self.survey.minimum
        return Tallies({node: tally for node, tally in nodes.items() if tally.reports >= minimum}, closings)

    def _stratify(self) -> StratifiedTallies:
        if self._stratified is None:
            nodes = {
                (track, node, stratum): tally
                for (_, _, stratum), lot in self.lots.items()
                for (track, node), tally in lot.nodes.items()
            }
            closings = {(group, period, stratum): lot.attendance for (period, group, stratum), lot in self.lots.items()}
            self._stratified = StratifiedTallies(nodes, closings, self.survey.minimum)
        return self._stratified


class Showing:
    """What is shown of the surveys of a store; it reads of the store what has changed since, and keeps the latest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[SurveyId, Shown] = OrderedDict()
        self._lock = Lock()

    def of(self, published: PublishedSurvey) -> Shown:
        """What is shown of a survey now."""
        survey = published.survey
        with self._lock:
            known = self._known.get(survey.id)
        with self._store.reading() as connection:
            looked = looked_at_survey(connection, survey.id)
            if known is not None and known.revision == looked.revision:
                return known
            before = known if known is not None and known.revision < looked.revision else Shown(survey, Looked(), {})
            lots = shown_lots(connection, survey.id, since=before.revision)
        shown = Shown(survey, looked, {**before.lots, **lots})
        with self._lock:
            self._known[survey.id] = shown
            self._known.move_to_end(survey.id)
            if len(self._known) > MOST_SURVEYS:
                self._known.popitem(last=False)
        return shown
