"""The fold: from the log to tallies, exactly once."""

from .engine import EngineOptions, EnginePlugin, FoldEngine, engine_plugin
from .folding import FoldReport, fold
from .process import FoldProcess

__all__ = [
    "EngineOptions",
    "EnginePlugin",
    "FoldEngine",
    "FoldProcess",
    "FoldReport",
    "engine_plugin",
    "fold",
]
