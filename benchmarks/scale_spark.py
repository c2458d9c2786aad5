"""Measures 3 and 6 of what is beyond one machine: the fold on Spark against the embedded one, and its memory.

A master and workers are processes of this machine. Times are processor seconds of everything that runs, drivers, Java
and Python; what a session and its first small fold take is the fixed cost, and is stated apart.
"""

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import log as ln
from pathlib import Path
from statistics import median
from typing import Any

from changeling_aggregator.fold import OpeningProcesses, fold
from changeling_aggregator.spark.folding import SparkFold
from changeling_aggregator.spark.session import Cluster
from changeling_aggregator.store import Store
from changeling_protocol.quantities import UnixSeconds
from sqlalchemy import select

from tests.spark.cluster import SparkCluster, cluster, offspring, seconds_of

from .scale_log import log_in_segments

MILLION = 10**6
SIZES = (1, 3, 10, 30)
"""Millions of reports."""
COMPARED = 10
"""Of these, what the embedded fold is compared with, and one worker."""
TIMES = 5


@dataclass(frozen=True)
class Taken:
    """What a fold took. memory: the most of a Java, and of a Python, process in MiB. spilled: bytes on the disks."""

    seconds: float
    wall: float
    tallies: list[tuple[Any, ...]]
    java: float = 0.0
    python: float = 0.0
    spilled: float = 0.0


def measure() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory() as place:
        folders = {size: Path(place) / str(size) for size in SIZES}
        for size, folder in folders.items():
            folder.mkdir()
            log_in_segments(folder, size * MILLION).store.close()
        embedded = median_of([_embedded(folders[COMPARED]) for _ in range(TIMES)])
        taken: dict[tuple[int, int], Taken] = {}
        for workers in (2, 1):
            with _session(Path(place) / f"cluster{workers}", workers) as (running, engine, fixed):
                for size in SIZES if workers == 2 else (COMPARED,):
                    taken[workers, size] = median_of([_on_spark(running, engine, folders[size]) for _ in range(TIMES)])
                if workers == 2:
                    figures["3_fixed_processor_seconds"] = fixed
    for size in SIZES:
        figures[f"3_processor_seconds_{size}_million"] = taken[2, size].seconds
        figures[f"6_most_python_mebibytes_{size}_million"] = taken[2, size].python
        figures[f"6_most_java_mebibytes_{size}_million"] = taken[2, size].java
        figures[f"6_spilled_mebibytes_{size}_million"] = taken[2, size].spilled
    figures["3_embedded_processor_seconds"] = embedded.seconds
    figures["3_over_embedded_processor"] = taken[2, COMPARED].seconds / embedded.seconds
    figures["3_over_embedded_time"] = taken[2, COMPARED].wall / embedded.wall
    figures["3_same_tallies"] = float(embedded.tallies == taken[2, COMPARED].tallies == taken[1, COMPARED].tallies)
    figures["3_exponent"] = exponent({size: taken[2, size].seconds for size in SIZES})
    figures["3_two_workers_over_one"] = taken[2, COMPARED].seconds / taken[1, COMPARED].seconds
    return figures


def exponent(seconds: dict[int, float]) -> float:
    """The slope of a line through the logarithms of sizes and times."""
    points = [(ln(size), ln(time_)) for size, time_ in seconds.items()]
    x, y = (sum(each) / len(points) for each in zip(*points, strict=True))
    slope: float = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    return slope


def median_of(taken: list[Taken]) -> Taken:
    """The times' medians, the most of memory."""
    return Taken(
        median(each.seconds for each in taken),
        median(each.wall for each in taken),
        taken[0].tallies,
        max(each.java for each in taken),
        max(each.python for each in taken),
        max(each.spilled for each in taken),
    )


def _processor_seconds() -> float:
    """Of this process, and all that it started, ended or not."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    others: float = sum(map(seconds_of, offspring(os.getpid())))
    own: float = sum(each.ru_utime + each.ru_stime for each in used)
    return others + own


@contextmanager
def _copied(folder: Path) -> Iterator[Store]:
    """A copy of the store: its segments are never changed."""
    copy = folder / "copy"
    copy.mkdir()
    shutil.copy(folder / "server.db", copy)
    store = Store.open(copy / "server.db")
    yield store
    store.close()
    shutil.rmtree(copy)


def _embedded(folder: Path) -> Taken:
    with _copied(folder) as store:
        begin, used = time.perf_counter(), _processor_seconds()
        fold(store, UnixSeconds(time.time()), closing=False, open_=OpeningProcesses())
        return Taken(_processor_seconds() - used, time.perf_counter() - begin, _tallies(store))


def _on_spark(running: SparkCluster, engine: SparkFold, folder: Path) -> Taken:
    with _copied(folder) as store:
        engine.turn_to(store)
        begin, used = time.perf_counter(), _processor_seconds()
        engine.fold(UnixSeconds(time.time()), closing=False)
        wall, seconds = time.perf_counter() - begin, _processor_seconds() - used
        java, python = running.most_mebibytes()
        return Taken(seconds, wall, _tallies(store), java, python, running.written_mebibytes())


@contextmanager
def _session(place: Path, workers: int) -> Iterator[tuple[SparkCluster, SparkFold, float]]:
    """A cluster of two cores in all, and a session on it that has folded a little; and what that took."""
    with cluster(place, workers, cores=2 // workers) as running, tempfile.TemporaryDirectory() as folder:
        log = log_in_segments(Path(folder), 64)
        shared = place / "shared"
        shared.mkdir()
        used = _processor_seconds()
        with closing(SparkFold(log.store, Cluster(running.master), str(shared))) as engine:
            engine.await_start()
            engine.fold(UnixSeconds(time.time()), closing=False)
            yield running, engine, _processor_seconds() - used
        log.store.close()


def _tallies(store: Store) -> list[tuple[Any, ...]]:
    from changeling_aggregator.store.schema import attendance, refusals, tallies

    with store.reading() as connection:
        return [tuple(row) for table in (tallies, attendance, refusals) for row in connection.execute(select(table))]
