"""Measures 1 and 2 of what is beyond one machine: Spark comes to the same, and what kills in mid-fold, repeated uploads
and two folds at once change.

A log with repeated, late, early, malformed and foreign uploads is folded on a real cluster, by jobs and by a query of
Structured Streaming; whatever happens meanwhile, tallies, attendance and refusals must be those of the embedded fold,
row by row.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from changeling_aggregator.fold import fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing import AFTER, counted_rows, prepared
from changeling_protocol import UnixSeconds
from changeling_spark.errors import SparkTrouble
from changeling_spark.folding import SparkFold
from changeling_spark.session import ClusterSettings
from changeling_spark.testing import SparkCluster, cluster

DRIVERS = 2
WORKERS = 2
"""So many times each is killed, a little later each time."""
STEP_SECONDS = 0.4
Found = dict[str, list[Any]]


def measure() -> dict[str, float | None]:
    """How many kills, and folds at once, there were; and after how many of them the tallies were other ones."""
    with tempfile.TemporaryDirectory() as place, cluster(Path(place) / "cluster") as running:
        folder = Path(place)
        whole, expected = _prepared(folder)
        undisturbed, *workers = _workers_killed(running, whole, folder)
        drivers, after_drivers = _drivers_killed(running, whole, folder)
        queries, after_queries = _queries_killed(running, whole, folder)
    return {
        "1_spark_is_the_same": undisturbed == expected,
        "2_drivers_killed": drivers,
        "2_workers_killed": len(workers),
        "2_queries_killed": queries,
        "2_differences": sum(each != expected for each in (*workers, after_drivers, after_queries)),
    }


def _prepared(folder: Path) -> tuple[Path, Found]:
    """A store to copy, and what the embedded fold comes to."""
    store = Store.open(folder / "whole.db")
    log, streams = prepared(store)
    log.append_to(streams)
    store.close()
    shutil.copy(folder / "whole.db", folder / "embedded.db")
    store = Store.open(folder / "embedded.db")
    fold(store, UnixSeconds(AFTER), closing=False)
    found = counted_rows(store)
    store.close()
    return folder / "whole.db", found


@contextmanager
def _copied(whole: Path, folder: Path) -> Iterator[tuple[Path, Path]]:
    """A copy of the store, and a shared folder."""
    with tempfile.TemporaryDirectory(dir=folder) as copy:
        (Path(copy) / "shared").mkdir()
        yield Path(shutil.copy(whole, Path(copy) / "server.db")), Path(copy) / "shared"


def _command(running: SparkCluster, store: Path, shared: Path) -> list[str]:
    command = [sys.executable, "-m", "changeling_commands", "fold", "--store", str(store), "--engine", "spark"]
    return [*command, "--master", running.master, "--shared", str(shared)]


def _started(command: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603


def _drivers_killed(running: SparkCluster, whole: Path, folder: Path) -> tuple[int, Found]:
    """Drivers are killed one after the other, each a little later after its first task has begun; then two are not, of
    which one stands by."""
    killed = 0
    with _copied(whole, folder) as (store, shared):
        for at in range(DRIVERS):
            with _started(_command(running, store, shared)) as driver:
                _until(lambda: driver.poll() is not None or any(map(running.python_runs, range(2))))
                time.sleep(at * STEP_SECONDS)
                killed += driver.poll() is None
                running.kill_tree(driver.pid)
        for process in [_started(_command(running, store, shared)) for _ in range(2)]:
            process.wait()
        return killed, _in(store)


def _workers_killed(running: SparkCluster, whole: Path, folder: Path) -> Iterator[Found]:
    """What a fold comes to; then, by turns, where a worker is killed in mid-fold, with its executor. Another takes its
    place after."""
    with (
        closing(Store.open(whole)) as empty,
        closing(SparkFold(empty, ClusterSettings(running.master), str(folder))) as engine,
    ):
        engine.await_start()
        for at in range(WORKERS + 1):
            with _copied(whole, folder) as (path, _), closing(Store.open(path)) as store:
                engine.turn_to(store)
                folding = threading.Thread(target=_fold, args=(engine,))
                folding.start()
                if at:
                    _until(lambda: running.python_runs(at % 2) or not folding.is_alive())  # noqa: B023
                    time.sleep(at * STEP_SECONDS / 4)
                    running.kill_worker(at % 2)
                folding.join()
                if at:
                    running.restart_worker(at % 2)
                    _fold(engine)
                yield counted_rows(store)


def _queries_killed(running: SparkCluster, whole: Path, folder: Path) -> tuple[int, Found]:
    """A query's driver is killed before the store has the batch, then after, before Spark knows; then it is not."""
    killed = 0
    with _copied(whole, folder) as (store, shared):
        words = [str(store), running.master, str(shared), str(shared.parent / "checkpoint")]
        for where in ("before", "after", "never"):
            command = [sys.executable, "-m", "tests.spark.killed_driver", *words, where]
            killed += subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL  # noqa: S603
        return killed, _in(store)


def _fold(engine: SparkFold) -> None:
    with suppress(SparkTrouble):
        engine.fold(UnixSeconds(AFTER), closing=False)


def _in(path: Path) -> dict[str, list[Any]]:
    with closing(Store.open(path)) as store:
        return counted_rows(store)


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("the fold on Spark has not begun")
        time.sleep(0.02)
