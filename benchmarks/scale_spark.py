"""Measures 3 and 6 of what is beyond one machine: the fold on Spark against the embedded one, and its memory.

A master and workers are processes of this machine. Times are processor seconds of everything that runs, drivers, Java
and Python. Stated apart is what is fixed: what a session and its first small folds take, and what a small fold takes
in a session that is warm. The exponent is of what a fold takes beyond the latter, which makes it larger.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import log as ln
from pathlib import Path
from statistics import median
from typing import Any

from changeling_aggregator.fold import FoldReport, fold
from changeling_aggregator.opening import OpeningProcesses
from changeling_aggregator.store import Store
from changeling_aggregator.testing import counted_rows
from changeling_protocol import UnixSeconds
from changeling_spark.folding import SparkFold
from changeling_spark.session import ClusterSettings
from changeling_spark.testing import SparkCluster, cluster, seconds_of_all

from .scale_log import MILLION, PERIODS, log_in_segments, log_of
from .spark_disks import NOTHING, Disks

TIMES = {1: 2, 3: 1, 10: 1, 30: 1}
"""How often logs of so many million reports are folded."""
COMPARED = 10
"""Of these, what the embedded fold is compared with, and one worker."""
SMALL = 3
"""How often a log of one upload is folded, before the others."""
EXECUTOR_MEMORY = "512m"
"""Of each executor's Java, little more than Spark's least."""


@dataclass(frozen=True)
class Taken:
    """What a fold took. seconds: the processor's. java, python: the most memory of such a process so far, in MiB."""

    seconds: float
    wall: float
    tallies: list[tuple[Any, ...]]
    java: float = 0.0
    python: float = 0.0
    disks: Disks = NOTHING


@dataclass(frozen=True)
class Warm:
    """A session that has folded a little. first: processor seconds of starting it and of its first fold; of the later
    small ones, each takes `small`."""

    running: SparkCluster
    engine: SparkFold
    place: Path
    first: float
    small: float

    def fold(self, millions: int, times: int) -> Taken:
        """What it takes to fold so many million reports."""
        return _median_of([self._fold(millions) for _ in range(times)])

    def _fold(self, millions: int) -> Taken:
        with log_of(millions, self.place / "log") as store:
            before = _disks()
            taken = _folded(store, self.engine, millions * MILLION)
            return Taken(*taken, *self.running.most_mebibytes(), _disks().since(before))


def measure() -> dict[str, float | None]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        embedded = _median_of([_embedded(place) for _ in range(TIMES[COMPARED])])
        with _session(place / "two", 2) as warm:
            taken = {size: warm.fold(size, times) for size, times in TIMES.items()}
        with _session(place / "one", 1) as one_worker:
            one = one_worker.fold(COMPARED, 1)
    compared = taken[COMPARED]
    net = {size: each.seconds - warm.small for size, each in taken.items()}
    figures: dict[str, float | None] = {
        "3_fixed_processor_seconds_of_a_session": warm.first,
        "3_fixed_processor_seconds_of_a_fold": warm.small,
        "3_embedded_processor_seconds": embedded.seconds,
        "3_over_embedded_processor": compared.seconds / embedded.seconds,
        "3_over_embedded_time": compared.wall / embedded.wall,
        "3_same_tallies": float(embedded.tallies == compared.tallies == one.tallies),
        "3_exponent": exponent(net),
        "3_exponent_of_ends": exponent({size: net[size] for size in (min(net), max(net))}),
        "3_two_workers_over_one": compared.seconds / one.seconds,
    }
    for size, each in taken.items():
        figures[f"3_processor_seconds_{size}_million"] = each.seconds
        figures[f"3_times_{size}_million"] = TIMES[size]
        figures[f"6_most_python_mebibytes_{size}_million"] = each.python
        figures[f"6_most_java_mebibytes_{size}_million"] = each.java
        figures[f"6_shuffled_mebibytes_{size}_million"] = each.disks.shuffled
        figures[f"6_spilled_mebibytes_{size}_million"] = each.disks.spilled
    return figures


def exponent(seconds: dict[int, float]) -> float:
    """The slope of a line through the logarithms of sizes and times."""
    points = [(ln(size), ln(time_)) for size, time_ in seconds.items()]
    x, y = (sum(each) / len(points) for each in zip(*points, strict=True))
    slope: float = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    return slope


def _median_of(taken: Sequence[Taken]) -> Taken:
    """The times' medians, the most of memory."""
    return Taken(
        median(each.seconds for each in taken),
        median(each.wall for each in taken),
        taken[0].tallies,
        max(each.java for each in taken),
        max(each.python for each in taken),
        max((each.disks for each in taken), key=lambda disks: disks.shuffled + disks.spilled),
    )


def _embedded(place: Path) -> Taken:
    with log_of(COMPARED, place / "log") as store:
        begin, used = time.perf_counter(), seconds_of_all(os.getpid())
        done = fold(store, UnixSeconds(time.time()), closing=False, open_=OpeningProcesses())
        _check(done, COMPARED * MILLION)
        return Taken(seconds_of_all(os.getpid()) - used, time.perf_counter() - begin, _counted(store))


def _folded(store: Store, engine: SparkFold, reports: int) -> tuple[float, float, list[tuple[Any, ...]]]:
    """Processor seconds, seconds, and what was counted. reports: how many the log has."""
    engine.turn_to(store)
    begin, used = time.perf_counter(), seconds_of_all(os.getpid())
    _check(engine.fold(UnixSeconds(time.time()), closing=False), reports)
    return seconds_of_all(os.getpid()) - used, time.perf_counter() - begin, _counted(store)


def _check(done: FoldReport, reports: int) -> None:
    """A fold that refused some would be measured as a fast one."""
    if done.reports != reports:
        raise AssertionError(f"{done.reports} of {reports} reports were counted")


@contextmanager
def _session(place: Path, workers: int) -> Iterator[Warm]:
    """A session on a cluster of two cores in all."""
    with cluster(place, workers, cores=2 // workers) as running, tempfile.TemporaryDirectory() as folder:
        shared = place / "shared"
        shared.mkdir()
        logs = [log_in_segments(_new(Path(folder) / str(number)), PERIODS) for number in range(SMALL)]
        used = seconds_of_all(os.getpid())
        with closing(SparkFold(logs[0], ClusterSettings(running.master, EXECUTOR_MEMORY), str(shared))) as engine:
            engine.await_start()
            _folded(logs[0], engine, PERIODS)
            first = seconds_of_all(os.getpid()) - used
            small = median(_folded(store, engine, PERIODS)[0] for store in logs[1:])
            yield Warm(running, engine, place, first, small)
        for store in logs:
            store.close()


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _disks() -> Disks:
    from pyspark.sql import SparkSession

    return Disks.of(SparkSession.active())


def _counted(store: Store) -> list[tuple[Any, ...]]:
    return [row for rows in counted_rows(store).values() for row in rows]
