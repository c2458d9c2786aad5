"""Times as people write them, in Unix microseconds: Unix seconds, or ISO 8601, UTC where it names no offset.

An error never repeats the field: where columns are swapped it is somebody's answer.
"""

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

MICROSECONDS = 10**6
"""In a second."""

Time: TypeAlias = datetime | float | str

LATEST = 253_402_300_800
"""The start of the year 10000, in Unix seconds. What is beyond it is most often meant as milliseconds."""

UNREADABLE = "its time is neither in ISO 8601 nor in Unix seconds"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(time: Time) -> int:
    """A time in Unix microseconds.

    time: a datetime, Unix seconds, or either as text; in UTC if it names no offset.
    Raises ValueError for what is no time, or is beyond the year 9999; the error does not repeat it.
    """
    if isinstance(time, str):
        time = _parsed(time)
    if isinstance(time, datetime):
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MICROSECOND
    if time != time:
        raise ValueError(UNREADABLE)
    if not abs(time) < LATEST:
        raise ValueError("its time is beyond the year 9999 in Unix seconds; are these milliseconds?")
    return round(time * MICROSECONDS)


def _parsed(text: str) -> datetime | float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(UNREADABLE) from None
