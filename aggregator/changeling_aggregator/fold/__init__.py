"""The fold: from the log to tallies, exactly once."""

from .folding import FoldReport, fold
from .process import FoldProcess

__all__ = ["FoldProcess", "FoldReport", "fold"]
