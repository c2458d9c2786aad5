"""Errors between tallies and histograms.

    StatisticsError
    ├── NotEstimable       a time that the published nodes do not reach; names the first node that is missing
    ├── EmptyNode          a node on which nothing was reported (also a ValueError)
    └── BadChangelog       contradictory or unreadable rows; names the line (also a ValueError)

A bad argument is a ValueError with the value in it.
"""

from changeling_protocol import ChangelingError


class StatisticsError(ChangelingError):
    """Root of every error this package raises besides ValueError."""


class NotEstimable(StatisticsError):
    """A time that the published nodes do not reach."""


class EmptyNode(StatisticsError, ValueError):
    """Nothing was reported on a node, so it says nothing."""


class BadChangelog(StatisticsError, ValueError):
    """A changelog that contradicts itself or cannot be read; the message names the line."""
