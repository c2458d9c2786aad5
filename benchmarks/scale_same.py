"""Measure 1: one log, in rows and in segments, folded here and on Spark, comes to what a reference counts, to the byte.

In the log are duplicates within and between streams, late, early, future, malformed and foreign reports.
"""

import tempfile
from contextlib import closing, suppress
from pathlib import Path

from changeling_aggregator.fold import check, fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing import AFTER, counted_rows, prepared, reference_of
from changeling_aggregator.testing.bucket import small_bucket
from changeling_aggregator.testing.postgres import PostgreSQL
from changeling_spark import ClusterSettings, SparkTrouble
from changeling_spark.folding import SparkFold

SEED, BATCH = 14, 23


def measure() -> dict[str, float | None]:
    """Whether each is the same; None for Spark where there is no Java."""
    with tempfile.TemporaryDirectory() as folder, PostgreSQL() as postgresql, small_bucket() as bucket:
        stores: dict[str, tuple[str, str | None]] = {
            "sqlite": (f"{folder}/rows.db", None),
            "postgresql": (postgresql.new(), None),
            "folder": (f"{folder}/folder.db", f"{folder}/segments"),
            "postgresql_folder": (postgresql.new(), f"{folder}/others"),
            "bucket": (f"{folder}/bucket.db", bucket.place),
            "spark": (f"{folder}/spark.db", f"{folder}/sparks"),
        }
        figures: dict[str, float | None] = {}
        differences = 0
        for name, (place, segments) in stores.items():
            if segments is not None and "://" not in segments:
                Path(segments).mkdir()
            with closing(Store.open(place)) as store:
                log, streams = prepared(store, SEED, segments)
                log.append_to(streams)
                expected = reference_of(store)
                figures[f"1_{name}_is_the_same"] = _folded(name, store, folder) and counted_rows(store) == expected
                differences += len(check(store))
    figures["1_differences_folded_again"] = differences
    return figures | {f"1_rows_of_{table}": len(rows) for table, rows in expected.items()}


def _folded(name: str, store: Store, folder: str) -> bool | None:
    """Fold a store; None where that cannot be done here."""
    if name != "spark":
        fold(store, AFTER, BATCH, closing=False)
        return True
    with suppress(SparkTrouble), closing(SparkFold(store, ClusterSettings("local[2]"), folder)) as engine:
        engine.await_start()
        engine.fold(AFTER, closing=False)
        return True
    return None
