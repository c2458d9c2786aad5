"""Which periods have closed at a time, and which of them are closings of a plan."""

from collections.abc import Iterator

from changeling_protocol import Calendar, UnixSeconds, closings

from .examples import SURVEYS
from .notation import Case

_CALENDAR = Calendar(1_800_000_000, 60, 8)


def cases() -> list[Case]:
    """Times beside every edge, then the closings of some plans."""
    return [*_closed(), *_closings()]


def _closed() -> Iterator[Case]:
    start = _CALENDAR.start * 1000
    edges = [start + 60_000 * period for period in (0, 1, 2, 7, 8)]
    for time_ms in sorted({0, start - 10**6, start + 10**9, *(edge + off for edge in edges for off in (-1, 0, 1))}):
        closed = _CALENDAR.closed(UnixSeconds(time_ms / 1000))
        calendar = [_CALENDAR.start, _CALENDAR.period, _CALENDAR.periods]
        yield {"kind": "closed", "calendar": calendar, "time_ms": time_ms, "closed": closed}


def _closings() -> Iterator[Case]:
    for name in ("hierarchy", "mixed", "closed", "states", "time-bounded"):
        survey = SURVEYS[name]
        last = survey.calendar.periods
        plan = survey.as_fields()["plan"]
        tracks = [[each[k] for k in ("width", "first", "last")] for group in plan for each in group["tracks"]]
        for after, until in ((0, last), (3, 6), (4, 4), (last - 1, last)):
            periods = closings(survey.plan, after, until)
            yield {"kind": "closings", "tracks": tracks, "after": after, "until": until, "periods": periods}
