"""Measures 3 and 10 of a server: how long readers wait for estimates, also under load.

Uncached is the first answer after a new snapshot: the server reads from its store what has changed, decodes it, and
solves. All are asked of a real server on loopback.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import httpx
import numpy as np
from changeling_aggregator.store import SnapshotProgress, Store, StratumCounts, StratumKey
from changeling_aggregator.testing import AUTHORITY
from changeling_aggregator.testing.serving import RunningServer
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    MutationSpace,
    NodeNumber,
    Odds,
    ReleasePlan,
    SignedSubset,
    StratumNumber,
    Survey,
    Track,
    TrackNumber,
)
from changeling_protocol.wire import survey_path
from changeling_statistics import (
    Attendance,
    counterpart_of,
)

SEED = 3
REPORTS = 20_000
GREEDY, READERS = 64, 40
"""So many connections does one network ask on; so many readers, each of another network, ask meanwhile."""
TIMES = 9
"""How often each is asked; the figure is the median."""
WINDOWS = (1, 2, 3, 4, 7, 14, 28, 56)


def measure() -> dict[str, float | None]:
    """Milliseconds for a year of days and six answers; seconds for eight series of windows over 1,024 periods."""
    figures: dict[str, float | None] = {}
    with Served.running(answers=6, periods=365) as year:
        for name, question in (
            ("histogram", "histogram?period=365"),
            ("series", "series?until=365"),
            ("retrospective_series", "series?until=365&method=retrospective"),
        ):
            anew, again = year.asked(question)
            figures |= {f"3_{name}_uncached_ms": 1e3 * anew, f"3_{name}_cached_ms": 1e3 * again}
        figures |= one_network_asks(year)
    with Served.running(answers=4, periods=1024) as long:
        windows = [f"windows?width={width}&until=1024" for width in WINDOWS]
        figures["3_eight_online_window_series_s"] = sum(map(long.seconds, windows))
    return figures


def one_network_asks(year: "Served") -> dict[str, float | None]:
    """One network asks for all that there is, as fast as it is answered; others open the page or ask another thing."""
    stop = Event()

    def ask(question: str, network: int) -> httpx.Response:
        return httpx.get(year.url + question, headers={"x-forwarded-for": f"192.0.{network}.1"}, timeout=100)

    def ask_for_all(first: int) -> None:
        questions = itertools.product(range(365, 0, -1), ("online", "retrospective", "smoothed"))
        for until, method in itertools.islice(questions, first, None, GREEDY):
            if stop.is_set():
                return
            ask(f"series?until={until}&method={method}&covariance=true", 0)

    with ThreadPoolExecutor(GREEDY) as greedy:
        for first in range(GREEDY):
            greedy.submit(ask_for_all, first)
        answers = []
        for network in range(1, READERS + 1):
            answers.append(ask("series?confidence=0.95" if network % 2 else "histogram", network))
            time.sleep(0.2)
        stop.set()
    return {
        "10_readers_asked": len(answers),
        "10_readers_refused": sum(answer.status_code != 200 for answer in answers),
        "10_slowest_ms": 1e3 * max(answer.elapsed.total_seconds() for answer in answers),
    }


class Served:
    """A server whose store shows a whole survey of a hierarchy that everybody reports, some of them silent at times."""

    def __init__(self, store: Store, answers: int, periods: int) -> None:
        widths = [2**layer for layer in range(9) if 2**layer <= periods]
        randomizer = SignedSubset(MutationSpace(answers), Odds(20, 1))
        self.survey = Survey.at_cost(
            question="What do you do?",
            answers=tuple(f"answer {number}" for number in range(answers)),
            calendar=Calendar(1_600_000_000, 86_400, periods),
            constraint=AtMost(3),
            plan=ReleasePlan((Group(tuple(Track(width, randomizer, 0, periods) for width in widths)),)),
            skew=60,
            spread=3600,
            grace=86_400,
            minimum=100,
        )
        self._store, self._revision = store, 0
        self._generator = np.random.default_rng(SEED)
        self._lots = self._all_lots(randomizer)
        with store.transaction() as writing:
            writing.add_survey(self.survey.id, self.survey.signed_by(AUTHORITY), public=True)
        self._show(self._lots)
        self.path = survey_path(self.survey.id.hex()) + "/"

    @classmethod
    @contextmanager
    def running(cls, answers: int, periods: int) -> "Iterator[Served]":
        """One with a server of its own, as long as the context lasts."""
        with tempfile.TemporaryDirectory() as folder:
            store = Store.open(Path(folder) / "server.db")
            served = cls(store, answers, periods)
            with RunningServer(Path(folder), "--proxy", "127.0.0.1", "--rate", "0") as served.server:
                served.url = served.server.url + served.path
                yield served
            store.close()

    server: RunningServer
    url: str

    def seconds(self, question: str) -> float:
        """Seconds for an answer, on a connection that is kept."""
        began = time.perf_counter()
        self.server.http.get(self.path + question).raise_for_status()
        return time.perf_counter() - began

    def asked(self, question: str) -> tuple[float, float]:
        """Median seconds for an answer after a new snapshot of the last closing, and for the same answer again."""
        self.seconds(question)
        anew, again = [], []
        last = {key: lot for key, lot in self._lots.items() if key[0] == self.survey.calendar.periods}
        for _ in range(TIMES):
            self._show(last)
            anew.append(self.seconds(question))
            again += [self.seconds(question) for _ in range(TIMES)]
        return statistics.median(anew), statistics.median(again)

    def _show(self, lots: dict[StratumKey, StratumCounts]) -> None:
        self._revision += 1
        periods = self.survey.calendar.periods
        with self._store.transaction() as writing:
            looked = SnapshotProgress(self._revision, periods - 1, periods, 0)
            writing.put_snapshots(self.survey.id, looked, lots)

    def _all_lots(self, randomizer: SignedSubset) -> dict[StratumKey, StratumCounts]:
        counterpart = counterpart_of(randomizer)
        heard = REPORTS - self._generator.integers(0, REPORTS // 20, self.survey.calendar.periods + 1)
        lots: dict[StratumKey, StratumCounts] = {}
        for period in range(1, self.survey.calendar.periods + 1):
            new = REPORTS if period == 1 else 0
            here = REPORTS if period == 1 else int(heard[period])
            lots[period, 0, StratumNumber(0)] = StratumCounts(Attendance(here, new, 0))
        for number, track in enumerate(self.survey.plan.tracks):
            for at in track.node_numbers():
                lot = lots[track.node(at).end, 0, StratumNumber(0)]
                symbols = self._generator.integers(0, randomizer.symbols, lot.attendance.heard).astype(np.uint64)
                lot.nodes[TrackNumber(number), NodeNumber(at)] = counterpart.tally(symbols)
        return lots
