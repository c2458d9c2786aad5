"""Measure 2: how fast the fold opens, drops duplicates and tallies, with ten million ids seen before; and its memory.

Opening is measured with the processes that a server has, against bare HPKE on as many processors. What comes after is
measured on columns as opening gives them: 64 closings an upload, each with an id of its own and a report.
"""

import os
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from changeling_aggregator.fold import OpeningProcesses
from changeling_aggregator.fold.folding import fold_batch
from changeling_aggregator.fold.opening import Kind, Opened, Sheaf, upload_number
from changeling_aggregator.fold.runs import add_ids
from changeling_aggregator.store.sealing_keys import private_keys
from changeling_protocol import Node, Survey, hpke, seal
from changeling_protocol.sealing import HEAD_BYTES
from changeling_protocol.wire import encode_upload_request
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.aggregator.devices import Log

from .server_world import plaintext, prepared

SEEN = 10**7
PERIODS = 64
UPLOADS = 20_000
BATCHES = 8
"""So many reports in all: BATCHES * UPLOADS * PERIODS."""
OPENED = 20_000


def measure() -> dict[str, float | None]:
    figures = opening()
    figures |= _in_child(counting)
    return figures


def opening() -> dict[str, float | None]:
    """Envelopes a second, of bare HPKE and of the fold, both on all processors; in turn, and medians."""
    with tempfile.TemporaryDirectory() as place:
        log = prepared(Path(place))
        span = Node(7, 8)
        sealed = [seal(plaintext(log.survey, span), log.survey.id, log.key) for _ in range(OPENED)]
        requests = [encode_upload_request([each]) for each in sealed]
        with log.store.reading() as connection:
            keys = private_keys(connection, log.store.at_rest)
        raw = keys[log.key.id].private_bytes_raw()
        cores = os.cpu_count() or 1
        open_ = OpeningProcesses(cores)
        surveys = {log.survey.id: log.survey}
        bare, ours = [], []
        with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
            parts = [sealed[core::cores] for core in range(cores)]
            list(pool.map(partial(_bare, raw), [part[:10] for part in parts]))
            open_(requests, surveys, keys)
            log.append(time.time(), *sealed)
            for _ in range(5):
                begin = time.perf_counter()
                list(pool.map(partial(_bare, raw), parts))
                bare.append(OPENED / (time.perf_counter() - begin))
                log.append(time.time(), *sealed)
                begin = time.perf_counter()
                fold_batch(log.store, open_=open_)
                ours.append(OPENED / (time.perf_counter() - begin))
        log.store.close()
    return {
        "2_bare_openings": median(bare),
        "2_folded_envelopes": median(ours),
        "2_opening_ratio": median(o / b for o, b in zip(ours, bare, strict=True)),
    }


def _bare(raw: bytes, sealed: Sequence[bytes]) -> None:
    private = X25519PrivateKey.from_private_bytes(raw)
    for each in sealed:
        hpke.unseal(each[HEAD_BYTES:], private, each[:HEAD_BYTES])


def counting() -> dict[str, float | None]:
    """Reports a second after opening, SEEN ids seen before, and the most memory of the process, in MiB."""
    with tempfile.TemporaryDirectory() as place:
        log = prepared(Path(place), PERIODS)
        _see(log)
        before = _most_mebibytes()
        rates = []
        for batch in range(BATCHES):
            log.append(time.time(), *([b""] * UPLOADS))
            opened = _opened(log.survey, batch)
            begin = time.perf_counter()
            done = fold_batch(log.store, open_=lambda *_: opened)  # noqa: B023
            rates.append(done.reports / (time.perf_counter() - begin))
        log.store.close()
    return {
        "2_reports": median(rates),
        "2_reports_slowest": min(rates),
        "2_most_mebibytes": _most_mebibytes(),
        "2_most_mebibytes_before": before,
    }


def _see(log: Log) -> None:
    generator = np.random.default_rng(1)
    for period in range(1, PERIODS + 1):
        ids = np.sort(generator.integers(0, 2**63, (SEEN // PERIODS, 2), np.uint64), axis=0).astype(">u8")
        with log.store.writing() as connection:
            add_ids(connection, {(log.survey.id, period): ids.tobytes()})


def _opened(survey: Survey, seed: int) -> Opened:
    generator = np.random.default_rng(100 + seed)
    ids = generator.integers(0, 2**64, (UPLOADS, PERIODS * 2), np.uint64).view(np.uint8)
    standings = np.ones((UPLOADS, PERIODS), np.uint8)
    strata = np.zeros((UPLOADS, PERIODS * 2), np.uint8)
    closings = np.concatenate([ids, standings, strata], axis=1).tobytes()
    symbols = generator.integers(1, 6, (UPLOADS, PERIODS), np.uint8).tobytes()
    numbers = [upload_number(request, 0) for request in range(UPLOADS)]
    return Opened(UPLOADS, {Kind(survey.id, 0, 0, PERIODS): Sheaf(numbers, [closings], [[symbols]])})


def _most_mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """In a process of its own, whose memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work).result()
