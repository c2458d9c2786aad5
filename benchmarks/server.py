"""Measures 1, 2, 4, 5 and 7 to 9 of a server: appends, the fold, kills, ten minutes of load, a rude network.

Servers are processes on loopback, as operators run them, on SQLite or PostgreSQL; what sends to them is one as well.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import NamedTuple

import httpx
import numpy as np
from changeling_aggregator.fold import ColumnLayout, Opened, SeenIds, Sheaf, add_ids, fold, open_requests, upload_number
from changeling_aggregator.testing import tallies_in
from changeling_aggregator.testing.services import PostgreSQL, small_bucket
from changeling_aggregator.testing.serving import (
    ADMIN,
    RunningServer,
    SurveyLog,
    at_once,
    killed,
    offspring,
    prepared_log,
    restarted,
    sealed_upload,
    terminated,
)
from changeling_protocol import HEAD_BYTES, Survey, UnixSeconds
from changeling_protocol.wire import (
    HISTOGRAM,
    KEYS,
    MOST_ENVELOPES_TAKEN,
    READY,
    STATUS,
    UPLOADS,
    encode_upload_request,
    survey_path,
)
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from .scale import processor_seconds
from .server_load import write_bodies


@contextmanager
def begun(periods: int = 8, place: str | None = None) -> Iterator[tuple[Path, SurveyLog]]:
    """A folder, and a new store that holds a survey and a key: there, or at a place of its own."""
    with TemporaryDirectory() as name:
        log = prepared_log(Path(name), periods, place)
        try:
            yield Path(name), log
        finally:
            log.store.close()


def bodies(file: Path, log: SurveyLog, count: int, envelopes: int) -> Path:
    """Writes requests of so many envelopes each, all different, about the survey's last period, for `loaded`."""
    sealed = [sealed_upload(log, os.urandom(16)) for _ in range(min(count * envelopes, 4000))]
    write_bodies(
        file,
        [
            encode_upload_request([sealed[(at * envelopes + i) % len(sealed)] for i in range(envelopes)])
            for at in range(count)
        ],
    )
    return file


@contextmanager
def stores() -> Iterator[Mapping[str, Callable[[], str | None]]]:
    """By the name of a database, the place of a new store in it, None for a folder; PostgreSQL runs meanwhile."""
    with PostgreSQL() as postgresql:
        yield {"sqlite": lambda: None, "postgresql": postgresql.new}


def loaded(port: int, file: Path, seconds: float, rate: float = 0) -> dict[str, float]:
    """The findings of benchmarks.server_load, on 64 connections."""
    words = map(str, (port, file, seconds, 64, rate))
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "benchmarks.server_load", *words], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def folded(server: RunningServer, survey: Survey) -> float:
    """Waits until all is folded; returns for how many seconds."""
    began, path = time.monotonic(), survey_path(survey.id.hex()) + STATUS
    while server.http.get(path, headers=ADMIN).raise_for_status().json()["unfolded_requests"]:
        time.sleep(0.05)
    return time.monotonic() - began


# 1: appends


ROUNDS, ROUNDS_WITH_MILLIONS, ROUND_SECONDS = 5, 3, 2.0
SIZES = {"single": (4000, 1), "thousand": (64, 1000)}
"""How many bodies differ, and the envelopes in each."""


class Running(NamedTuple):
    """A server that takes load: where it listens, and the number of its process."""

    port: int
    pid: int

    def under_load(self, file: Path, rate: float) -> dict[str, float]:
        """The findings of `loaded`, with the processor time that a request took the process itself, not its fold."""
        before = processor_seconds(self.pid)
        found = loaded(self.port, file, ROUND_SECONDS, rate)
        return {**found, "cpu": (processor_seconds(self.pid) - before) / found["requests"]}


