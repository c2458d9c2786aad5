"""Measure 2: how fast the fold opens, drops duplicates and tallies, with ten million ids seen before; and its memory.

Opening is measured with the processes that a server has, against bare HPKE on as many processors. What comes after is
measured on columns as opening gives them: 64 closings an upload, each with an id of its own and a report.
"""

import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from changeling_aggregator.fold import SeenIds, add_ids, fold
from changeling_aggregator.opening import ColumnLayout, Opened, OpeningProcesses, Sheaf, open_requests, upload_number
from changeling_aggregator.testing.killing import prepared_log
from changeling_aggregator.testing.serving import SurveyLog
from changeling_protocol import HEAD_BYTES, Node, Survey, UnixSeconds, UploadColumns, seal
from changeling_protocol.wire import encode_upload_request
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from .server_world import plaintext

SEEN = 10**7
PERIODS = 64
MANY_PERIODS = 365
UPLOADS = 20_000
BATCHES = 8
"""So many reports in all: BATCHES * UPLOADS * PERIODS."""
OPENED = 20_000


def measure() -> dict[str, float | None]:
    figures = opening()
    figures |= _in_child(counting)
    figures |= _in_child(many_closings)
    return figures


def opening() -> dict[str, float | None]:
    """Envelopes a second, of bare HPKE and of the fold, both on all processors; in turn, and medians.

    Bare HPKE is the library's own. The ratio in processor seconds, of opening alone, is what a loaded machine can tell.
    """
    with tempfile.TemporaryDirectory() as place:
        log = prepared_log(Path(place))
        span = Node(7, 8)
        sealed = [seal(plaintext(log.survey, span), log.survey.id, log.key) for _ in range(OPENED)]
        requests = [encode_upload_request([each]) for each in sealed]
        with log.store.view() as view:
            keys = view.private_keys()
        raw = keys[log.key.id].private_bytes_raw()
        cores = os.cpu_count() or 1
        open_, seen = OpeningProcesses(cores), SeenIds()
        surveys = {log.survey.id: log.survey}
        bare, ours = [], []
        with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
            parts = [sealed[core::cores] for core in range(cores)]
            list(pool.map(partial(_bare, raw), [part[:10] for part in parts]))
            open_(requests, surveys, keys)
            for _ in range(5):
                begin = time.perf_counter()
                list(pool.map(partial(_bare, raw), parts))
                bare.append(OPENED / (time.perf_counter() - begin))
                log.append(time.time(), *sealed)
                begin = time.perf_counter()
                fold(log.store, UnixSeconds(time.time()), closing=False, open_=open_, seen=seen)
                ours.append(OPENED / (time.perf_counter() - begin))
        log.store.close()
        some = slice(0, 1000)
        seconds = [
            (
                _processor_seconds(_bare, raw, sealed[some]),
                _processor_seconds(open_requests, requests[some], surveys, keys),
            )
            for _ in range(9)
        ]
    return {
        "2_bare_openings": median(bare),
        "2_folded_envelopes": median(ours),
        "2_opening_ratio": median(o / b for o, b in zip(ours, bare, strict=True)),
        "2_opening_processor_ratio": median(of_bare / of_ours for of_bare, of_ours in seconds),
    }


def _bare(raw: bytes, sealed: Sequence[bytes]) -> None:
    private = X25519PrivateKey.from_private_bytes(raw)
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
    for each in sealed:
        suite.decrypt(each[HEAD_BYTES:], private, info=each[:HEAD_BYTES])


def _processor_seconds(work: Callable[..., object], *arguments: object) -> float:
    begin = time.process_time()
    work(*arguments)
    return time.process_time() - begin


def counting() -> dict[str, float | None]:
    """Reports a second after opening, SEEN ids seen before, and the most memory of the process, in MiB."""
    with tempfile.TemporaryDirectory() as place:
        log = prepared_log(Path(place), PERIODS)
        _see(log)
        before = _most_mebibytes()
        seen = SeenIds()
        _counted(log, [_opened(log.survey, BATCHES)], seen)
        wall, processor = _counted(log, (_opened(log.survey, batch) for batch in range(BATCHES)), seen)
        log.store.close()
    return {
        "2_reports": BATCHES * UPLOADS * PERIODS / wall,
        "2_reports_a_processor_second": BATCHES * UPLOADS * PERIODS / processor,
        "2_most_mebibytes": _most_mebibytes(),
        "2_most_mebibytes_before": before,
    }


def many_closings() -> dict[str, float | None]:
    """The same for uploads of one closing each, any of MANY_PERIODS."""
    with tempfile.TemporaryDirectory() as place:
        log = prepared_log(Path(place), MANY_PERIODS)
        wall, processor = _counted(log, (_scattered(log.survey, batch) for batch in range(BATCHES)), SeenIds())
        log.store.close()
    return {
        "2_scattered_reports": BATCHES * UPLOADS / wall,
        "2_scattered_reports_a_processor_second": BATCHES * UPLOADS / processor,
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


def _scattered(survey: Survey, seed: int) -> Opened:
    generator = np.random.default_rng(200 + seed)
    sheaves: dict[ColumnLayout, Sheaf] = {}
    for request, end in enumerate(generator.integers(1, MANY_PERIODS + 1, UPLOADS).tolist()):
        columns = UploadColumns(0, Node(end - 1, end), generator.bytes(16) + b"\1\0\0", (b"\1",))
        sheaves.setdefault(ColumnLayout(survey.id, 0, end - 1, end), Sheaf()).add(upload_number(request, 0), columns)
    return Opened(UPLOADS, {kind: sheaf.joined() for kind, sheaf in sheaves.items()})


def _most_mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """In a process of its own, whose memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work).result()
