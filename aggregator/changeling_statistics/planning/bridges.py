"""How soon after a lost period a plan's estimates are back.

If the server is down while a period closes, no node that ends then is published. Estimates are back once the nodes that
have closed connect with time 0 again: reports of states do that at once, and so does a change over a node that begins
before the loss and ends after it. Knows plans and times; nothing of variances.
"""

from collections.abc import Iterable, Sequence

from changeling_protocol import Group, Track

from ..estimation.entry_covariance import GroupEdges

SOON = 10
"""A lost period is bridged if estimates are back within this part of the horizon."""


def allowed_gap(periods: int) -> int:
    """⌈T/10⌉: how many periods may be without an estimate after a loss, the lost one among them.

    periods: T, of the horizon.
    """
    return -(-periods // SOON)


def lost_period(periods: int) -> int:
    """The period whose loss stands for that of any: the middle one.

    periods: T, of the horizon.
    """
    return -(-periods // 2)


def back_by(lost: int, periods: int) -> int:
    """The period by which estimates are to be back after a loss, or the last one.

    periods: T, of the horizon.
    """
    return min(periods, lost + allowed_gap(periods))


def longest_gap(tracks: Iterable[Track], periods: int, *, retrospective: bool = False) -> int:
    """How long estimates are missing at worst if any one period is lost, in periods.

    That is from the lost period until estimates are back for good, both counted: 1 if the next period has one again.
    Where all is over, it is counted likewise to the farthest period without an estimate, before or after the loss; 0 if
    there is none.

    tracks: those of a plan. periods: T, of the horizon.
    retrospective: whether all nodes may be used for every period; if not, those that have closed by its end.
    """
    reached, everything = _reached(tracks, periods, retrospective), (1 << periods + 1) - 2
    longest = 0
    for time in range(1, periods + 1):
        missing = everything & ~reached[time]
        earlier = missing & ((1 << time + 1) - 1)
        if earlier:
            longest = max(longest, time - _first(earlier) + 1)
        if retrospective and missing:
            longest = max(longest, missing.bit_length() - time)
    return longest


def edges_without(group: Group, lost: int | None) -> GroupEdges:
    """The edges of a group's nodes, but for those that end with a period that is lost; None for none."""
    edges = GroupEdges.of(group)
    kept = edges.end != (-1 if lost is None else lost)
    return GroupEdges(group, edges.place[kept], edges.start[kept], edges.end[kept])


def _reached(tracks: Iterable[Track], periods: int, retrospective: bool) -> Sequence[int]:
    """For each time 0..T the lost periods under which it is connected with time 0: bit l of an integer for period l.

    Online as it was when the time closed; retrospective as it is in the end.
    """
    starts = _starts(tracks, periods)
    reached = [(1 << periods + 1) - 2] + [0] * periods
    first = list(reached)
    neighbours: list[list[tuple[int, int]]] = [[] for _ in starts]
    for end, begun in enumerate(starts):
        for start in begun:
            neighbours[start].append((end, end))
            neighbours[end].append((start, end))
        changed = [*begun]
        while changed:
            time = changed.pop()
            for other, closing in neighbours[time]:
                more = reached[time] & ~(1 << closing) & ~reached[other]
                if more:
                    reached[other] |= more
                    changed.append(other)
        first[end] = reached[end]
    return reached if retrospective else first


def _starts(tracks: Iterable[Track], periods: int) -> list[set[int]]:
    """For each time 0..T the starts of the edges that end then; a report of a state starts at 0."""
    starts: list[set[int]] = [set() for _ in range(periods + 1)]
    for track in tracks:
        for node in track.nodes():
            starts[node.end].add(node.start if track.reports_changes else 0)
    return starts


def _first(bits: int) -> int:
    """The number of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
