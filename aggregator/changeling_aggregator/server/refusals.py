"""How often this process turned somebody down, by reason: of requests the code of the answer, of connections these.

Refused reports are counted in the store, by survey.
"""

from collections import Counter
from enum import StrEnum

from changeling_protocol.wire import ErrorCode


class Refused(StrEnum):
    """Why a connection was closed, or a request was not even answered by the application."""

    NO_ROOM = "no_room"
    """Every open connection is at work."""
    DISPLACED = "displaced"
    """It had waited longest for its client when there was no room for another."""
    OVERDUE = "overdue"
    """Its client did not ask, go on, or read the answer in time."""
    HEAD_TOO_LONG = "head_too_long"
    """The head of a request, its trailers, or what stands between chunks is too long."""
    NOT_HTTP = "not_http"
    """It is no HTTP, or too many requests at once."""


_counts: Counter[ErrorCode | Refused] = Counter()


def count_refused(reason: ErrorCode | Refused) -> None:
    """Count one more."""
    _counts[reason] += 1


def refused_so_far() -> dict[ErrorCode | Refused, int]:
    """How often each reason occurred since this process began."""
    return dict(_counts)
