"""The aggregation server: surveys and keys out, sealed uploads in, histograms out. Here are the errors of its wings."""

from .errors import (
    AggregatorError,
    FoldDied,
    FoldOver,
    Overloaded,
    Overtaken,
    SegmentLost,
    SpoolError,
    StoreError,
    TurnedDown,
    Unwritable,
    UpstreamTrouble,
)

__all__ = [
    "AggregatorError",
    "FoldDied",
    "FoldOver",
    "Overloaded",
    "Overtaken",
    "SegmentLost",
    "SpoolError",
    "StoreError",
    "TurnedDown",
    "Unwritable",
    "UpstreamTrouble",
]
