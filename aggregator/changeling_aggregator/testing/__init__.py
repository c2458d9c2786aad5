"""The contracts of stores and fold engines, for those that somebody adds too, and what our own tests share.

Nothing that runs imports it.
"""

from .fold_engines import (
    AFTER,
    PLANS,
    SURVEYS,
    Append,
    FoldEngineContract,
    Reference,
    appender,
    fold_out_of_turn,
    honest,
    hostile,
    prepared,
    reference_rows,
)
from .store_contract import StoreContract
from .stores import AUTHORITY, Opener, SegmentedStore, append_segments, counted_rows, publish_new_key, sql, tallies_in

__all__ = [
    "AFTER",
    "AUTHORITY",
    "PLANS",
    "SURVEYS",
    "Append",
    "FoldEngineContract",
    "Opener",
    "Reference",
    "SegmentedStore",
    "StoreContract",
    "append_segments",
    "appender",
    "counted_rows",
    "fold_out_of_turn",
    "honest",
    "hostile",
    "prepared",
    "publish_new_key",
    "reference_rows",
    "sql",
    "tallies_in",
]
