"""Why a time cannot be estimated, and which node is missing for it.

Knows the plan and which of its nodes are published; nothing of estimates.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from changeling_protocol import Node, Survey

from ..errors import NotEstimable
from .releases import Releases, plan_nodes


class Missing(NamedTuple):
    """A node of the plan that is not published.

    track: the number of its track. node: its span.
    """

    track: int
    node: Node


@dataclass(frozen=True, slots=True)
class Gap:
    """A histogram, or the change of one, that the published nodes do not identify.

    span: the times that are not connected, (start, end]; for a histogram the start is 0.
    missing: the node that is missing, of those without which the two are not connected the first; None if no nodes
    of the plan lead there by then.
    """

    span: Node
    missing: Missing | None


def check_period(survey: Survey, period: int) -> None:
    """Raises ValueError for a period outside the calendar; 0 is its start."""
    if not 0 <= period <= survey.calendar.periods:
        raise ValueError(f"periods are numbered 0 to {survey.calendar.periods}, got {period}")


def not_estimable(releases: Releases, time: int, until: int, origin: int = 0) -> NotEstimable:
    """The error that names a missing node: the first one on the way from `origin` to `time` where fewest are missing.

    until: only nodes that close by this period count.
    """
    asked = f"period {time}" if origin == 0 else f"the window ({origin}, {time}]"
    missing = missing_on_the_way(releases, Node(origin, time), until)
    if missing is None:
        return NotEstimable(f"{asked} is not estimable: no nodes of the plan that close by period {until} lead to it")
    track, node = missing
    return NotEstimable(
        f"{asked} is not estimable: it needs the node ({node.start}, {node.end}] of track {track}, "
        "which has too few reports, or is not shown before late ones are in"
    )


def missing_on_the_way(releases: Releases, span: Node, until: int) -> Missing | None:
    """The first missing node on the way from one time to another where fewest are missing; None if there is no way.

    until: only nodes that close by this period count.
    """
    ways = _Ways(span.start)
    links = _links(releases)
    for time in range(1, until + 1):
        ways.join(links[time])
    return ways.missing(span.end)


def first_missing(releases: Releases, until: int, *, retrospective: bool) -> list[Missing | None]:
    """`missing_on_the_way` from time 0 to each time 1 to `until`.

    retrospective: whether all nodes count; if not, those that close by the time in question.
    """
    ways, links, periods = _Ways(0), _links(releases), releases.survey.calendar.periods
    online: list[Missing | None] = []
    for time in range(1, periods + 1):
        ways.join(links[time])
        online.append(ways.missing(time))
    return [ways.missing(time) for time in range(1, until + 1)] if retrospective else online[:until]


_Link: TypeAlias = tuple[int, int, Missing | None]
"""Two times, and the node between them if it is missing."""


class _Ways:
    """The ways from one time to all others on which fewest nodes are missing, as more nodes close.

    A way is known by how many are missing, and by the first of them to close.
    """

    def __init__(self, origin: int) -> None:
        self._best: dict[int, tuple[int, Missing | None]] = {origin: (0, None)}
        self._links: defaultdict[int, list[tuple[int, Missing | None]]] = defaultdict(list)

    def missing(self, time: int) -> Missing | None:
        """The first missing node on the way to a time; None if none is missing, or there is no way."""
        return self._best.get(time, (0, None))[1]

    def join(self, links: Sequence[_Link]) -> None:
        """More links; ways only get better."""
        for start, end, missing in links:
            self._links[start].append((end, missing))
            self._links[end].append((start, missing))
        waiting = deque(time for start, end, _ in links for time in (start, end) if time in self._best)
        while waiting:
            at = waiting.popleft()
            count, first = self._best[at]
            for other, missing in self._links[at]:
                reached = (count, first) if missing is None else (count + 1, _earlier(first, missing))
                if other not in self._best or reached[0] < self._best[other][0]:
                    self._best[other] = reached
                    waiting.append(other)


def _earlier(first: Missing | None, second: Missing) -> Missing:
    return (
        second if first is None else min(first, second, key=lambda each: (each.node.end, each.node.start, each.track))
    )


def _links(releases: Releases) -> defaultdict[int, list[_Link]]:
    """The nodes of the plan by the period with which they close."""
    published = {(used.track, used.number) for used in releases.nodes}
    planned = plan_nodes(releases.survey.plan)
    links: defaultdict[int, list[_Link]] = defaultdict(list)
    for key, span, start in zip(planned.keys, planned.spans, planned.start.tolist(), strict=True):
        links[span.end].append((start, span.end, None if key in published else Missing(key[0], span)))
    return links
