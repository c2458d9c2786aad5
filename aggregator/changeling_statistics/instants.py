"""Instants as people write and read them: ISO 8601, UTC where nothing else is said, or Unix seconds."""

from datetime import UTC, datetime

from changeling_protocol import LAST_INSTANT


def parse_instant(text: str) -> float:
    """Unix seconds, to the end of the year 9999. Raises ValueError.

    >>> parse_instant("1993-07-01"), parse_instant("741484800")
    (741484800.0, 741484800.0)
    """
    try:
        if text.isascii() and text.isdigit() and len(text) != 8:  # eight digits are a date, 19930701
            time = float(text)
        else:
            instant = datetime.fromisoformat(text)
            time = (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"a time is like 2026-01-31 or 2026-01-31T12:00:00Z, got {text!r}") from None
    if time > LAST_INSTANT:
        raise ValueError(f"there is no time after the year 9999, got {text!r}")
    return time


def format_instant(time: float) -> str:
    """ISO 8601 in UTC, to the second.

    >>> format_instant(741484800)
    '1993-07-01T00:00:00Z'
    """
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