def appending() -> dict[str, float | None]:
    """Measure 1: durable appends through HTTP beside an endpoint that only reads the body, the fold at work meanwhile.

    On both databases, and one envelope at a time into segments in a folder and in an object store of this process. Each
    round loads both servers one after the other; ratios are medians of the rounds'. Half load is measured twice: where
    the fold has opened what came before, and where it has millions of envelopes to open.
    """
    figures: dict[str, float | None] = {}
    program = [sys.executable, "-m", "benchmarks.server_load"]
    with (
        subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process,  # noqa: S603
        stores() as new,
        small_bucket() as bucket,
    ):
        assert process.stdout  # noqa: S101
        empty = Running(int(process.stdout.readline()), process.pid)
        try:
            for name, place, segments in (
                *((name, place(), "") for name, place in new.items()),
                ("folder", None, "{}/segments"),
                ("bucket", None, bucket.place),
            ):
                figures |= {f"1_{name}_{what}": figure for what, figure in _appended(empty, place, segments).items()}
        finally:
            process.terminate()
    return figures


def _appended(empty: Running, place: str | None, segments: str) -> dict[str, float]:
    """The figures of one store. segments: where its log lies, if elsewhere; then of one envelope at a time alone."""
    with begun(place=place) as (folder, log):
        files = {name: bodies(folder / name, log, *size) for name, size in SIZES.items()}
        options = ("--segments", segments.format(folder)) if segments else ()
        with RunningServer(folder, *options, store=place) as server:
            both = empty, Running(server.port, server.process.pid)
            figures = _beside(both, "single", files["single"])
            if segments:
                return figures
            half = tuple(figures[f"single_{which}requests"] / 2 for which in ("empty_", ""))
            folded(server, log.survey)
            figures |= _waits(both, "half_load", files["single"], half, ROUNDS)
            figures |= _beside(both, "thousand", files["thousand"])
            name = "half_load_and_millions_to_open"
            return figures | _waits(both, name, files["single"], half, ROUNDS_WITH_MILLIONS)


Rounds = list[list[dict[str, float]]]


def _rounds(both: Sequence[Running], file: Path, rates: Sequence[float], count: int) -> Rounds:
    return [[each.under_load(file, rate) for each, rate in zip(both, rates, strict=True)] for _ in range(count)]


def _beside(both: Sequence[Running], name: str, file: Path) -> dict[str, float]:
    """Both under as much load as they take."""
    rounds = _rounds(both, file, (0, 0), ROUNDS)
    figures: dict[str, float] = {}
    for which, of in ((0, "empty_"), (1, "")):
        figures[f"{name}_{of}requests"] = median(each[which]["rate"] for each in rounds)
        figures[f"{name}_{of}cpu_us"] = 1e6 * median(each[which]["cpu"] for each in rounds)
    figures[f"{name}_ratio"] = median(mine["rate"] / idle["rate"] for idle, mine in rounds)
    figures[f"{name}_cpu_ratio"] = median(idle["cpu"] / mine["cpu"] for idle, mine in rounds)
    figures[f"{name}_turned_away"] = sum(mine["other"] for _, mine in rounds)
    return figures


def _waits(both: Sequence[Running], name: str, file: Path, rates: Sequence[float], count: int) -> dict[str, float]:
    """The 99th percentiles under these loads, in milliseconds."""
    rounds = _rounds(both, file, rates, count)
    return {
        f"{name}_{of}p99_ms": 1000 * median(each[which]["p99"] for each in rounds)
        for which, of in ((0, "empty_"), (1, ""))
    }


# 2: the fold


SEEN, FOLD_PERIODS, UPLOADS_A_BATCH, BATCHES = 10**7, 64, 20_000, 8
"""Ids seen before; reports in all are the product of the others."""
OPENED, TURNS = 1000, 9


def folding() -> dict[str, float | None]:
    """Measure 2: how fast the fold drops duplicates and tallies, with ten million ids seen before; memory; and opening.

    What comes after opening is measured on columns as opening gives them: 64 closings an upload, each with an id of its
    own and a report. Opening is measured beside bare HPKE, the library's own, in processor seconds; medians of turns.
    """
    with begun() as (_, log), log.store.view() as view:
        sealed = [sealed_upload(log, os.urandom(16)) for _ in range(OPENED)]
        surveys, keys = {log.survey.id: log.survey}, view.private_keys()
    requests = [encode_upload_request([each]) for each in sealed]
    turns = [
        (_processor(_bare, keys[log.key.id], sealed), _processor(open_requests, requests, surveys, keys))
        for _ in range(TURNS)
    ]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # whose memory is its own
        counted = pool.submit(_counting).result()
    return {"2_opening_processor_ratio": median(bare / ours for bare, ours in turns), **counted}


