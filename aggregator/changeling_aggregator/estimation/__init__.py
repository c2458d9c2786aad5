"""From tallies to histograms: pure functions, no HTTP, no store, no clock."""

from .decoding import EmptyNode, histogram_change, input_counts
from .estimate import Estimate
from .histograms import Histogram, UsedNode, histogram, series

__all__ = [
    "EmptyNode",
    "Estimate",
    "Histogram",
    "UsedNode",
    "histogram",
    "histogram_change",
    "input_counts",
    "series",
]
