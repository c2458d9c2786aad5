"""Why a time cannot be estimated: the published nodes do not connect it, and one that is missing would.

Knows the plan and which of its nodes are published; nothing of estimates.
"""

from collections import defaultdict, deque

from changeling_protocol import Node, Survey

from ..errors import NotEstimable
from .releases import Releases

Missing = tuple[int, Node]
"""The track and the node of a release that is not published."""


def not_estimable(releases: Releases, time: int, until: int, origin: int = 0) -> NotEstimable:
    """The error that names the first missing node on the way from `origin` to `time` with the fewest missing.

    until: the last period whose releases may be used.
    """
    what = f"period {time}" if origin == 0 else f"the window ({origin}, {time}]"
    missing = _missing_between(releases, time, origin, until)
    if missing is None:
        return NotEstimable(f"{what} is not estimable: no nodes of the plan that close by period {until} lead to it")
    track, node = missing
    return NotEstimable(
        f"{what} is not estimable: it needs the node ({node.start}, {node.end}] of track {track}, "
        "which has too few reports"
    )


def _missing_between(releases: Releases, time: int, origin: int, until: int) -> Missing | None:
    """A path with the fewest missing nodes (0-1 breadth-first search), and of those the earliest."""
    links = _links(releases, until)
    reached: dict[int, tuple[Missing, ...]] = {}
    waiting: deque[tuple[int, tuple[Missing, ...]]] = deque([(origin, ())])
    while waiting:
        at, crossed = waiting.popleft()
        if at in reached:
            continue
        reached[at] = crossed
        if at == time:
            return min(crossed, key=lambda one: (one[1].end, one[1].start, one[0]), default=None)
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
    """ValueError for a period outside the calendar, 0 being its start."""
    if not 0 <= period <= survey.calendar.periods:
        raise ValueError(f"periods are numbered 0 to {survey.calendar.periods}, got {period}")
