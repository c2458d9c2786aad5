"""What an entry that is counted nowhere leaves in the files of a release."""

from itertools import count

import polars as pl
import pytest
from changeling_central import release
from changeling_central.testing import SeededNoise

DAY = {"every": "1d", "start": "2026-01-01", "until": "2026-01-09", "epsilon": 1}
OTHERS = [
    ("a", 1, "x", "p"),
    ("b", 2, "y", "q"),
    ("a", 3, "y", "p"),
    ("c", 4, "x", "r"),
    ("b", 5, "", "q"),
    ("a", 7, "", "p"),
]
UNCOUNTED = {
    1: [("v", -9, "odd, new", "s")],
    2: [("v", 4, "#z", "s"), ("v", 2, "c", "s")],
    3: [("v", 5, "", "s"), ("v", 8, "ä", "s"), ("v", 99, "d", "s")],
}
ENDS = {1: 3, 2: 6, 3: 9}


@pytest.mark.parametrize("late", ["drop", "shift"])
@pytest.mark.parametrize(
    ("query", "given", "suffix"),
    [
        (
            "answer == 'x'",
            {"mechanism": "square-root", "delta": "1e-6", "window": "2d", "afterwards": "after.csv"},
            ".csv",
        ),
        ("each answer in ('x', 'y')", {"freeze": True, "person": "who", "at_most": 2}, ".jsonl"),
    ],
)
def test_an_entry_that_is_counted_nowhere_leaves_no_byte_in_what_is_published(
    tmp_path, monkeypatch, query, given, suffix, late
):
    """Its rows come late, before the start and after the end, hold answers that nobody else does, and are frozen: with
    the same draws output, table and estimates afterwards are the same bytes, run for run, and so are head and notes."""
    worlds = []
    for victim in (False, True):
        folder, seeds, seen = tmp_path / str(victim), count(), []
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setattr("changeling_central.api.OpenDPNoise", lambda seeds=seeds: SeededNoise(next(seeds)))
        for run, end in ENDS.items():
            rows = [row for row in OTHERS if row[1] < end]
            rows += [row for when in range(1, run + 1) for row in UNCOUNTED[when] if victim]
            frame = pl.DataFrame(rows, schema=["entry", "day", "answer", "who"], orient="row")
            frame.with_columns(time=pl.datetime(2026, 1, 1) + pl.duration(days=pl.col("day") - 1, hours=12)).write_csv(
                "log.csv"
            )
            options = {"at_most": 6, "output": f"out{suffix}", "parquet": "table.parquet", "late": late, **DAY, **given}
            released = release("log.csv", query, through=f"2026-01-{end:02}", **options)
            files = {
                path.name: path.read_bytes() for path in folder.iterdir() if path.stem in ("out", "table", "after")
            }
            seen.append((files.keys() >= {f"out{suffix}", "table.parquet"}, files, released.notes, released.about))
        worlds.append(seen)
    assert worlds[0] == worlds[1]
