"""Data that come and go: the fully dynamic mechanism and its tree, and insertions minus deletions to compare with."""

from .fully_dynamic import FullyDynamic, Protects, Update, fully_dynamic
from .insertion_deletion import InsertionMinusDeletion, insertion_minus_deletion
from .interval_tree import Born, IntervalTree, Segment

__all__ = [
    "Born",
    "FullyDynamic",
    "InsertionMinusDeletion",
    "IntervalTree",
    "Protects",
    "Segment",
    "Update",
    "fully_dynamic",
    "insertion_minus_deletion",
]
