"""The fold: from the log to tallies, exactly once."""

from .engine import FoldEngine
from .folding import FoldReport, fold
from .opening_processes import OpeningProcesses
from .process import FoldProcess

__all__ = ["FoldEngine", "FoldProcess", "FoldReport", "OpeningProcesses", "fold"]
