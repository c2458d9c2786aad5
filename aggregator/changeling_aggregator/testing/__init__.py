"""What tests of this package, and of stores and fold engines that somebody adds, are written with.

Nothing that runs imports it.
"""

from .fold_engines import FoldEngineContract, Reference, fold_out_of_turn, reference_of, reference_rows
from .hostile_log import AFTER, PLANS, SURVEYS, Append, HostileLog, appender, honest, hostile, prepared
from .store_contract import Opener, StoreContract
from .stores import SegmentedStore, counted_rows, sql

__all__ = [
    "AFTER",
    "PLANS",
    "SURVEYS",
    "Append",
    "FoldEngineContract",
    "HostileLog",
    "Opener",
    "Reference",
    "SegmentedStore",
    "StoreContract",
    "appender",
    "counted_rows",
    "fold_out_of_turn",
    "honest",
    "hostile",
    "prepared",
    "reference_of",
    "reference_rows",
    "sql",
]
