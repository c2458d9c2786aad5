"""What an entry draws when it enrols: its group, and its nodes; and what it draws for a closing's id."""

from collections.abc import Iterator

from changeling_protocol import Group, KaryResponse, Odds, ReleasePlan, StateSpace, Track, draw_closing_id, draw_nodes

from ...coins import SeededCoins
from .notation import Case, LoggedCoins

_STATES = KaryResponse(StateSpace(3), Odds(3, 1))


def cases() -> list[Case]:
    """Every draw with the coins it takes."""
    return [*_groups(), *_nodes(), _id()]


def _groups() -> Iterator[Case]:
    track = Track(1, _STATES, 0, 8)
    for shares in ((1,), (3, 2, 1), (1, 10**18, 5)):
        plan = ReleasePlan(tuple(Group((track,), share) for share in shares))
        for seed in range(4):
            coins = LoggedCoins(SeededCoins(seed))
            group = plan.draw_group(coins)
            yield {"kind": "group", "shares": [str(share) for share in shares], "coins": coins.taken(), "group": group}


def _nodes() -> Iterator[Case]:
    for count, reported in ((8, None), (1, 1), (8, 1), (8, 2), (8, 7), (8, 8), (100, 10)):
        for seed in range(3):
            coins = LoggedCoins(SeededCoins(seed))
            nodes = draw_nodes(Track(1, _STATES, 0, count, reported), coins)
            yield {"kind": "nodes", "count": count, "reported": reported, "coins": coins.taken(), "nodes": nodes}


def _id() -> Case:
    coins = LoggedCoins(SeededCoins(12))
    drawn = draw_closing_id(coins)
    return {"kind": "closing id", "coins": coins.taken(), "id": drawn.hex()}
