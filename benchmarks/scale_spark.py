"""The fold on Spark: beside the embedded one, its growth with the log, its memory, and its costs, for `capacity`.

A master and two workers are processes of this machine. Times are processor seconds of everything that runs, drivers,
Java and Python. The log is in segments, of one survey, 64 closings an upload, sealed as a device seals them; a shorter
log is the beginning of a longer one: its store names fewer of the same files.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgpack
import numpy as np
from changeling_aggregator.fold import EngineOptions, FoldReport, OpeningProcesses, fold
from changeling_aggregator.segments import Folder
from changeling_aggregator.segments.parquet import encoded, write_ids
from changeling_aggregator.store import IdFile, LoggedRequest, Segment, Store
from changeling_aggregator.testing import append_segments, sql
from changeling_aggregator.testing.serving import prepared_log
from changeling_protocol import SealingKey, Survey, UnixMilliseconds, UnixSeconds, seal
from changeling_protocol.wire import encode_upload_request
from changeling_simulations.fleet import Load
from changeling_spark.runs import SparkFold
from changeling_spark.testing import SparkCluster, cluster, seconds_of_all
from pyspark.sql import SparkSession

from .scale import made

PERIODS = 64
UPLOADS_A_SEGMENT = 15_625
"""As many as hold a million reports, in 20 MiB: too much to be written anew with others, whose files would then go."""
MILLION = 10**6


def log_in_segments(folder: Path, reports: int) -> Store:
    """A store in the folder, the segments beside it; about so many reports, each closing with an id of its own."""
    log = prepared_log(folder, PERIODS)
    place = Folder(folder / "segments", make=True)
    uploads = max(1, reports // PERIODS)
    arrival = UnixMilliseconds(1000 * log.survey.calendar.time(PERIODS) + 1000)
    counts = [min(UPLOADS_A_SEGMENT, uploads - at) for at in range(0, uploads, UPLOADS_A_SEGMENT)]
    stream = log.store.open_stream(None, place.name, "measured")
    make = partial(_segment, place.name, stream, arrival, log.survey, log.key)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        sizes = list(pool.map(make, range(len(counts)), counts))
    with log.store.transaction() as writing:
        for number, (count, size) in enumerate(zip(counts, sizes, strict=True)):
            first, name = number * UPLOADS_A_SEGMENT + 1, f"measured-{number}.parquet"
            segment = Segment(stream, first, first + count - 1, arrival, arrival, place.name, name, size)
            if not writing.add_segment(segment):
                raise AssertionError("a segment does not go on where the last one ends")
    return log.store


def _segment(
    place: str, stream: int, arrival: UnixMilliseconds, survey: Survey, key: SealingKey, number: int, count: int
) -> int:
    """Write a segment; its size in bytes."""
    generator = np.random.default_rng([14, number])
    ids = generator.integers(0, 2**64, (count, PERIODS * 2), np.uint64).view(np.uint8)
    said = np.concatenate([ids, np.full((count, PERIODS), 1, np.uint8), np.zeros((count, 2 * PERIODS), np.uint8)], 1)
    symbols = generator.integers(1, 6, (count, PERIODS), np.uint8)
    first = number * UPLOADS_A_SEGMENT + 1
    rows: list[LoggedRequest] = []
    for at in range(count):
        plaintext = msgpack.packb([0, 0, PERIODS, said[at].tobytes(), symbols[at].tobytes()])
        body = encode_upload_request([seal(plaintext, survey.id, key)])
        rows.append(LoggedRequest(arrival, stream, first + at, body))
    content = encoded(rows)
    Folder(Path(place)).put(f"measured-{number}.parquet", content)
    return len(content)


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


def against_embedded() -> dict[str, float | None]:
    """Measures 3 and 6 of scale: the fold on Spark against the embedded one, its growth with the log, and its memory.

    Told apart is what is fixed: a session with its first small fold, and a small fold in a warm session. The exponent
    is of what a fold takes beyond the latter.
    """
    figures: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, reports in (("first", PERIODS), ("second", PERIODS), ("longest", max(MILLIONS) * MILLION)):
            (place / name).mkdir()
            log_in_segments(place / name, reports).close()
        with _copied(place / "longest", COMPARED) as store:
            embedded = _taken(COMPARED * MILLION, lambda: fold(store, _now(), closing=False, open_=OpeningProcesses()))
        (place / "shared").mkdir()
        with (
            cluster(place / "cluster") as running,
            _copied(place / "first") as first,
            _copied(place / "second") as second,
        ):
            used = seconds_of_all(os.getpid())
            options = EngineOptions(running.master, str(place / "shared"), EXECUTOR_MEMORY)
            with closing(SparkFold(first, options)) as engine:
                engine.await_start()
                _on_spark(engine, first, PERIODS)
                figures["3_fixed_processor_seconds_of_a_session"] = seconds_of_all(os.getpid()) - used
                small = _on_spark(engine, second, PERIODS).processor
                figures["3_fixed_processor_seconds_of_a_fold"] = small
                seconds = {}
                for millions in MILLIONS:
                    before = _disks()
                    with _copied(place / "longest", millions) as store:
                        taken = _on_spark(engine, store, millions * MILLION)
                    if millions == COMPARED:
                        figures["3_over_embedded_processor"] = taken.processor / embedded.processor
                        figures["3_over_embedded_time"] = taken.wall / embedded.wall
                    seconds[millions] = taken.processor
                    java, python = running.most_mebibytes()
                    shuffled, spilled = (after - then for after, then in zip(_disks(), before, strict=True))
                    figures |= {
                        f"3_processor_seconds_{millions}_million": taken.processor,
                        f"6_most_java_mebibytes_{millions}_million": java,
                        f"6_most_python_mebibytes_{millions}_million": python,
                        f"6_shuffled_mebibytes_{millions}_million": shuffled,
                        f"6_spilled_mebibytes_{millions}_million": spilled,
                    }
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


FEW, MANY = 4_000, 40_000
"""Envelopes of one closing."""
WIDE = 10_000
"""Envelopes of PERIODS closings each."""
SEEN = 6_000_000
"""Ids."""
TIMES = 3
_IDS_A_FILE = 2**19
_AT_ONCE = 4096


class Costs(NamedTuple):
    """The costs of a run: processor seconds, and bytes that it shuffled, as they lie on the workers' disks."""

    seconds: float
    shuffled: float


