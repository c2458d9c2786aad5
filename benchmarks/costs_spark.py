"""The costs of the fold on Spark, for the capacity model: a run, an envelope, a closing, and an id that it has seen.

Processor seconds of all that runs, the driver, Java and Python; medians. A run reads all ids of open closings and
writes them anew, so that its cost grows with them, whatever it counts.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from changeling_aggregator.fold import EngineOptions
from changeling_aggregator.segments import Folder
from changeling_aggregator.segments.parquet import write_ids
from changeling_aggregator.store import IdFile, Store
from changeling_aggregator.testing import append_segment
from changeling_protocol import UnixMilliseconds, UnixSeconds
from changeling_simulations.fleet import Load
from changeling_spark.runs import SparkFold
from changeling_spark.testing import SparkCluster, cluster, seconds_of_all

from .scale_capacity import made
from .scale_log import PERIODS, log_in_segments

FEW, MANY = 4_000, 40_000
"""Envelopes of one closing."""
WIDE = 10_000
"""Envelopes of as many closings as `scale_log` gives one."""
SEEN = 6_000_000
"""Ids."""
TIMES = 3
_IDS_A_FILE = 2**19
_AT_ONCE = 4096


class Taken(NamedTuple):
    """The costs of a run: processor seconds, and bytes that it shuffled, as they lie on the workers' disks."""

    seconds: float
    shuffled: float


def measure() -> dict[str, float | None]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        load = made(folder, MANY)
        logs = {str(size): _logged(folder, load, size) for size in (FEW, MANY)}
        (folder / "wide").mkdir()
        log_in_segments(folder / "wide", WIDE * PERIODS).close()
        (folder / "shared").mkdir()
        with cluster(folder / "cluster", 2) as running, _engine(running, folder, logs[str(FEW)]) as (engine, began):
            few, many, wide, seen = (
                _median([_run(running, engine, folder, logged, ids) for _ in range(TIMES)])
                for logged, ids in (
                    (logs[str(FEW)], 0),
                    (logs[str(MANY)], 0),
                    (folder / "wide", 0),
                    (logs[str(FEW)], SEEN),
                )
            )
    envelope = (many.seconds - few.seconds) / (MANY - FEW)
    run = few.seconds - FEW * envelope
    return {
        "spark_session_seconds": began,
        "spark_run_seconds": run,
        "spark_envelope_us": 1e6 * envelope,
        "spark_closing_us": 1e6 * (wide.seconds - run - WIDE * envelope) / (WIDE * (PERIODS - 1)),
        "spark_id_us": 1e6 * (seen.seconds - few.seconds) / SEEN,
        "spark_shuffled_bytes_of_a_closing": (many.shuffled - few.shuffled) / (MANY - FEW),
        "spark_shuffled_bytes_of_an_id": (seen.shuffled - few.shuffled) / SEEN,
    }


def _logged(folder: Path, load: Load, uploads: int) -> Path:
    """A store whose log has the first so many uploads in segments beside it."""
    place = folder / f"log{uploads}"
    place.mkdir()
    shutil.copy(folder / "server.db", place)
    segments = Folder(place / "segments", make=True)
    store = Store.open(place / "server.db")
    with store.transaction() as writing:
        stream = writing.open_stream(None, segments.name, "measured")
    bodies = [body for _, body in islice(load.requests(), uploads)]
    for at in range(0, uploads, _AT_ONCE):
        append_segment(store, stream, bodies[at : at + _AT_ONCE], UnixMilliseconds(int(time.time() * 1000)))
    store.close()
    return place


@contextmanager
def _engine(running: SparkCluster, folder: Path, logged: Path) -> Iterator[tuple[SparkFold, float]]:
    """A session that has folded once, and what that took."""
    used = seconds_of_all(os.getpid())
    with (
        _copied(logged) as store,
        closing(SparkFold(store, EngineOptions(running.master, str(folder / "shared")))) as engine,
    ):
        engine.await_start()
        engine.fold(UnixSeconds(time.time()), closing=False)
        yield engine, seconds_of_all(os.getpid()) - used


def _run(running: SparkCluster, engine: SparkFold, folder: Path, logged: Path, seen: int) -> Taken:
    """One run, with so many ids that were counted before."""
    with _copied(logged) as store:
        _see(store, Folder(folder / "shared"), seen)
        engine.turn_to(store)
        before, used = _scratch(running), seconds_of_all(os.getpid())
        engine.fold(UnixSeconds(time.time()), closing=False)
        fresh = [size for file, size in _scratch(running).items() if file not in before]
        return Taken(seconds_of_all(os.getpid()) - used, float(sum(fresh)))


def _scratch(running: SparkCluster) -> dict[Path, int]:
    """The files on the workers' disks, with sizes in bytes; those of earlier runs go when Spark gets to it."""
    files = [file for file in (running.folder / "local").rglob("shuffle_*") if file.is_file()]
    return {file: file.stat().st_size for file in files}


def _see(store: Store, place: Folder, count: int) -> None:
    """Files of so many ids of the last closing, as a run before this one would have left them."""
    generator = np.random.default_rng(14)
    with store.transaction() as writing:
        (survey,) = writing.signed_surveys()
        files = []
        for number, at in enumerate(range(0, count, _IDS_A_FILE)):
            ids = generator.integers(0, 2**64, (min(_IDS_A_FILE, count - at), 2), np.uint64)
            packed = ids[np.argsort(ids[:, 0])].astype(">u8").tobytes()
            name = f"ids-seen-{number}.parquet"
            files.append(IdFile(place.name, name, survey, write_ids(place, name, {8: packed})))
        writing.replace_id_files([], files)


@contextmanager
def _copied(folder: Path) -> Iterator[Store]:
    """A store like the one in the folder, over the same segments, which nobody changes."""
    with tempfile.TemporaryDirectory(dir=folder) as copy:
        shutil.copy(folder / "server.db", copy)
        store = Store.open(Path(copy) / "server.db")
        yield store
        store.close()


def _median(taken: list[Taken]) -> Taken:
    return Taken(median(each.seconds for each in taken), median(each.shuffled for each in taken))
