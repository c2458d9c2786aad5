"""The fold: from the log to tallies, exactly once."""

from .engine import FoldEngine
from .folding import FoldReport, fold
from .process import FoldProcess

__all__ = ["FoldEngine", "FoldProcess", "FoldReport", "fold"]
