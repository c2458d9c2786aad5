"""Measures 3 and 10 of a server: how long readers wait for results, anew and again, and while one network asks for all.

Uncached is the first answer after a new snapshot: the server reads from its store what has changed, decodes it, and
solves. Through the application in this process, without a socket; measure 10 asks a real server.
"""

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import numpy as np
from changeling_aggregator.server import ServerSettings, Service, make_app
from changeling_aggregator.store import SnapshotProgress, Store, StratumCounts, StratumKey
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
    UnixSeconds,
)
from changeling_protocol.wire import survey_path
from changeling_statistics import Attendance, counterpart_of
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
    with tempfile.TemporaryDirectory() as folder:
        year = Served(Path(folder) / "year.db", answers=6, periods=365)
        for name, question in (
            ("histogram", "histogram?period=365"),
            ("series", "series?until=365"),
            ("retrospective_series", "series?until=365&method=retrospective"),
        ):
            anew, again = year.asked(question)
            figures[f"3_{name}_uncached_ms"] = 1e3 * anew
            figures[f"3_{name}_cached_ms"] = 1e3 * again
        year.close()
        long = Served(Path(folder) / "long.db", answers=4, periods=1024)
        long.changes()
        windows = [f"windows?width={width}&until=1024" for width in WINDOWS]
        figures["3_eight_online_window_series_s"] = sum(long.answered(*windows))
        long.close()
    return figures | one_network_asks()


def one_network_asks() -> dict[str, float | None]:
    """One network asks for all that there is, as fast as it is answered; others open the page or ask another thing."""
    stop = Event()
    with tempfile.TemporaryDirectory() as folder:
        year = Served(Path(folder) / "server.db", answers=6, periods=365)
        path = survey_path(year.survey.id.hex())
        year.close()
        with RunningServer(Path(folder), "--proxy", "127.0.0.1", "--rate", "0") as server:

            def ask(question: str, network: int) -> httpx.Response:
                address = {"x-forwarded-for": f"192.0.{network}.1"}
                return httpx.get(f"{server.url}{path}/{question}", headers=address, timeout=100)

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
                    page = network % 2
                    answers.append(ask("series?method=online&confidence=0.95" if page else "histogram", network))
                    time.sleep(0.2)
                stop.set()
    return {
        "10_readers_asked": len(answers),
        "10_readers_refused": sum(answer.status_code != 200 for answer in answers),
        "10_slowest_ms": 1e3 * max(answer.elapsed.total_seconds() for answer in answers),
    }


class Served:
    """A server whose store shows a whole survey of a hierarchy that everybody reports, some of them silent at times."""

    def __init__(self, path: Path, answers: int, periods: int) -> None:
        widths = [2**layer for layer in range(9) if 2**layer <= periods]
        randomizer = SignedSubset(MutationSpace(answers), Odds(20, 1), spoken=1)  # type: ignore[arg-type]
        self.survey = Survey.at_cost(
            question="What do you do?",
            answers=tuple(f"answer {number}" for number in range(answers)),
            calendar=Calendar(1_700_000_000, 86_400, periods),
            constraint=AtMost(3),
            plan=ReleasePlan((Group(tuple(Track(width, randomizer, 0, periods) for width in widths)),)),
            skew=60,
            spread=3600,
            grace=86_400,
            minimum=100,
        )
        self._store = Store.open(path)
        self._generator = np.random.default_rng(SEED)
        authority = Ed25519PrivateKey.generate()
        with self._store.transaction() as writing:
            writing.add_survey(self.survey.id, self.survey.signed_by(authority), public=True)
        self._lots = self._all_lots(randomizer)
        self._revision = 0
        self._put(self._lots)
        now = UnixSeconds(self.survey.calendar.time(periods) + 10**6)
        self._service = Service(self._store, ServerSettings([authority.public_key().public_bytes_raw()], lambda: now))
        self._app = make_app(self._service)
        self._loop = asyncio.new_event_loop()

    def changes(self) -> None:
        """The last closing is shown anew."""
        last = max(period for period, _, _ in self._lots)
        self._put({key: lot for key, lot in self._lots.items() if key[0] == last})

    def answered(self, *questions: str) -> list[float]:
        """Seconds for the answer to each question, one after the other. Raises RuntimeError for any but an answer."""
        return self._loop.run_until_complete(self._ask(questions))

    def asked(self, question: str) -> tuple[float, float]:
        """Median seconds for an answer after a new snapshot, and for the same answer again."""
        self.answered(question)
        anew, again = [], []
        for _ in range(TIMES):
            self.changes()
            first, *others = self.answered(*[question] * (1 + TIMES))
            anew.append(first)
            again += others
        return statistics.median(anew), statistics.median(again)

    def close(self) -> None:
        """Ends it."""
        self._loop.close()
        self._service.estimating.close()
        self._store.close()

    async def _ask(self, questions: Sequence[str]) -> list[float]:
        """No client of HTTP is in between: one takes as long as a server that has the answer."""
        seconds = []
        for question in questions:
            path, _, query = f"{survey_path(self.survey.id.hex())}/{question}".partition("?")
            scope: dict[str, Any] = {
                "type": "http",
                "http_version": "1.1",
                "method": "GET",
                "scheme": "http",
                "path": path,
            }
            scope |= {"query_string": query.encode(), "headers": [(b"host", b"here")]}
            statuses: list[int] = []
            asked = asyncio.Queue[dict[str, object]]()
            asked.put_nowait({"type": "http.request", "body": b"", "more_body": False})

            async def send(message: MutableMapping[str, Any], statuses: list[int] = statuses) -> None:
                statuses.append(message.get("status", 200))

            began = time.perf_counter()
            await self._app(scope, asked.get, send)
            seconds.append(time.perf_counter() - began)
            if set(statuses) != {200}:
                raise RuntimeError(f"{question} was answered with {statuses}")
        return seconds

    def _put(self, lots: dict[StratumKey, StratumCounts]) -> None:
        self._revision += 1
        periods = self.survey.calendar.periods
        with self._store.transaction() as writing:
            held = [] if self._revision == 1 else list(lots)
            writing.put_snapshots(self.survey.id, self._revision, lots, held)
            writing.put_looked(self.survey.id, SnapshotProgress(self._revision, periods - 1, periods, 0))

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
