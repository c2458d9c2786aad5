"""From tallies to histograms with their covariances. Pure functions: no HTTP, no store, no clock."""

from ..estimate import Estimate
from .covers import cover_histogram, cover_series
from .decoding import histogram_change, input_counts
from .display import displayed
from .histograms import Change, Gap, Histogram, change, histogram, series, sliding
from .regions import Ellipsoid, bands, correlated_bands, intervals, region
from .releases import UsedNode
from .smoother import Smoothed, smoothed_series
from .superpopulation import superpopulation_change

__all__ = [
    "Change",
    "Ellipsoid",
    "Estimate",
    "Gap",
    "Histogram",
    "Smoothed",
    "UsedNode",
    "bands",
    "change",
    "correlated_bands",
    "cover_histogram",
    "cover_series",
    "displayed",
    "histogram",
    "histogram_change",
    "input_counts",
    "intervals",
    "region",
    "series",
    "sliding",
    "smoothed_series",
    "superpopulation_change",
]
