"""What a store came to, for comparing what two engines made of one log."""

from typing import Any

from changeling_aggregator.segments import place_at
from changeling_aggregator.segments.parquet import read_ids
from changeling_aggregator.store import Store
from changeling_aggregator.testing import AFTER, SURVEYS, counted_rows, prepared, sql

__all__ = ["AFTER", "SURVEYS", "contents", "counted_ids", "prepared"]


def contents(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """What was counted, row by row and byte by byte, how far, and the requests that are kept for an early closing."""
    early = sql(store, "SELECT stream, position, needed_until FROM log WHERE needed_until IS NOT NULL")
    with store.view() as view:
        return {**counted_rows(store), "cursors": sorted(view.counted_positions().items()), "early": sorted(early)}


def counted_ids(store: Store) -> list[bytes]:
    """Every id in the registered files."""
    with store.view() as view:
        files = view.id_files()
    packed = [ids for file in files for _, ids in read_ids(place_at(file.place), file.name, 0)]
    return [ids[at : at + 16] for ids in packed for at in range(0, len(ids), 16) if len(set(ids[at : at + 16])) > 4]
