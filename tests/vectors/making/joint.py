"""How the next report of a joint group is drawn, by what is remembered of those before it, and what is remembered then.

As a device does it, in `changeling_protocol.responding`.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

from changeling_protocol import Group, ReleasePlan, SlotState, agreeing, respond
from changeling_protocol.plan import plan_as_fields

from ...coins import ListedCoins
from .examples import JOINT_GROUPS
from .notation import Case, drawn_near_every_edge, fields, odds


def cases() -> list[Case]:
    """For each group the odds of its tracks, and reports after every number of slots used."""
    return [_group(group) for group in JOINT_GROUPS]


def _group(group: Group) -> Case:
    return {
        "kind": "group",
        "answers": group.tracks[0].randomizer.space.answers,
        "group": fields(plan_as_fields(ReleasePlan((group,)))[0]),
        "odds": [odds(track.randomizer.odds) for track in group.tracks],
        "reports": [*_reports(group)],
    }


def _reports(group: Group) -> Iterator[dict[str, Any]]:
    joint = group.joint
    assert joint is not None
    for place, used in product(range(len(group.tracks)), product(*(range(slots + 1) for slots in joint.slots))):
        randomizer = agreeing(group.tracks[place].randomizer)
        most = min(joint.threshold, sum(weight * slots for weight, slots in zip(joint.weights, used, strict=True)))
        for score, true in product(sorted({0, max(most - 1, 0), most}), (0, randomizer.space.size - 1)):
            slots = None if used == joint.slots else SlotState(used, score)
            yield _report(group, place, true, slots)


def _report(group: Group, place: int, true: int, slots: SlotState | None) -> dict[str, Any]:
    below = _below(group, place, true, slots)

    @cache
    def drawing(drawn: int) -> tuple[int, SlotState | None]:
        return respond(group, place, true, slots, ListedCoins([drawn]))

    chosen = drawn_near_every_edge(below, lambda drawn: drawing(drawn)[0], 3)
    return {
        "track": place,
        "slots": _slots(slots),
        "input": true,
        "below": str(below),
        "symbols": [[str(drawn), str(drawing(drawn)[0]), _slots(drawing(drawn)[1])] for drawn in chosen],
    }


def _below(group: Group, place: int, true: int, slots: SlotState | None) -> int:
    coins = ListedCoins([0])
    respond(group, place, true, slots, coins)
    (below,) = coins.asked
    return below


def _slots(slots: SlotState | None) -> dict[str, Any] | None:
    return None if slots is None else {"used": slots.used, "score": slots.score}
