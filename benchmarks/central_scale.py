"""Measure 4 of the central releases, its last part: a million mutations through HDCR, from the file to the estimates.

Half a million entries, inserted once and deleted once, over a thousand periods. Everything is timed: reading and
checking the file, guarding the constraint, adding up changes, OpenDP's noise, best estimates with variances.
"""

import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
from changeling_central import BestEstimates, OpenDPNoise, answer_query, first_breach, hierarchy, layer_bounds
from changeling_protocol import AtMost, Calendar
from changeling_statistics import Changelog, read_csv, read_parquet

ENTRIES, PERIODS, SEED = 500_000, 1_000, 4
NAMES = ["bus", "train", "tram", "ferry"]


def measure() -> dict[str, float]:
    """Seconds in all from CSV and from Parquet, and of the parts."""
    OpenDPNoise().laplace(1.0, 1)  # loads OpenDP
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        csv, parquet = Path(folder) / "log.csv", Path(folder) / "log.parquet"
        frame = made_up()
        frame.write_csv(csv)
        frame.write_parquet(parquet)
        for name, path in (("csv", csv), ("parquet", parquet)):
            began = time.perf_counter()
            log = read_csv(path) if name == "csv" else read_parquet(path)
            read = time.perf_counter()
            release(log)
            done = time.perf_counter()
            figures |= {f"4_hdcr_million_{name}_s": done - began, f"4_hdcr_million_{name}_read_s": read - began}
            figures[f"4_hdcr_million_{name}_release_s"] = done - read
    return figures


def release(log: Changelog) -> float:
    """The variance of the last estimate. Raises the breach of an entry beyond the constraint."""
    calendar, constraint = Calendar(0, 3600, PERIODS), AtMost(2)
    breach = first_breach(log, constraint)
    if breach is not None:
        raise breach.error()
    query = answer_query("each answer", log.answers, NAMES)
    changes = query.node_changes(log.mutations(), layer_bounds(calendar, 1))
    mechanism = hierarchy(query, calendar, constraint, Fraction(1), shape=(2, 10))
    estimates, noise = BestEstimates(PERIODS, mechanism.widths, query.width), OpenDPNoise()
    state, frontier, variance = mechanism.start(), estimates.start(), 0.0
    for change in changes:
        state, nodes = mechanism.step(state, change, noise)
        frontier, level = estimates.step(frontier, nodes)
        variance = level.variance
    return variance


def made_up() -> pl.DataFrame:
    random = np.random.default_rng(SEED)
    inserted = random.integers(0, PERIODS * 3600 * 9 // 10, ENTRIES)
    deleted = inserted + random.integers(1, PERIODS * 360, ENTRIES)
    answer = np.array(NAMES)[random.integers(0, len(NAMES), ENTRIES)]
    entry = np.arange(ENTRIES)
    columns = {
        "entry": np.concatenate([entry, entry]),
        "time": np.concatenate([inserted, deleted]),
        "answer": np.concatenate([answer, np.full(ENTRIES, "")]),
    }
    return pl.DataFrame(columns).sort("time")
