"""Measure 3, embedded: how fast the fold counts what lies in segments, after opening, and how that grows with the log.

Uploads of 64 closings, each with an id of its own and a report, in segments of a folder. What stands for opening gives
columns as opening does; its processor time is left out.
"""

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from changeling_aggregator.fold import fold
from changeling_aggregator.fold.ids import SeenIds
from changeling_aggregator.opening import ColumnLayout, Opened, Sheaf, upload_number
from changeling_aggregator.store import Store
from changeling_protocol import CLOSING_BYTES, Survey, SurveyId, UnixSeconds

from .scale_log import MILLION, PERIODS, log_in_segments, log_of

ROUNDS = {1: 3, 3: 2, 10: 2, 30: 1}
"""How often logs of so many million reports are folded."""


class Took(NamedTuple):
    """Of a fold, but for opening. processor, wall: seconds; of the latter what the fold waits for opening is in it."""

    processor: float
    wall: float


def measure() -> dict[str, float | None]:
    took = {millions: [_in_child(millions) for _ in range(rounds)] for millions, rounds in ROUNDS.items()}
    seconds = {millions: median(each.processor for each in some) for millions, some in took.items()}
    figures: dict[str, float | None] = {}
    for millions, each in seconds.items():
        figures[f"3_embedded_{millions}_million_processor_seconds"] = each
        figures[f"3_embedded_{millions}_million_times"] = ROUNDS[millions]
    figures["3_embedded_reports_a_second"] = 10 * MILLION / median(each.wall for each in took[10])
    figures["3_embedded_reports_a_processor_second"] = 10 * MILLION / seconds[10]
    x, y = np.log([*seconds]), np.log([*seconds.values()])
    figures["3_embedded_exponent"] = float(np.polyfit(x, y, 1)[0])
    figures["3_embedded_exponent_of_ends"] = math.log(seconds[30] / seconds[1]) / math.log(30)
    return figures


def folded(server: Path, millions: int) -> Took:
    """Fold a store whose log has so many million reports, after a small one, with which all is imported."""
    with tempfile.TemporaryDirectory() as place:
        small = log_in_segments(Path(place), PERIODS)
        fold(small, UnixSeconds(time.time()), closing=False, open_=_Opening())
        small.close()
    store, opening = Store.open(server), _Opening()
    began, used = time.perf_counter(), time.process_time()
    done = fold(store, UnixSeconds(time.time()), closing=False, open_=opening, seen=SeenIds())
    took = Took(time.process_time() - used - opening.seconds, time.perf_counter() - began)
    store.close()
    assert done.reports == millions * MILLION, done.reports  # noqa: S101
    return took


class _Opening:
    """Gives columns for as many uploads as it is asked for. seconds: the processor's, so far.

    They are drawn once; each time their ids are others, by a mask that is drawn then.
    """

    def __init__(self) -> None:
        self._generator, self.seconds = np.random.default_rng(1), 0.0
        self._drawn = np.zeros((0, PERIODS * CLOSING_BYTES // 8), np.uint64)
        self._symbols = b""

    def __call__(self, requests: Sequence[bytes], surveys: Mapping[SurveyId, Survey], _: Any) -> Opened:
        began = time.thread_time()
        opened = self._opened(len(requests), next(iter(surveys)))
        self.seconds += time.thread_time() - began
        return opened

    def _opened(self, uploads: int, survey: SurveyId) -> Opened:
        if not uploads:
            return Opened()
        if len(self._drawn) < uploads:
            self._draw(uploads)
        columns = self._drawn[:uploads].copy()
        columns[:, : 2 * PERIODS] ^= self._generator.integers(0, 2**64, 2 * PERIODS, np.uint64)
        numbers = [upload_number(request, 0) for request in range(uploads)]
        sheaf = Sheaf(numbers, [columns.tobytes()], [[self._symbols[: uploads * PERIODS]]])
        return Opened(uploads, {ColumnLayout(survey, 0, 0, PERIODS): sheaf})

    def _draw(self, uploads: int) -> None:
        ids = self._generator.integers(0, 2**64, (uploads, PERIODS * 2), np.uint64).view(np.uint8)
        rest = np.zeros((uploads, PERIODS * (CLOSING_BYTES - 16)), np.uint8)
        rest[:, :PERIODS] = 1  # the standings; then come strata
        self._drawn = np.concatenate([ids, rest], axis=1).view(np.uint64)
        self._symbols = self._generator.integers(1, 6, (uploads, PERIODS), np.uint8).tobytes()


def _in_child(millions: int) -> Took:
    """In a process of its own, whose memory is its own."""
    with tempfile.TemporaryDirectory() as place, ProcessPoolExecutor(1, get_context("spawn")) as pool:
        folder = Path(place) / "log"
        with log_of(millions, folder):
            return pool.submit(folded, folder / "server.db", millions).result()
