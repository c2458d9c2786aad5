"""Measure 7: ten minutes at two thirds of what a server keeps up with, fold included: memory, latencies, open files.

What it keeps up with is measured first: so many uploads in so many seconds, the time to fold them all included. Readers
ask meanwhile.
"""

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from threading import Event, Thread

import httpx
from changeling_aggregator.testing.killing import prepared_log
from changeling_aggregator.testing.serving import ADMIN, RunningServer, offspring
from changeling_protocol.wire import HISTOGRAM, KEYS, READY, STATUS, survey_path

from .server_world import bodies, folded, kept_bodies, loaded

MINUTES, MINUTE_SECONDS = 10, 60.0
UPLOADS = 5_000
"""Different uploads a minute; who sends goes through them again and again."""
PROBE_SECONDS = 10.0
SHARE = 2 / 3
ENDS = 3
"""The minutes at the beginning that are compared with those at the end."""
MIB = 2**20


def measure() -> dict[str, float | None]:
    with tempfile.TemporaryDirectory() as place:
        log = prepared_log(Path(place))
        files = [
            kept_bodies(Path(place) / f"bodies-{minute}", bodies(log.survey, log.key, UPLOADS, 1))
            for minute in range(MINUTES)
        ]
        log.store.close()
        with RunningServer(Path(place)) as server:
            path = survey_path(log.survey.id.hex())
            most = _kept_up_with(server, files[0], path)
            open_files = _open_files(server.process.pid)
            minutes, watch = [], _Watch(server, path)
            for file in files:
                minutes.append(loaded(server.port, file, MINUTE_SECONDS, most * SHARE) | watch.since())
            watch.stop()
            behind = folded(server, path)
            lost = _open_files(server.process.pid) - open_files
    figures: dict[str, float | None] = {
        "7_seconds": MINUTES * MINUTE_SECONDS,
        "7_kept_up_with_requests": most,
        "7_requests": median(each["rate"] for each in minutes),
        "7_turned_away": sum(each["other"] for each in minutes),
        "7_readers_asked": watch.asked,
        "7_readers_failed": watch.failed,
        "7_files_lost": lost,
        "7_seconds_behind": behind,
        "7_most_unfolded": max(each["waiting"] for each in minutes),
    }
    for name, key, scale in (("p50_ms", "p50", 1000.0), ("p99_ms", "p99", 1000.0), ("mebibytes", "memory", 1.0)):
        figures[f"7_{name}_first"] = scale * median(each[key] for each in minutes[:ENDS])
        figures[f"7_{name}_last"] = scale * median(each[key] for each in minutes[-ENDS:])
    return figures


class _Watch:
    """Looks at a server under load each second: its memory, the requests that wait, and the answers to readers."""

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
                self._memory.append(sum(map(_resident, _processes(self._server.process.pid))) / MIB)
                for path in (KEYS, READY, self._path + HISTOGRAM, self._path + STATUS):
                    answer = http.get(path, headers=ADMIN)
                    self.asked += 1
                    self.failed += answer.status_code not in {200, 409}  # nothing may be shown yet
                self._waiting.append(answer.json()["unfolded_requests"])


def _kept_up_with(server: RunningServer, file: Path, path: str) -> float:
    """Requests a second, from the first to when all are folded."""
    loaded(server.port, file, 2.0)
    folded(server, path)
    began = time.monotonic()
    requests = loaded(server.port, file, PROBE_SECONDS)["requests"]
    folded(server, path)
    return requests / (time.monotonic() - began)


def _processes(server: int) -> list[int]:
    return [server, *offspring(server)]


def _resident(process: int) -> int:
    """Bytes of memory that no other process shares, as far as the system tells; 0 where it has ended."""
    with suppress(OSError):
        _, pages, shared, *_ = Path(f"/proc/{process}/statm").read_text().split()
        return (int(pages) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _open_files(server: int) -> int:
    """The files that stay open: the fewest of many looks, once idle connections are closed."""
    time.sleep(15)
    looks = []
    for _ in range(20):
        looks.append(sum(len(list(Path(f"/proc/{each}/fd").iterdir())) for each in _processes(server)))
        time.sleep(0.1)
    return min(looks)
