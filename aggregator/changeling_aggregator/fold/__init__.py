"""The fold: from the log to tallies, exactly once."""

from .folding import FoldReport, fold

__all__ = ["FoldReport", "fold"]
