"""Measure 1: one log, through SQLite, PostgreSQL and segments, comes to the same tallies, attendance and refusals.

To the byte. In the log are duplicates within and between streams, late, early, future, malformed and foreign reports.
"""

import tempfile
from pathlib import Path

from changeling_aggregator.fold import check, fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing import AFTER, counted_rows, prepared, reference_of
from changeling_aggregator.testing.bucket import small_bucket
from changeling_aggregator.testing.postgres import PostgreSQL

SEED, BATCH = 14, 23


def measure() -> dict[str, float | None]:
    with tempfile.TemporaryDirectory() as folder, PostgreSQL() as postgresql, small_bucket() as bucket:
        stores: dict[str, tuple[str, str | None]] = {
            "sqlite": (f"{folder}/rows.db", None),
            "postgresql": (postgresql.new(), None),
            "folder": (f"{folder}/folder.db", f"{folder}/segments"),
            "postgresql_folder": (postgresql.new(), f"{folder}/others"),
            "bucket": (f"{folder}/bucket.db", bucket.place),
        }
        figures: dict[str, float | None] = {}
        differences = 0
        for name, (place, segments) in stores.items():
            if segments is not None and "://" not in segments:
                Path(segments).mkdir()
            store = Store.open(place)
            log, streams = prepared(store, SEED, segments)
            log.append_to(streams)
            expected = reference_of(store)
            fold(store, AFTER, BATCH, closing=False)
            figures[f"1_{name}_is_the_same"] = counted_rows(store) == expected
            differences += len(check(store))
            store.close()
    figures["1_differences_folded_again"] = differences
    return figures | {f"1_rows_of_{table}": len(rows) for table, rows in expected.items()}
