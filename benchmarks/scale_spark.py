"""Measures 3 and 6 of scale: the fold on Spark against the embedded one, its growth with the log, and its memory.

A master and two workers are processes of this machine. Times are processor seconds of everything that runs, drivers,
Java and Python. Told apart is what is fixed: a session with its first small fold, and a small fold in a warm session.
The exponent is of what a fold takes beyond the latter.
"""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from changeling_aggregator.fold import EngineOptions, FoldReport, fold
from changeling_aggregator.opening import OpeningProcesses
from changeling_aggregator.store import Store
from changeling_aggregator.testing import counted_rows
from changeling_protocol import UnixSeconds
from changeling_spark.runs import SparkFold
from changeling_spark.testing import cluster, seconds_of_all
from pyspark.sql import SparkSession

from .scale_log import MILLION, PERIODS, log_in_segments, log_of

MILLIONS = (1, 3, 10, 30)
COMPARED = 10
"""The size, in million reports, that the embedded fold folds too."""
EXECUTOR_MEMORY = "512m"
"""The memory of each executor's Java, little more than Spark's least."""
MEBIBYTE = 2**20


class Taken(NamedTuple):
    """Processor seconds, and seconds, of a fold."""

    processor: float
    wall: float


def measure() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with log_of(COMPARED, place / "log") as store:
            embedded = _taken(COMPARED * MILLION, lambda: fold(store, _now(), closing=False, open_=OpeningProcesses()))
            counted = counted_rows(store)
        (place / "shared").mkdir()
        smalls = []
        for name in ("first", "second"):
            (place / name).mkdir()
            smalls.append(log_in_segments(place / name, PERIODS))
        with cluster(place / "cluster", 2) as running:
            used = seconds_of_all(os.getpid())
            options = EngineOptions(running.master, str(place / "shared"), EXECUTOR_MEMORY)
            with closing(SparkFold(smalls[0], options)) as engine:
                engine.await_start()
                _on_spark(engine, smalls[0], PERIODS)
                figures["3_fixed_processor_seconds_of_a_session"] = seconds_of_all(os.getpid()) - used
                small = _on_spark(engine, smalls[1], PERIODS).processor
                figures["3_fixed_processor_seconds_of_a_fold"] = small
                seconds = {}
                for millions in MILLIONS:
                    before = _disks()
                    with log_of(millions, place / "log") as store:
                        taken = _on_spark(engine, store, millions * MILLION)
                        if millions == COMPARED:
                            figures["3_over_embedded_processor"] = taken.processor / embedded.processor
                            figures["3_over_embedded_time"] = taken.wall / embedded.wall
                            figures["3_same_tallies"] = float(counted_rows(store) == counted)
                    seconds[millions] = taken.processor
                    figures[f"3_processor_seconds_{millions}_million"] = taken.processor
                    java, python = running.most_mebibytes()
                    shuffled, spilled = (after - then for after, then in zip(_disks(), before, strict=True))
                    figures[f"6_most_java_mebibytes_{millions}_million"] = java
                    figures[f"6_most_python_mebibytes_{millions}_million"] = python
                    figures[f"6_shuffled_mebibytes_{millions}_million"] = shuffled
                    figures[f"6_spilled_mebibytes_{millions}_million"] = spilled
        for each in smalls:
            each.close()
    net = [taken - small for taken in seconds.values()]
    figures["3_embedded_processor_seconds"] = embedded.processor
    figures["3_exponent"] = float(np.polyfit(np.log([*seconds]), np.log(net), 1)[0])
    return figures


def _on_spark(engine: SparkFold, store: Store, reports: int) -> Taken:
    engine.turn_to(store)
    return _taken(reports, lambda: engine.fold(_now(), closing=False))


def _taken(reports: int, folding: Callable[[], FoldReport]) -> Taken:
    """The time of a fold that counts so many reports: one that refused some would be measured as a fast one."""
    begin, used = time.perf_counter(), seconds_of_all(os.getpid())
    done = folding()
    taken = Taken(seconds_of_all(os.getpid()) - used, time.perf_counter() - begin)
    if done.reports != reports:
        raise AssertionError(f"{done.reports} of {reports} reports were counted")
    return taken


def _now() -> UnixSeconds:
    return UnixSeconds(time.time())


def _disks() -> tuple[float, float]:
    """MiB that tasks of the session handed to one another, all through files; and that memory had no room for."""
    spark = SparkSession.active()
    gateway: Any = spark.sparkContext._gateway  # pyspark has no other way to Spark's own figures
    none = gateway.new_array(gateway.jvm.double, 0)
    kept = spark.sparkContext._jsc.sc().statusStore()
    found = kept.stageList(None, False, False, none, gateway.jvm.java.util.ArrayList())
    stages = [found.apply(at) for at in range(found.size())]
    return (
        sum(stage.shuffleWriteBytes() for stage in stages) / MEBIBYTE,
        sum(stage.diskBytesSpilled() for stage in stages) / MEBIBYTE,
    )