def costs() -> dict[str, float | None]:
    """What the capacity model counts with: a run, an envelope, a closing, and an id that it has seen.

    A run reads all ids of open closings and writes them anew, so that its cost grows with them, whatever it counts.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        load = made(folder, MANY)
        logs = {str(size): _logged(folder, load, size) for size in (FEW, MANY)}
        (folder / "wide").mkdir()
        log_in_segments(folder / "wide", WIDE * PERIODS).close()
        (folder / "shared").mkdir()
        with cluster(folder / "cluster") as running, _engine(running, folder, logs[str(FEW)]) as (engine, began):
            few, many, wide, seen = (
                _medians([_run(running, engine, folder, logged, ids) for _ in range(TIMES)])
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
    stream = store.open_stream(None, segments.name, "measured")
    bodies = [body for _, body in islice(load.requests(), uploads)]
    for at in range(0, uploads, _AT_ONCE):
        append_segments(store, {stream: bodies[at : at + _AT_ONCE]}, UnixMilliseconds(int(time.time() * 1000)))
    store.close()
    return place


@contextmanager
def _engine(running: SparkCluster, folder: Path, logged: Path) -> Iterator[tuple[SparkFold, float]]:
    """A session that has folded once, and what that took."""
    used = seconds_of_all(os.getpid())
    options = EngineOptions(running.master, str(folder / "shared"))
    with _copied(logged) as store, closing(SparkFold(store, options)) as engine:
        engine.await_start()
        engine.fold(_now(), closing=False)
        yield engine, seconds_of_all(os.getpid()) - used


def _run(running: SparkCluster, engine: SparkFold, folder: Path, logged: Path, seen: int) -> Costs:
    """One run, with so many ids that were counted before."""
    with _copied(logged) as store:
        _see(store, Folder(folder / "shared"), seen)
        engine.turn_to(store)
        before, used = _scratch(running), seconds_of_all(os.getpid())
        engine.fold(_now(), closing=False)
        fresh = [size for file, size in _scratch(running).items() if file not in before]
        return Costs(seconds_of_all(os.getpid()) - used, float(sum(fresh)))


def _scratch(running: SparkCluster) -> dict[Path, int]:
    """The files on the workers' disks, with sizes in bytes; those of earlier runs go when Spark gets to it."""
    files = [file for file in (running.folder / "local").rglob("shuffle_*") if file.is_file()]
    return {file: file.stat().st_size for file in files}


def _see(store: Store, place: Folder, count: int) -> None:
    """Files of so many ids of the last closing, as a run before this one would have left them."""
    generator = np.random.default_rng(14)
    with store.transaction() as writing:
        (survey,) = writing.surveys()
        files = []
        for number, at in enumerate(range(0, count, _IDS_A_FILE)):
            ids = generator.integers(0, 2**64, (min(_IDS_A_FILE, count - at), 2), np.uint64)
            packed = ids[np.argsort(ids[:, 0])].astype(">u8").tobytes()
            name = f"ids-seen-{number}.parquet"
            files.append(IdFile(place.name, name, survey, write_ids(place, name, {8: packed})))
        writing.replace_id_files([], files)


@contextmanager
def _copied(folder: Path, millions: int | None = None) -> Iterator[Store]:
    """A store like the one in the folder, over the same segments, which nobody changes; or only their first reports."""
    with tempfile.TemporaryDirectory(dir=folder) as copy:
        shutil.copy(folder / "server.db", copy)
        store = Store.open(Path(copy) / "server.db")
        if millions is not None:
            uploads = millions * MILLION // PERIODS
            sql(store, "DELETE FROM files WHERE last > :uploads", uploads=uploads)
            sql(store, "UPDATE streams SET length = :uploads WHERE place IS NOT NULL", uploads=uploads)
        yield store
        store.close()


def _medians(taken: list[Costs]) -> Costs:
    return Costs(median(each.seconds for each in taken), median(each.shuffled for each in taken))