def _bare(private: X25519PrivateKey, sealed: Sequence[bytes]) -> None:
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
    for each in sealed:
        suite.decrypt(each[HEAD_BYTES:], private, info=each[:HEAD_BYTES])


def _processor(work: Callable[..., object], *arguments: object) -> float:
    begin = time.process_time()
    work(*arguments)
    return time.process_time() - begin


def _counting() -> dict[str, float | None]:
    """Reports a second after opening, and the most memory of the process, in MiB."""
    reports = BATCHES * UPLOADS_A_BATCH * FOLD_PERIODS
    with begun(FOLD_PERIODS) as (_, log):
        generator, seen = np.random.default_rng(1), SeenIds()
        for period in range(1, FOLD_PERIODS + 1):
            ids = np.sort(generator.integers(0, 2**63, (SEEN // FOLD_PERIODS, 2), np.uint64), axis=0).astype(">u8")
            with log.store.transaction() as writing:
                add_ids(writing, {(log.survey.id, period): ids.tobytes()})
        _count(log, [_opened(log.survey, BATCHES)], seen)
        wall, processor = _count(log, [_opened(log.survey, batch) for batch in range(BATCHES)], seen)
    return {
        "2_reports": reports / wall,
        "2_reports_a_processor_second": reports / processor,
        "2_most_mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _count(log: SurveyLog, batches: Sequence[Opened], seen: SeenIds) -> tuple[float, float]:
    """Folds batches that are open already; returns seconds, and processor seconds."""
    for _ in batches:
        log.append(time.time(), *([b""] * UPLOADS_A_BATCH))
    coming = iter(batches)
    begin, used = time.perf_counter(), time.process_time()
    fold(log.store, UnixSeconds(time.time()), UPLOADS_A_BATCH, closing=False, open_=lambda *_: next(coming), seen=seen)
    return time.perf_counter() - begin, time.process_time() - used


def _opened(survey: Survey, seed: int) -> Opened:
    generator, shape = np.random.default_rng(100 + seed), (UPLOADS_A_BATCH, FOLD_PERIODS)
    ids = generator.integers(0, 2**64, (shape[0], shape[1] * 2), np.uint64).view(np.uint8)
    standings, strata = np.ones(shape, np.uint8), np.zeros((shape[0], shape[1] * 2), np.uint8)
    closings = np.concatenate([ids, standings, strata], axis=1).tobytes()
    symbols = generator.integers(1, 6, shape, np.uint8).tobytes()
    numbers = [upload_number(request, 0) for request in range(shape[0])]
    return Opened(shape[0], {ColumnLayout(survey.id, 0, 0, shape[1]): Sheaf(numbers, [closings], [[symbols]])})


# 4 and 5: kills


KILLS = 300
"""On each store."""


def kills_on_sqlite() -> dict[str, float | None]:
    """Measure 4: SIGKILL of two servers on one store, and of their folds, under load.

    In the end every upload counts exactly once, and nothing else. Each store has a measure of its own, as one takes six
    minutes.
    """
    with TemporaryDirectory() as folder:
        return _named("4_sqlite_", killed(Path(folder), f"{folder}/server.db", KILLS))


def kills_on_postgresql() -> dict[str, float | None]:
    """Measure 4, likewise."""
    with PostgreSQL() as postgresql, TemporaryDirectory() as folder:
        return _named("4_postgresql_", killed(Path(folder), postgresql.new(), KILLS))


def restarts() -> dict[str, float | None]:
    """Measures 4 and 5: SIGTERM while a fold is behind, PostgreSQL restarted, two servers that are sent alike."""
    figures: dict[str, float | None] = {}
    with stores() as new:
        for name, place in new.items():
            with TemporaryDirectory() as folder:
                figures |= _named(f"4_{name}_sigterm_", terminated(Path(folder), place() or f"{folder}/server.db"))
    with PostgreSQL() as postgresql, TemporaryDirectory() as folder:
        figures |= _named("4_restart_", restarted(Path(folder), postgresql))
        return figures | _named("5_", at_once(Path(folder), postgresql.new()))


def _named(prefix: str, figures: Mapping[str, float]) -> dict[str, float | None]:
    return {prefix + what: figure for what, figure in figures.items()}


# 7: ten minutes


MINUTES, MINUTE_SECONDS, DIFFERENT, PROBE_SECONDS = 10, 60.0, 5_000, 10.0
"""DIFFERENT uploads a minute, which are sent again and again."""
SHARE, ENDS = 2 / 3, 3
"""Of what the server keeps up with; and the minutes at the beginning that are compared with those at the end."""


def soak() -> dict[str, float | None]:
    """Measure 7: two thirds of what a server keeps up with, fold included, for ten minutes, while readers ask.

    What it keeps up with is measured first: so many uploads in so many seconds, the time to fold them all included.
    """
    with begun() as (folder, log):
        files = [bodies(folder / f"bodies-{minute}", log, DIFFERENT, 1) for minute in range(MINUTES)]
        with RunningServer(folder) as server:
            loaded(server.port, files[0], 2.0)
            folded(server, log.survey)
            began = time.monotonic()
            requests = loaded(server.port, files[0], PROBE_SECONDS)["requests"]
            folded(server, log.survey)
            most = requests / (time.monotonic() - began)
            open_files = _open_files(server.process.pid)
            minutes, watch = [], _Watch(server, log.survey)
            for file in files:
                minutes.append(loaded(server.port, file, MINUTE_SECONDS, most * SHARE) | watch.since())
            watch.stop()
            behind = folded(server, log.survey)
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

    def __init__(self, server: RunningServer, survey: Survey) -> None:
        path = survey_path(survey.id.hex())
        self._server, self._asked = server, (KEYS, READY, path + HISTOGRAM, path + STATUS)
        self.asked = self.failed = 0
        self._memory: list[float] = []
        self._waiting: list[float] = []
        self._stopping = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def since(self) -> dict[str, float]:
        """The median memory of all the server's processes since this was asked last, in MiB, and the most requests."""
        memory, waiting = self._memory, self._waiting
        self._memory, self._waiting = [], []
        return {"memory": median(memory), "waiting": max(waiting)}

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        pid = self._server.process.pid
        with httpx.Client(base_url=self._server.url, timeout=30) as http:
            while not self._stopping.wait(1):
                self._memory.append(sum(map(_resident, (pid, *offspring(pid)))) / 2**20)
                for path in self._asked:
                    answer = http.get(path, headers=ADMIN)
                    self.asked += 1
                    self.failed += answer.status_code not in {200, 409}  # nothing may be shown yet
                self._waiting.append(answer.json()["unfolded_requests"])


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
        looks.append(sum(len(list(Path(f"/proc/{each}/fd").iterdir())) for each in (server, *offspring(server))))
        time.sleep(0.1)
    return min(looks)


# 8: from the command to a picture


FLEET, BANDS, MOST_SECONDS = 200, 30, 300.0
"""Devices; so many periods with bands are a picture."""


def first_look() -> dict[str, float | None]:
    """Measure 8: seconds until the page's address is printed, and until the page, which is there then, has bands.

    It begins with the third of three commands (clone, install, `changeling dev --fleet 200`).
    """
    with TemporaryDirectory() as folder:
        began = time.monotonic()
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-u", "-m", "changeling_commands", "dev", "--fleet", f"{FLEET}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TMPDIR": folder},
        )
        try:
            assert process.stdout  # noqa: S101
            url = next(line.split()[2] for line in process.stdout if line.startswith("Look at "))
            printed = time.monotonic() - began
            httpx.get(url).raise_for_status()
            bands = _until_bands(url, began)
        finally:
            process.terminate()
            process.communicate(timeout=30)
    return {"8_seconds_to_the_address": printed, "8_seconds_to_a_page_with_bands": bands}


def _until_bands(url: str, began: float) -> float | None:
    """Seconds from `began` until so many periods are estimated, each with a standard error of every answer."""
    (survey,) = httpx.get(f"{url}v1/surveys").json()["surveys"]
    while time.monotonic() - began < MOST_SECONDS:
        with suppress(httpx.HTTPError, KeyError, ValueError):
            series = httpx.get(f"{url}v1/surveys/{survey['id']}/series", timeout=20).json()["series"]
            if sum(all(error and error > 0 for error in each["standard_errors"] or [0]) for each in series) >= BANDS:
                return time.monotonic() - began
        time.sleep(0.2)
    return None


# 9: one network at its limit


HONEST, APART_SECONDS, MINUTE = 30, 1.0, 60.0
"""So many honest uploads, begun so far apart; who is not counted after a minute is not waited for."""
GREEDY = (MOST_ENVELOPES_TAKEN, 512, 32, 1)
"""The envelopes in bodies of the rude network's connections."""


def garbage() -> dict[str, float | None]:
    """Measure 9: one network sends all the garbage that it is let; seconds until honest uploads of others are counted,
    and the share that is within a minute; then while as many processes as there are processors compute."""
    idle = _garbage()
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        return {**idle, **{f"{figure}_on_a_busy_machine": number for figure, number in _garbage().items()}}
    finally:
        for each in others:
            each.kill()
            each.wait()


def _garbage() -> dict[str, float | None]:
    with begun() as (folder, log):
        honest = [encode_upload_request([sealed_upload(log, os.urandom(16))]) for _ in range(HONEST)]
        with RunningServer(folder, "--proxy", "127.0.0.1") as server, ThreadPoolExecutor(len(GREEDY)) as pool:
            stop = Event()
            rude = [pool.submit(_rude, server.url, log, most, stop) for most in GREEDY]
            waits = _counted(server.url, log, honest)
            stop.set()
            taken = sum(each.result() for each in rude)
    return {
        "9_garbage_envelopes_taken": taken,
        "9_honest_counted_in_a_minute": sum(wait <= MINUTE for wait in waits) / HONEST,
        "9_slowest_seconds_to_be_counted": max(waits),
    }


def _rude(url: str, log: SurveyLog, most: int, stop: Event) -> int:
    """Sends bodies of so many envelopes, each with a right head and no more; returns how many envelopes were taken.

    What is too early is sent again when the server says, so that its limit is used up.
    """
    head, taken = sealed_upload(log, os.urandom(16)), 0
    body = encode_upload_request([head[:-64] + os.urandom(64) for _ in range(most)])
    with httpx.Client(base_url=url, headers={"x-forwarded-for": "192.0.2.1"}, timeout=100) as http:
        while not stop.is_set():
            answer = http.post(UPLOADS, content=body)
            taken += most * (answer.status_code == 200)
            stop.wait(float(answer.headers.get("retry-after", 0)))
    return taken


def _counted(url: str, log: SurveyLog, honest: list[bytes]) -> list[float]:
    """Seconds until each upload is counted, in the order of the log, as seen every twentieth of a second."""
    sent, waits, began = list[float](), list[float](), time.monotonic()
    while len(waits) < len(honest) and time.monotonic() - began < len(honest) * APART_SECONDS + MINUTE:
        if len(sent) < len(honest) and time.monotonic() >= began + len(sent) * APART_SECONDS:
            address = {"x-forwarded-for": f"198.51.{len(sent)}.1"}
            sent.append(time.monotonic())
            httpx.post(url + UPLOADS, content=honest[len(sent) - 1], headers=address, timeout=100).raise_for_status()
        with log.store.view() as view:
            reports = sum(tally.reports for tally in tallies_in(view, log.survey).values())
        waits += [time.monotonic() - at for at in sent[len(waits) : reports]]
        time.sleep(0.05)
    return waits + [float("inf")] * (len(honest) - len(waits))
