"""Ten minutes at two thirds of what a server keeps up with, fold included: memory, latencies, open files, tallies.

What it keeps up with is measured first: so many uploads in so many seconds, the time to fold them all included. Readers
ask meanwhile. In the end every upload counts once, and folding the log again gives the same.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from threading import Event, Thread

import httpx
from changeling_aggregator.fold import check
from changeling_aggregator.opening import OpeningProcesses
from changeling_aggregator.testing.killing import prepared_log
from changeling_aggregator.testing.serving import ADMIN, RunningServer, SurveyLog
from changeling_protocol import Node, seal
from changeling_protocol.wire import HISTOGRAM, KEYS, READY, STATUS, encode_upload_request, survey_path

from .server_world import folded, kept_bodies, loaded, plaintext

MINUTES = 10
MINUTE_SECONDS = 60.0
UPLOADS = 5_000
"""So many different ones a minute; who sends goes through them again and again."""
PROBE_SECONDS = 10.0
SHARE = 2 / 3
ENDS = 3
"""So many minutes at the beginning are compared with so many at the end."""
MIB = 2**20


def measure() -> dict[str, float | None]:
    with tempfile.TemporaryDirectory() as place:
        log = prepared_log(Path(place))
        files = [kept_bodies(Path(place) / f"bodies-{minute}", _bodies(log)) for minute in range(MINUTES)]
        with RunningServer(Path(place)) as server:
            path = survey_path(log.survey.id.hex())
            most = _kept_up_with(server, files[0], path)
            open_files = _open_files(server.process.pid)
            minutes, seen = [], _Seen(server, path)
            for file in files:
                minutes.append(loaded(server.port, file, MINUTE_SECONDS, most * SHARE) | seen.since())
            seen.stop()
            behind = folded(server, path)
            lost = _open_files(server.process.pid) - open_files
        figures = _compared(minutes) | _counted(log, minutes)
        log.store.close()
    return {
        "7_seconds": MINUTES * MINUTE_SECONDS,
        "7_kept_up_with_requests": most,
        "7_requests": median(each["rate"] for each in minutes),
        "7_turned_away": sum(each["other"] for each in minutes),
        "7_readers_asked": seen.asked,
        "7_readers_failed": seen.failed,
        "7_files_lost": lost,
        "7_seconds_behind": behind,
        **figures,
    }


class _Seen:
    """What is seen of a server under load: memory and waiting requests each second; and what readers get."""

    def __init__(self, server: RunningServer, path: str) -> None:
        self._server, self._path = server, path
        self.asked = self.failed = 0
        self._memory: list[float] = []
        self._waiting: list[float] = []
        self._stopping = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def since(self) -> dict[str, float]:
        """The medians since this was asked last; MiB of all the server's processes."""
        memory, waiting = self._memory, self._waiting
        self._memory, self._waiting = [], []
        return {"memory": median(memory), "waiting": max(waiting)}

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx.Client(base_url=self._server.url, timeout=30) as http:
            while not self._stopping.wait(1):
                self._memory.append(sum(map(_resident, _tree(self._server.process.pid))) / MIB)
                for path in (KEYS, READY, self._path + HISTOGRAM, self._path + STATUS):
                    answer = http.get(path, headers=ADMIN)
                    self.asked += 1
                    self.failed += answer.status_code not in {200, 409}  # nothing may be shown yet
                self._waiting.append(answer.json()["unfolded_requests"])


def _bodies(log: SurveyLog) -> list[bytes]:
    periods = log.survey.calendar.periods
    span = Node(periods - 1, periods)
    return [encode_upload_request([seal(plaintext(log.survey, span), log.survey.id, log.key)]) for _ in range(UPLOADS)]


def _kept_up_with(server: RunningServer, file: Path, path: str) -> float:
    """Requests a second, from the first to when all are folded."""
    loaded(server.port, file, 2.0)
    folded(server, path)
    began = time.monotonic()
    requests = loaded(server.port, file, PROBE_SECONDS)["requests"]
    folded(server, path)
    return requests / (time.monotonic() - began)


def _compared(minutes: list[dict[str, float]]) -> dict[str, float | None]:
    """The first minutes beside the last."""
    figures: dict[str, float | None] = {}
    for name, key, scale in (("p50_ms", "p50", 1000.0), ("p99_ms", "p99", 1000.0), ("mebibytes", "memory", 1.0)):
        figures[f"7_{name}_first"] = scale * median(each[key] for each in minutes[:ENDS])
        figures[f"7_{name}_last"] = scale * median(each[key] for each in minutes[-ENDS:])
    return figures | {"7_most_unfolded": max(each["waiting"] for each in minutes)}


def _counted(log: SurveyLog, minutes: list[dict[str, float]]) -> dict[str, float | None]:
    """Every upload has one closing and one report, however often it was sent."""
    sent = sum(min(UPLOADS, each["requests"]) for each in minutes)
    with log.store.view() as view:
        (tally,) = view.tallies(log.survey.id).values()
    return {
        "7_uploads": sent,
        "7_reports_counted": tally.reports,
        "7_differences_folded_again": len(check(log.store, OpeningProcesses(os.cpu_count() or 1))),
    }


def _tree(process: int) -> Iterator[int]:
    """A process and all below it."""
    yield process
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def _resident(process: int) -> int:
    """Bytes of memory that no other process shares, as far as the system tells; 0 where it has ended."""
    with suppress(OSError):
        _, pages, shared, *_ = Path(f"/proc/{process}/statm").read_text().split()
        return (int(pages) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _open_files(process: int) -> int:
    """What is open for good: the least of many looks, once idle connections are closed."""
    time.sleep(15)
    looks = []
    for _ in range(20):
        looks.append(sum(len(list(Path(f"/proc/{each}/fd").iterdir())) for each in _tree(process)))
        time.sleep(0.1)
    return min(looks)
