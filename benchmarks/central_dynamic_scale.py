"""Measure 8 of the central releases, in part: a fully dynamic count of half a million entries over four weeks of hours.

The whole of `release`: reading and checking the file, the ledger, every period's updates, OpenDP's noise, the database
in the state on the disk. A period costs what changed in it, so twice the entries take about twice as long.
"""

import tempfile
import time
from pathlib import Path

import polars as pl
from changeling_central import release

from .central_scale import PERIODS, made_up

HOURS = 672


def measure() -> dict[str, float]:
    """Seconds for all entries, and for half of them."""
    whole = made_up().with_columns(time=pl.col("time") * (HOURS / PERIODS))
    figures: dict[str, float] = {}
    for name, frame in (("half", whole.filter(pl.col("entry") % 2 == 0)), ("all", whole)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.csv"
            frame.write_csv(path)
            began = time.perf_counter()
            released = release(
                path,
                "any answer",
                every="1h",
                epsilon=1,
                at_most=2,
                start="1970-01-01",
                until="1970-01-29",
                mechanism="dynamic",
                output=Path(folder) / "out.csv",
            )
            figures[f"8_dynamic_{name}_s"] = time.perf_counter() - began
            figures[f"8_dynamic_{name}_periods"] = released.published
    return figures
