"""Measure 2: how fast the fold drops duplicates and tallies, with ten million ids seen before; its memory; and opening.

What comes after opening is measured on columns as opening gives them: 64 closings an upload, each with an id of its own
and a report. Opening is measured beside bare HPKE, in processor seconds.
"""

import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np
from changeling_aggregator.fold import SeenIds, add_ids, fold
from changeling_aggregator.opening import ColumnLayout, Opened, Sheaf, open_requests, upload_number
from changeling_aggregator.testing.killing import prepared_log
from changeling_aggregator.testing.serving import SurveyLog
from changeling_protocol import HEAD_BYTES, Node, Survey, UnixSeconds, seal
from changeling_protocol.wire import encode_upload_request
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from .server_world import plaintext

SEEN = 10**7
PERIODS = 64
UPLOADS, BATCHES = 20_000, 8
"""Reports in all: BATCHES * UPLOADS * PERIODS."""
OPENED, TIMES = 1000, 9


def measure() -> dict[str, float | None]:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # whose memory is its own
        return opening() | pool.submit(counting).result()


def opening() -> dict[str, float | None]:
    """The processor time of bare HPKE, the library's own, over that of opening; medians of turns."""
    with tempfile.TemporaryDirectory() as place:
        log = prepared_log(Path(place))
        sealed = [seal(plaintext(log.survey, Node(7, 8)), log.survey.id, log.key) for _ in range(OPENED)]
        with log.store.view() as view:
            keys = view.private_keys()
        log.store.close()
    requests = [encode_upload_request([each]) for each in sealed]
    surveys = {log.survey.id: log.survey}
    turns = [
        (_seconds(_bare, keys[log.key.id], sealed), _seconds(open_requests, requests, surveys, keys))
        for _ in range(TIMES)
    ]
    return {"2_opening_processor_ratio": median(bare / ours for bare, ours in turns)}


def _bare(private: X25519PrivateKey, sealed: Sequence[bytes]) -> None:
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
    for each in sealed:
        suite.decrypt(each[HEAD_BYTES:], private, info=each[:HEAD_BYTES])


def _seconds(work: Callable[..., object], *arguments: object) -> float:
    begin = time.process_time()
    work(*arguments)
    return time.process_time() - begin


def counting() -> dict[str, float | None]:
    """Reports a second after opening, SEEN ids seen before, and the most memory of the process, in MiB."""
    with tempfile.TemporaryDirectory() as place:
        log = prepared_log(Path(place), PERIODS)
        _see(log)
        seen = SeenIds()
        _counted(log, [_opened(log.survey, BATCHES)], seen)
        wall, processor = _counted(log, [_opened(log.survey, batch) for batch in range(BATCHES)], seen)
        log.store.close()
    return {
        "2_reports": BATCHES * UPLOADS * PERIODS / wall,
        "2_reports_a_processor_second": BATCHES * UPLOADS * PERIODS / processor,
        "2_most_mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _counted(log: SurveyLog, batches: Iterable[Opened], seen: SeenIds) -> tuple[float, float]:
    """Folds batches that are open already; returns seconds, and processor seconds."""
    batches = [*batches]
    for _ in batches:
        log.append(time.time(), *([b""] * UPLOADS))
    coming = iter(batches)
    begin, used = time.perf_counter(), time.process_time()
    fold(log.store, UnixSeconds(time.time()), UPLOADS, closing=False, open_=lambda *_: next(coming), seen=seen)
    return time.perf_counter() - begin, time.process_time() - used


def _see(log: SurveyLog) -> None:
    generator = np.random.default_rng(1)
    for period in range(1, PERIODS + 1):
        ids = np.sort(generator.integers(0, 2**63, (SEEN // PERIODS, 2), np.uint64), axis=0).astype(">u8")
        with log.store.transaction() as writing:
            add_ids(writing, {(log.survey.id, period): ids.tobytes()})


def _opened(survey: Survey, seed: int) -> Opened:
    generator = np.random.default_rng(100 + seed)
    ids = generator.integers(0, 2**64, (UPLOADS, PERIODS * 2), np.uint64).view(np.uint8)
    standings = np.ones((UPLOADS, PERIODS), np.uint8)
    strata = np.zeros((UPLOADS, PERIODS * 2), np.uint8)
    closings = np.concatenate([ids, standings, strata], axis=1).tobytes()
    symbols = generator.integers(1, 6, (UPLOADS, PERIODS), np.uint8).tobytes()
    numbers = [upload_number(request, 0) for request in range(UPLOADS)]
    return Opened(UPLOADS, {ColumnLayout(survey.id, 0, 0, PERIODS): Sheaf(numbers, [closings], [[symbols]])})
