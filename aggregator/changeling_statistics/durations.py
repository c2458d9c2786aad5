"""Durations as people write them on a command line: `10s`, `15m`, `1h`, `90d`, `13w`.

A duration is a fixed number of seconds. There are no months or years, whose lengths differ.
"""

import re

SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}

_FORM = re.compile(r"(\d{1,12})\s*([smhdw])", re.ASCII)


def parse_duration(text: str) -> int:
    """The seconds of a whole number and its unit: s, m (minutes), h, d or w.

    Raises ValueError for anything else, and for a duration of zero.

    >>> parse_duration("13w")
    7862400
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"a duration is a whole number and one of s, m (minutes), h, d, w, such as 90d or 13w: got {text!r}"
        )
    seconds = int(match[1]) * SECONDS[match[2]]
    if seconds == 0:
        raise ValueError(f"a duration must be at least one second, got {text!r}")
    return seconds


def format_duration(seconds: int) -> str:
    """The duration in the widest unit that divides it.

    >>> format_duration(7862400)
    '13w'
    """
    unit = next(unit for unit, length in SECONDS.items() if seconds % length == 0)
    return f"{seconds // SECONDS[unit]}{unit}"
