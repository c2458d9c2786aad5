"""Measure 8 of the central releases: a million mutations through the default, and a hundred thousand periods.

The first goes through `release` itself, from a changelog in memory to rows on the disk: choosing the mechanism,
guarding the constraint, OpenDP's noise, states and rows saved. The second counts what the state holds, as it is saved.
"""

import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from changeling_central import Blocks, Mechanism, Shape, counting, drawn_ahead, release, square_root
from changeling_central.testing import SeededNoise
from changeling_protocol import AtMost, Calendar
from changeling_statistics import format_instant, read_frame

from .central_scale import PERIODS, made_up

LONG, ONE, SMALL, SEED = 100_000, Fraction(1), Fraction(1, 10**6), 8
COUNT = counting(["a"], ["a"], "a")


def measure() -> dict[str, float]:
    """Seconds, and kilobytes of the largest state of one column."""
    return {**million(), **long_stream()}


def million() -> dict[str, float]:
    log = read_frame(made_up())
    figures = {}
    for name, delta in (("pure", 0), ("delta", "1e-6")):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            release(
                log,
                "any answer",
                every="1h",
                epsilon=1,
                delta=delta,
                at_most=2,
                start=format_instant(0),
                until=format_instant(3600 * PERIODS),
                output=Path(folder) / "out.csv",
            )
            figures[f"8_default_million_{name}_s"] = time.perf_counter() - began
    return figures


def long_stream() -> dict[str, float]:
    """The square root cut off at 2^14 coefficients, and a tree with blocks of at most 2^16 periods."""
    calendar, nothing = Calendar(0, 3600, LONG), np.zeros(1, np.int64)
    tree = Shape(Blocks(LONG, (1, 13, 169, 2197, 28_561)), ((-0.3, 0.0, 0.5), *[(-1.2, -0.1, 0.4)] * 3))
    figures = {}
    mechanisms: dict[str, Mechanism[Any, Any, Any]] = {
        "square_root": square_root(COUNT, calendar, AtMost(2), ONE, SMALL),
        "ahead": drawn_ahead(COUNT, calendar, AtMost(2), ONE, tree),
    }
    for name, mechanism in mechanisms.items():
        state, noise, largest, began = mechanism.start(), SeededNoise(SEED), 0, time.perf_counter()
        for period in range(LONG):
            state, _ = mechanism.step(state, nothing, noise)
            if period % 4_000 == 1:
                largest = max(largest, len(mechanism.saved(state)))
        figures[f"8_long_{name}_s"] = time.perf_counter() - began
        figures[f"8_long_{name}_state_kb"] = largest / 1000
        figures[f"8_long_{name}_rmse"] = float(
            np.sqrt(np.mean([mechanism.variance(t) or 0.0 for t in range(1, LONG, 97)]))
        )
    return figures
