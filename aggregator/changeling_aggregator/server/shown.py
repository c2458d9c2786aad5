"""The snapshots that the fold took, as this process last read them, and the answers that are made of them.

Estimates, status and everything else that anybody may read is made of this alone. A node with fewer reports than the
survey's minimum is left out; so is one of a union of strata from which, by subtraction, fewer could be told.

Answers are worked out on threads of their own: a few at a time, each once, and none that nobody waits for any more. So
whoever asks for many, for the same again and again, or goes away before the answer, keeps neither uploads nor the fold
waiting, nor other readers for long.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

from changeling_protocol import StratumNumber, Survey, SurveyId
from changeling_statistics import (
    Attendance,
    GroupClosing,
    NodeTally,
    PlanNode,
    Smoothing,
    Solution,
    StratifiedTallies,
    Tallies,
    releases,
)

from ..errors import Overloaded
from ..ingest import PublishedSurvey
from ..store import SnapshotProgress, Store, StratumCounts, StratumKey
from .questions import ResultMethod

MOST_SURVEYS = 32
MOST_UNIONS = 32
MOST_SOLUTIONS = 4
AT_ONCE = 2
MOST_WAITING = 64
"""So many questions wait for a thread at most; however many wait for the answer to one of them."""
MOST_OF_NETWORK = 16
"""So many of those that wait are of one network at most; where there is no room, the longest line makes some."""
COME_AGAIN = "more estimates are asked for than this server makes at a time: come again later"
MOST_KEPT_BYTES = 64 * 2**20
MOST_KEPT = 4096


@dataclass(eq=False)
class ShownSurvey:
    """The part of a survey that is shown, at one revision."""

    survey: Survey
    looked: SnapshotProgress
    lots: Mapping[StratumKey, StratumCounts]
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

    def solution(self, strata: tuple[StratumNumber, ...] | None, method: ResultMethod, about: int = 0) -> Solution:
        """The solution for estimates about one of the survey's questions, by its place; worked out once.

        Raises ValueError where a method needs more nodes.
        """
        tallies, asked = self.tallies(strata), (strata, method, about)
        with self._lock:
            if asked not in self._solutions:
                graph = releases(self.survey.about(about), tallies.about(self.survey.plan, about))
                if method is ResultMethod.SMOOTHED:
                    self._solutions[asked] = Smoothing(graph)
                else:
                    self._solutions[asked] = Solution(graph, method is ResultMethod.RETROSPECTIVE)
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
    """Shows the surveys of a store; it reads of the store what has changed since, and keeps the latest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[SurveyId, ShownSurvey] = OrderedDict()
        self._lock = Lock()

    def of(self, published: PublishedSurvey) -> ShownSurvey:
        """The part of a survey that is shown now."""
        survey = published.survey
        with self._lock:
            known = self._known.get(survey.id)
        with self._store.view() as view:
            looked = view.looked_at_survey(survey.id)
            if known is not None and known.revision == looked.revision:
                return known
            before = (
                known
                if known is not None and known.revision < looked.revision
                else ShownSurvey(survey, SnapshotProgress(), {})
            )
            lots = view.shown_strata(survey.id, since=before.revision)
        shown = ShownSurvey(survey, looked, {**before.lots, **lots})
        with self._lock:
            self._known[survey.id] = shown
            self._known.move_to_end(survey.id)
            if len(self._known) > MOST_SURVEYS:
                self._known.popitem(last=False)
        return shown


@dataclass(slots=True, eq=False)
class _Work:
    """An answer that is being made, or waits for it. network: of who asked first. readers: how many still want it."""

    key: Hashable
    make: Callable[[], bytes]
    network: str | None
    opening: SurveyId | None
    made: Future[bytes] = field(default_factory=Future)
    readers: int = 0
    begun: bool = False


