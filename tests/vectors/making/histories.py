"""How the next report of a history group is drawn, by what is remembered of those before it, and the memory after it.

As a device does it, in `changeling_protocol.responding`.
"""

from collections.abc import Iterator
from dataclasses import asdict, astuple
from functools import cache
from typing import Any

from changeling_protocol import Group, HistoryState, Memory, ReleasePlan, respond
from changeling_protocol.plan import plan_as_fields

from ...coins import ListedCoins
from .examples import HISTORY_GROUPS
from .notation import Case, drawn_near_every_edge, fields

MOST_MEMORIES = 12
"""Of each group so many are looked at, from the first to the last."""


def cases() -> list[Case]:
    """For each group reports after many rows of reports."""
    return [_group(group, answers) for group, answers in HISTORY_GROUPS]


def _group(group: Group, answers: int) -> Case:
    return {
        "kind": "group",
        "answers": answers,
        "group": fields(plan_as_fields(ReleasePlan((group,)))[0]),
        "histories": str(group.histories.possible.count),
        "reports": [*_reports(group)],
    }


def _reports(group: Group) -> Iterator[dict[str, Any]]:
    reached, layer = [HistoryState()], {HistoryState()}
    possible, states = group.histories.possible, range(group.histories.possible.states)
    for _ in range(possible.times - 1):
        layer = {
            group.histories.after(memory, true, symbol)
            for memory in layer
            for true in states
            for symbol in states
            if _may_follow(possible.going_on(memory), memory.last == symbol)
        }
        layer = set(sorted(layer, key=astuple)[:: max(1, len(layer) // MOST_MEMORIES)])
        reached += sorted(layer, key=astuple)
    step = max(1, len(reached) // MOST_MEMORIES)
    for memory in [*reached[::step], reached[-1]]:
        for true in (states[0], states[-1]):
            yield _report(group, true, memory)


def _may_follow(ways: tuple[int, int], stays: bool) -> bool:
    return ways[0 if stays else 1] > 0


def _report(group: Group, true: int, memory: HistoryState) -> dict[str, Any]:
    below = group.histories.total(true, memory)

    @cache
    def drawing(drawn: int) -> tuple[int, Memory | None]:
        return respond(group, 0, true, memory, ListedCoins([drawn]))

    chosen = drawn_near_every_edge(below, lambda drawn: drawing(drawn)[0], 3)
    return {
        "memory": _fields(memory),
        "input": true,
        "below": str(below),
        "symbols": [[str(drawn), str(drawing(drawn)[0]), _fields(drawing(drawn)[1])] for drawn in chosen],
    }


def _fields(memory: Memory | None) -> dict[str, Any] | None:
    return asdict(memory) if isinstance(memory, HistoryState) else None
