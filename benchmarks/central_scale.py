"""Measures 4, 8 and 15 of the central releases: a million mutations, a hundred thousand periods.

A million mutations are half a million entries, inserted once and deleted once, over a thousand periods: through HDCR
from the file to the estimates, through `release` with the mechanism that it chooses, and, as 672 hours, through a fully
dynamic count. Everything is timed: reading and checking the file, guarding the constraint, OpenDP's noise, states and
rows on the disk. The long streams count what the state holds, as it is saved.
"""

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
import polars as pl
from changeling_central import (
    Blocks,
    Mechanism,
    OpenDPNoise,
    PooledNoise,
    Shape,
    answer_query,
    counting,
    drawn_ahead,
    first_breach,
    release,
    square_root,
)
from changeling_central.testing import SeededNoise
from changeling_papers import BestEstimates, hierarchy, layer_bounds
from changeling_protocol import AtMost, Calendar
from changeling_statistics import Changelog, format_instant, read_csv, read_frame, read_parquet

ENTRIES, PERIODS, HOURS, LONG, SEED = 500_000, 1_000, 672, 100_000, 4
MINUTES = 44_640  # of a month
NAMES, TWICE, ONE, SMALL = ["bus", "train", "tram", "ferry"], AtMost(2), Fraction(1), Fraction(1, 10**6)
QUERY = {"query": "any answer", "every": "1h", "epsilon": 1, "at_most": 2, "start": format_instant(0)}


def measure() -> dict[str, float]:
    """Seconds, and kilobytes of the largest state of one column."""
    OpenDPNoise().laplace(1.0, 1)  # loads OpenDP
    frame = made_up()
    with tempfile.TemporaryDirectory() as folder:
        return {
            **through_hdcr(frame, Path(folder)),
            **through_release(frame, Path(folder)),
            **long_streams(),
            **month_of_minutes(),
            **memory(),
        }


def through_hdcr(frame: pl.DataFrame, folder: Path) -> dict[str, float]:
    """Seconds in all from CSV and from Parquet, and of the parts."""
    csv, parquet = folder / "log.csv", folder / "log.parquet"
    frame.write_csv(csv)
    frame.write_parquet(parquet)
    figures: dict[str, float] = {}
    for name, path in (("csv", csv), ("parquet", parquet)):
        began = time.perf_counter()
        log = read_csv(path) if name == "csv" else read_parquet(path)
        read = time.perf_counter()
        hdcr(log)
        done = time.perf_counter()
        figures |= {f"4_hdcr_million_{name}_s": done - began, f"4_hdcr_million_{name}_read_s": read - began}
        figures[f"4_hdcr_million_{name}_release_s"] = done - read
    return figures


def hdcr(log: Changelog) -> None:
    """Best estimates of four counts at the end of each period."""
    calendar = Calendar(0, 3600, PERIODS)
    if (breach := first_breach(log, TWICE)) is not None:
        raise breach.error()
    query = answer_query("each answer", log.answers, NAMES)
    mechanism = hierarchy(query, calendar, TWICE, ONE, shape=(2, 10))
    estimates, noise = BestEstimates(PERIODS, mechanism.widths, query.width), OpenDPNoise()
    state, frontier = mechanism.start(), estimates.start()
    for change in query.node_changes(log.mutations(), layer_bounds(calendar, 1)):
        state, nodes = mechanism.step(state, change, noise)
        frontier, _ = estimates.step(frontier, nodes)


def through_release(frame: pl.DataFrame, folder: Path) -> dict[str, float]:
    """The mechanism that is chosen, from memory; a fully dynamic count of all entries and of half, from a file."""
    figures: dict[str, float] = {}
    log = read_frame(frame)
    for name, delta in (("pure", 0), ("delta", "1e-6")):
        options: dict[str, Any] = {**QUERY, "until": format_instant(3600 * PERIODS), "delta": delta}
        began = time.perf_counter()
        release(log, **options, output=folder / f"{name}.csv")
        figures[f"8_default_million_{name}_s"] = time.perf_counter() - began
    hours = frame.with_columns(time=pl.col("time") * (HOURS / PERIODS))
    for name, entries in (("half", hours.filter(pl.col("entry") % 2 == 0)), ("all", hours)):
        options = {**QUERY, "until": format_instant(3600 * HOURS), "mechanism": "dynamic"}
        entries.write_csv(path := folder / f"{name}.log.csv")
        began = time.perf_counter()
        released = release(path, **options, output=folder / f"{name}.out.csv")
        figures[f"8_dynamic_{name}_s"] = time.perf_counter() - began
        figures[f"8_dynamic_{name}_periods"] = released.published
    return figures


def long_streams() -> dict[str, float]:
    """The square root cut off at 2^14 coefficients, and a tree with blocks of at most 2^16 periods."""
    calendar, count, nothing = Calendar(0, 3600, LONG), counting(["a"], ["a"], "a"), np.zeros(1, np.int64)
    tree = Shape(Blocks(LONG, (1, 13, 169, 2197, 28_561)), ((-0.3, 0.0, 0.5), *[(-1.2, -0.1, 0.4)] * 3))
    mechanisms: dict[str, Mechanism[Any, Any, Any]] = {
        "square_root": square_root(count, calendar, TWICE, ONE, SMALL),
        "ahead": drawn_ahead(count, calendar, TWICE, ONE, tree),
    }
    figures: dict[str, float] = {}
    for name, mechanism in mechanisms.items():
        state, noise, largest, began = mechanism.start(), SeededNoise(8), 0, time.perf_counter()
        for period in range(LONG):
            state, _ = mechanism.step(state, nothing, noise)
            if period % 4_000 == 1:
                largest = max(largest, len(mechanism.saved(state)))
        variances = [mechanism.variance(t) or 0.0 for t in range(1, LONG, 97)]
        figures[f"8_long_{name}_s"] = time.perf_counter() - began
        figures[f"8_long_{name}_state_kb"] = largest / 1000
        figures[f"8_long_{name}_rmse"] = float(np.sqrt(np.mean(variances)))
    return figures


def month_of_minutes() -> dict[str, float]:
    """Milliseconds a period of the square root over 44,640 periods, exact noise included."""
    root, nothing = (
        square_root(counting(["a"], ["a"], "a"), Calendar(0, 60, MINUTES), TWICE, ONE, SMALL),
        np.zeros(1, int),
    )
    state, noise = root.start(), PooledNoise(OpenDPNoise())
    began = time.perf_counter()
    for _ in range(MINUTES):
        state, _ = root.step(state, nothing, noise)
    return {"15_square_root_44640_ms": 1000 * (time.perf_counter() - began) / MINUTES}


def memory() -> dict[str, float]:
    """Seconds and gigabytes of a process that releases a million mutations from a frame, libraries included."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        seconds, kilobytes = pool.submit(_in_a_process).result()
    return {"15_million_s": seconds, "15_million_gb": kilobytes / 2**20}


def _in_a_process() -> tuple[float, int]:
    frame = made_up()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        options: dict[str, Any] = {**QUERY, "until": format_instant(3600 * PERIODS)}
        release(frame, **options, output=Path(folder) / "out.csv")
        return time.perf_counter() - began, getrusage(RUSAGE_SELF).ru_maxrss


def made_up() -> pl.DataFrame:
    """The mutations of all entries, each of one answer for a while."""
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
