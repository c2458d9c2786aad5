"""The fold: from the log to tallies, exactly once.

    fold, FoldReport                           one fold of a store, in this process, and what it did
    FoldProcess                                the same in a process of its own
    check, TallyDifference                          folding the kept log again, and comparing
    EngineOptions, FoldEngine, engine_plugin   folds beyond one machine, which other packages bring

An engine of another package is written with the rest: `in_turn` surrounds what it counts, `Opener` opens uploads into
the columns of `Opened`, `count` and `fresh_closings` are the embedded fold's own.
"""

from ..opening import ColumnLayout, Opened, Opener, OpeningProcesses, Sheaf, open_requests, upload_number
from .counting import OF_A_SURVEY, BatchCounts, TallyDifference, UploadRows, check, count, fresh_closings
from .engine import EngineOptions, EnginePlugin, FoldEngine, FoldProcess, engine_plugin
from .folding import MOST_AHEAD_MS, MOST_RETENTION_SECONDS, FoldReport, fold, in_turn
from .ids import SeenIds, add_ids, ids_in, merged_ids

__all__ = [
    "MOST_AHEAD_MS",
    "MOST_RETENTION_SECONDS",
    "OF_A_SURVEY",
    "BatchCounts",
    "ColumnLayout",
    "EngineOptions",
    "EnginePlugin",
    "FoldEngine",
    "FoldProcess",
    "FoldReport",
    "Opened",
    "Opener",
    "OpeningProcesses",
    "SeenIds",
    "Sheaf",
    "TallyDifference",
    "UploadRows",
    "add_ids",
    "check",
    "count",
    "engine_plugin",
    "fold",
    "fresh_closings",
    "ids_in",
    "in_turn",
    "merged_ids",
    "open_requests",
    "upload_number",
]
