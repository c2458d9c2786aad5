"""Data that come and go: the fully dynamic mechanism, and insertions minus deletions to compare it with."""

from .fully_dynamic import FullyDynamic, Protects, Update, fully_dynamic
from .insertion_deletion import InsertionMinusDeletion, insertion_minus_deletion

__all__ = [
    "FullyDynamic",
    "InsertionMinusDeletion",
    "Protects",
    "Update",
    "fully_dynamic",
    "insertion_minus_deletion",
]