class Estimating:
    """Makes answers and keeps the latest of them: MOST_KEPT, of MOST_KEPT_BYTES together.

    Networks take turns, and none has all threads. The answer that a survey's page opens with has a place of its own,
    before all others.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="estimate")
        self._lock = Lock()
        self._work: dict[Hashable, _Work] = {}
        self._lines: OrderedDict[str | None, deque[_Work]] = OrderedDict()
        """What waits, by network; the next is of the first."""
        self._in_hand: Counter[str | None] = Counter()
        self._closed = False
        self._opening: OrderedDict[SurveyId, tuple[Hashable, bytes]] = OrderedDict()
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._kept_bytes = 0

    def kept(self, key: Hashable) -> bytes | None:
        """The answer to a question, where it is kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            return next((answer for opening, answer in self._opening.values() if opening == key), None)

    async def answer(
        self,
        key: Hashable,
        make: Callable[[], bytes],
        network: str | None = None,
        opening: SurveyId | None = None,
    ) -> bytes:
        """The answer that `make` returns, or returned for this key, or is about to on another thread.

        If this is cancelled before the answer is begun, and nobody else waits for it, it is not made.
        key: says all that the answer hangs on. network: that asks; None for this machine. opening: the survey whose
        page opens with this answer, if one does. Raises what `make` does, Overloaded where too many wait.
        """
        if (kept := self.kept(key)) is not None:
            return kept
        with self._lock:
            work = self._work.get(key)
            if work is None:
                work = self._stand_in_line(_Work(key, make, network, opening))
            work.readers += 1
        try:
            return await asyncio.shield(asyncio.wrap_future(work.made))
        finally:
            self._left(work)

    def close(self) -> None:
        """Finish the answers in hand, no others."""
        with self._lock:
            self._closed = True
        self._threads.shutdown(cancel_futures=True)

    def _stand_in_line(self, work: _Work) -> _Work:
        if work.opening is None:
            of_network = len(self._lines.get(work.network, ()))
            if work.network is not None and of_network >= MOST_OF_NETWORK:
                raise Overloaded(COME_AGAIN)
            if len(self._work) >= AT_ONCE + MOST_WAITING:
                self._make_room(of_network)
            self._lines.setdefault(work.network, deque()).append(work)
        else:
            self._lines.setdefault(work.network, deque()).appendleft(work)
            self._lines.move_to_end(work.network, last=False)
        self._work[work.key] = work
        self._threads.submit(self._make_next)
        return work

    def _make_room(self, of_network: int) -> None:
        """Give the last question of the longest line up for one of a network with fewer, or raise Overloaded."""
        longest = max(self._lines.values(), key=len, default=deque[_Work]())
        if len(longest) <= of_network + 1 or longest[-1].opening is not None:
            raise Overloaded(COME_AGAIN)
        given_up = longest.pop()
        del self._work[given_up.key]
        given_up.begun = True  # so that its readers leave nothing behind
        given_up.made.set_exception(Overloaded(COME_AGAIN))

    def _left(self, work: _Work) -> None:
        """One reader less; what nobody waits for, and is not begun, makes room for others."""
        with self._lock:
            work.readers -= 1
            if work.readers == 0 and not work.begun:
                del self._work[work.key]
                self._lines[work.network].remove(work)

    def _next(self) -> _Work | None:
        """Begin the work whose turn it is; its network's next turn comes after that of all others.

        None if nothing waits but of networks of which a work is in hand: a thread is left for the others.
        """
        for network, line in [*self._lines.items()]:
            is_free = network is None or self._in_hand[network] < AT_ONCE - 1
            if not line:
                del self._lines[network]
            elif is_free or line[0].opening is not None:
                self._lines.move_to_end(network)
                self._in_hand[network] += 1
                work = line.popleft()
                work.begun = True
                return work
        return None

    def _make_next(self) -> None:
        with self._lock:
            work = self._next()
        if work is None:
            return
        answer, failed = b"", None
        try:
            answer = work.make()
        except BaseException as error:
            failed = error
        with self._lock:
            del self._work[work.key]
            self._in_hand -= Counter({work.network: 1})
            if failed is None:
                self._keep(work, answer)
            if self._lines and not self._closed:
                self._threads.submit(self._make_next)
        if failed is None:
            work.made.set_result(answer)
        else:
            work.made.set_exception(failed)

    def _keep(self, work: _Work, answer: bytes) -> None:
        if work.opening is not None:
            self._opening[work.opening] = work.key, answer
            if len(self._opening) > MOST_SURVEYS:
                self._opening.popitem(last=False)
            return
        self._kept[work.key] = answer
        self._kept_bytes += len(answer)
        while self._kept_bytes > MOST_KEPT_BYTES or len(self._kept) > MOST_KEPT:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])
