"""Measure 3, embedded: how fast the fold counts what lies in segments, after opening, and how that grows with the log.

Uploads of 64 closings, each with an id of its own and a report, in segments of a folder. What stands for opening gives
columns as opening does; its processor time is left out.
"""

import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from changeling_aggregator.fold import fold
from changeling_aggregator.fold.opening import Kind, Opened, Sheaf, upload_number
from changeling_aggregator.fold.seen import SeenIds
from changeling_aggregator.ingest.journaled import ROLL_BYTES
from changeling_aggregator.segments.folder import Folder
from changeling_aggregator.store.log import open_stream
from changeling_protocol import Survey
from changeling_protocol.quantities import SurveyId, UnixSeconds

from tests.aggregator.devices import Log
from tests.aggregator.segmented import append

from .server_world import prepared

PERIODS = 64
REPORTS = (1, 3, 10, 30)
"""Millions."""
ROUNDS = 5
BODY_BYTES = 1400
"""Of a request with one such upload."""


def measure() -> dict[str, float | None]:
    seconds = {millions: median(_in_child(millions) for _ in range(ROUNDS)) for millions in REPORTS}
    figures: dict[str, float | None] = {
        f"3_embedded_{millions}_million_processor_seconds": each for millions, each in seconds.items()
    }
    figures["3_embedded_reports_a_processor_second"] = 10 * 10**6 / seconds[10]
    x, y = np.log([*seconds]), np.log([*seconds.values()])
    figures["3_embedded_exponent"] = float(np.polyfit(x, y, 1)[0])
    figures["3_embedded_exponent_of_ends"] = math.log(seconds[30] / seconds[1]) / math.log(30)
    return figures


def folded(millions: int) -> float:
    """Processor seconds of folding so many million reports, but for what opening takes."""
    with tempfile.TemporaryDirectory() as place:
        log = prepared(Path(place), PERIODS)
        uploads = millions * 10**6 // PERIODS
        _fill(log, Folder(Path(place) / "segments", make=True), uploads)
        opening = _Opening()
        began = time.process_time()
        done = fold(log.store, UnixSeconds(time.time()), closing=False, open_=opening, seen=SeenIds())
        took = time.process_time() - began - opening.seconds
        log.store.close()
    assert done.reports == uploads * PERIODS, done.reports  # noqa: S101
    return took


def _fill(log: Log, folder: Folder, uploads: int) -> None:
    """Segments as a server rolls them."""
    bodies = [os.urandom(BODY_BYTES)] * (ROLL_BYTES // BODY_BYTES)
    with log.store.writing() as connection:
        stream = open_stream(connection, folder.name, "bench")
    for at in range(0, uploads, len(bodies)):
        with log.store.writing() as connection:
            append(connection, stream, bodies[: uploads - at], int(time.time() * 1000))


class _Opening:
    """Gives columns for as many uploads as it is asked for. seconds: the processor's, so far."""

    def __init__(self) -> None:
        self._generator, self.seconds = np.random.default_rng(1), 0.0

    def __call__(self, requests: Sequence[bytes], surveys: Mapping[SurveyId, Survey], _: Any) -> Opened:
        began = time.thread_time()
        opened = self._opened(len(requests), next(iter(surveys)))
        self.seconds += time.thread_time() - began
        return opened

    def _opened(self, uploads: int, survey: SurveyId) -> Opened:
        if not uploads:
            return Opened()
        ids = self._generator.integers(0, 2**64, (uploads, PERIODS * 2), np.uint64).view(np.uint8)
        rest = np.zeros((uploads, PERIODS * 3), np.uint8)
        rest[:, :PERIODS] = 1  # the standings; then come strata
        symbols = self._generator.integers(1, 6, (uploads, PERIODS), np.uint8).tobytes()
        numbers = [upload_number(request, 0) for request in range(uploads)]
        closings = np.concatenate([ids, rest], axis=1).tobytes()
        return Opened(uploads, {Kind(survey, 0, 0, PERIODS): Sheaf(numbers, [closings], [[symbols]])})


def _in_child(millions: int) -> float:
    """In a process of its own, whose memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(folded, millions).result()
