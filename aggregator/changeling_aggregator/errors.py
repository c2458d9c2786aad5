"""What can go wrong on the server's side.

    AggregatorError
    ├── StoreError         a store that is from the future, or another program's
    ├── Overtaken          another folder counted the same envelopes first; nothing of ours was kept
    └── Overloaded         more uploads wait for the disk than we keep in memory

A refused report is a member of the protocol's Refusal, not an exception. A bad argument is a ValueError with the
value in it.
"""

from changeling_protocol.errors import ChangelingError


class AggregatorError(ChangelingError):
    """Root of every error this package raises besides ValueError."""


class StoreError(AggregatorError):
    """A store that this version cannot use."""


class Overtaken(AggregatorError):
    """Another folder counted the same envelopes first; this one's work is discarded."""


class Overloaded(AggregatorError):
    """More uploads wait for the disk than we keep in memory; the sender should come again."""
