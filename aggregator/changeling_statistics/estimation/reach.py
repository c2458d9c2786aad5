"""Why a time cannot be estimated, and which node is missing for it.

Knows the plan and which of its nodes are published; nothing of estimates.
"""

from collections import defaultdict, deque
from typing import TypeAlias

from changeling_protocol import Node, Survey

from ..errors import NotEstimable
from .releases import Releases

Missing: TypeAlias = tuple[int, Node]
"""A node that is not published, with the number of its track."""


def not_estimable(releases: Releases, time: int, until: int, origin: int = 0) -> NotEstimable:
    """The error that names a missing node: the first one on the way from `origin` to `time` where fewest are missing.

    until: only nodes that close by this period count.
    """
    asked = f"period {time}" if origin == 0 else f"the window ({origin}, {time}]"
    missing = _missing_between(releases, time, origin, until)
    if missing is None:
        return NotEstimable(f"{asked} is not estimable: no nodes of the plan that close by period {until} lead to it")
    track, node = missing
    return NotEstimable(
        f"{asked} is not estimable: it needs the node ({node.start}, {node.end}] of track {track}, "
        "which has too few reports"
    )


def _missing_between(releases: Releases, time: int, origin: int, until: int) -> Missing | None:
    """The earliest missing node on a path with the fewest of them; None if there is no path (0-1 breadth-first)."""
    links = _links(releases, until)
    reached: dict[int, tuple[Missing, ...]] = {}
    waiting: deque[tuple[int, tuple[Missing, ...]]] = deque([(origin, ())])
    while waiting:
        at, crossed = waiting.popleft()
        if at in reached:
            continue
        reached[at] = crossed
        if at == time:
            return min(crossed, key=lambda missing: (missing[1].end, missing[1].start, missing[0]), default=None)
        for other, missing in links[at]:
            if missing is None:
                waiting.appendleft((other, crossed))
            else:
                waiting.append((other, (*crossed, missing)))
    return None


def _links(releases: Releases, until: int) -> dict[int, list[tuple[int, Missing | None]]]:
    published = {(used.track, used.number) for used in releases.nodes}
    links: dict[int, list[tuple[int, Missing | None]]] = defaultdict(list)
    for number, track in enumerate(releases.survey.plan.tracks):
        for at, node in enumerate(track.nodes(), 1):
            if node.end <= until:
                start = node.start if track.reports_changes else 0
                missing = None if (number, at) in published else (number, node)
                links[start].append((node.end, missing))
                links[node.end].append((start, missing))
    return links


def check_period(survey: Survey, period: int) -> None:
    """Raises ValueError for a period outside the calendar; 0 is its start."""
    if not 0 <= period <= survey.calendar.periods:
        raise ValueError(f"periods are numbered 0 to {survey.calendar.periods}, got {period}")
