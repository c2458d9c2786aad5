"""An entry's states, as far as nodes that are not yet answered need them: one for each close at which one is needed.

A close is needed where a node that the entry has still to report ends or, on a track of changes, begins. A mutation is
kept at the first of these at or after its own period, and takes the place of what stood there; its time is not kept.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from changeling_protocol import NodeNumber, ReleasePlan, TrackNumber

NULL = 0
States = tuple[tuple[int, int], ...]
"""Pairs of a close's period and the state from that close on until the next pair's, rising by period."""
Drawn = Collection[tuple[TrackNumber, NodeNumber]]
"""Which nodes an entry reports of the tracks on which it reports only some; those not yet answered."""


@dataclass(frozen=True, slots=True)
class Needed:
    """Which closes are needed of an entry. answered: every node that ends by this period is answered or dropped."""

    plan: ReleasePlan
    group: int
    answered: int
    drawn: Drawn

    def first(self, period: int) -> int | None:
        """The first close that is needed at or after a period; None if there is none."""
        best = None
        for track in self.plan.groups[self.group].tracks:
            if track.reported is not None:
                continue
            first, width = track.first, track.width
            count = (track.last - first) // width
            unanswered = max((self.answered - first) // width + 1, 1)
            if unanswered > count:
                continue
            bound = -((first - period) // width)
            if bound < unanswered:
                bound = max(bound, unanswered - 1 if track.reports_changes else unanswered)
            if bound <= count and (best is None or first + bound * width < best):
                best = first + bound * width
        closes = [] if best is None else [best]
        for number, node_number in self.drawn:
            track = self.plan.tracks[number]
            node = track.node(node_number)
            if node.end > self.answered:
                bounds = (node.start, node.end) if track.reports_changes else (node.end,)
                closes += [close for close in bounds if close >= period]
        return min(closes, default=None)


def at_close(states: States, period: int) -> int:
    """The state when a period closed; NULL before the first. Right only for a close that is needed."""
    state = NULL
    for close, since in states:
        if close > period:
            break
        state = since
    return state


def current(states: States) -> int:
    """The state that the entry is in; NULL before its first mutation."""
    return states[-1][1] if states else NULL


def entered(states: States, close: int | None, state: int) -> States:
    """The states after a mutation that no later one follows: what was kept beyond goes.

    close: the first that is needed at or after the mutation's period; None if none is, and nothing is kept.
    If the entry had the state already at the needed close before, nothing remains of the mutation.
    """
    if close is None:
        return states
    before = tuple([each for each in states if each[0] < close])
    return before if current(before) == state else (*before, (close, state))


def brought_back(states: States, close: int | None) -> States:
    """The states when the present turns out to lie in a period before those of some mutations: they move into it.

    close: the first that is needed at or after the present period; None if none is.
    """
    if close is None or not states or states[-1][0] <= close:
        return states
    return entered(states, close, current(states))


def pruned(states: States, needed: Needed) -> States:
    """Only what is still needed, now that more is answered."""
    kept: States = ()
    for close, state in states:
        kept = entered(kept, needed.first(close), state)
    return kept


def as_row(states: States) -> list[int]:
    """Plain integers for the store."""
    return [number for pair in states for number in pair]


def from_row(row: Sequence[int]) -> States:
    """What `as_row` wrote."""
    return tuple(zip(row[::2], row[1::2], strict=True)) if row else ()
