"""What can go wrong on the server's side.

    AggregatorError
    ├── NotEstimable       a time that the published nodes do not reach; names the first node that is missing
    ├── BadChangelog       contradictory or unreadable rows; names the line (also a ValueError)
    ├── StoreError         a store that is from the future, or another program's
    ├── Overtaken          another folder counted the same envelopes first; nothing of ours was kept
    └── Overloaded         more uploads wait for the disk than we keep in memory

A refused report is a member of Refusal, not an exception. A bad argument is a ValueError with the value in it.
"""


class AggregatorError(Exception):
    """Root of every error this package raises besides ValueError."""


class NotEstimable(AggregatorError):
    """A time that the published nodes do not reach."""


class BadChangelog(AggregatorError, ValueError):
    """A changelog that contradicts itself or cannot be read; the message names the line."""


class StoreError(AggregatorError):
    """A store that this version cannot use."""


class Overtaken(AggregatorError):
    """Another folder counted the same envelopes first; this one's work is discarded."""


class Overloaded(AggregatorError):
    """More uploads wait for the disk than we keep in memory; the sender should come again."""
