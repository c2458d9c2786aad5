"""What a device draws: its group and nodes, an id, symbols, and the next report of a joint or a history group.

Every draw stands with the coins that it takes. Whoever draws the integers uniformly has the law of our devices.
"""

from dataclasses import asdict, astuple
from functools import cache, partial
from itertools import product

from changeling_protocol import (
    Group,
    HistoryState,
    KaryResponse,
    Odds,
    ReleasePlan,
    SlotState,
    StateSpace,
    Track,
    agreeing,
    draw_closing_id,
    draw_nodes,
    randomizer_as_fields,
    respond,
    symbol_bytes,
)
from changeling_protocol.plan import plan_as_fields

from ...coins import ListedCoins, SeededCoins
from .examples import HISTORY_GROUPS, JOINT_GROUPS, RANDOMIZERS
from .notation import LoggedCoins, drawn_near_every_edge, fields, odds, some

_STATES = KaryResponse(StateSpace(3), Odds(3, 1))
MOST_MEMORIES = 12
"""Of each history group so many memories are looked at, from the first to the last."""


def draws():
    """What an entry draws when it enrols: its group, and its nodes; and what it draws for a closing's id."""
    track = Track(1, _STATES, 0, 8)
    for shares in ((1,), (3, 2, 1), (1, 10**18, 5)):
        plan = ReleasePlan(tuple(Group((track,), share) for share in shares))
        for seed in range(4):
            coins = LoggedCoins(SeededCoins(seed))
            group = plan.draw_group(coins)
            yield {"kind": "group", "shares": [str(share) for share in shares], "coins": coins.taken(), "group": group}
    for count, reported in ((8, None), (1, 1), (8, 1), (8, 2), (8, 7), (8, 8), (100, 10)):
        for seed in range(3):
            coins = LoggedCoins(SeededCoins(seed))
            nodes = draw_nodes(Track(1, _STATES, 0, count, reported), coins)
            yield {"kind": "nodes", "count": count, "reported": reported, "coins": coins.taken(), "nodes": nodes}
    coins = LoggedCoins(SeededCoins(12))
    drawn = draw_closing_id(coins)
    yield {"kind": "closing id", "coins": coins.taken(), "id": drawn.hex()}


def symbols():
    """Which symbol a drawn integer selects, for every randomizer by itself with some of its inputs."""
    for randomizer in RANDOMIZERS:
        most = 13 if randomizer.symbols < 10**6 else 3
        yield {
            "kind": "randomizer",
            "randomizer": fields(randomizer_as_fields(randomizer)),
            "answers": randomizer.space.answers,
            "symbols": str(randomizer.symbols),
            "bytes": symbol_bytes(randomizer),
            "inputs": [_input(randomizer, true) for true in some(randomizer.space.size, most)],
        }


def _input(randomizer, true):
    total, symbol_at = randomizer.total(true), partial(randomizer.symbol_at, true=true)
    return {
        "input": true,
        "states": randomizer.space.pair(true),
        "below": str(total),
        "symbols": [[str(drawn), str(symbol_at(drawn))] for drawn in drawn_near_every_edge(total, symbol_at, 8)],
    }


def joint():
    """For each joint group the odds of its tracks, and reports after every number of slots used."""
    for group in JOINT_GROUPS:
        yield {
            **_of_group(group, group.tracks[0].randomizer.space.answers),
            "odds": [odds(track.randomizer.odds) for track in group.tracks],
            "reports": [*_joint_reports(group)],
        }


def _joint_reports(group):
    told = group.joint
    for place, used in product(range(len(group.tracks)), product(*(range(slots + 1) for slots in told.slots))):
        randomizer = agreeing(group.tracks[place].randomizer)
        most = min(told.threshold, sum(weight * slots for weight, slots in zip(told.weights, used, strict=True)))
        for score, true in product(sorted({0, max(most - 1, 0), most}), (0, randomizer.space.size - 1)):
            memory = None if used == told.slots else SlotState(used, score)
            report = _report(group, place, true, memory)
            yield {"track": place, "slots": report.pop("memory"), **report}


def histories():
    """For each history group reports after many rows of reports, by what is remembered of them."""
    for group, answers in HISTORY_GROUPS:
        count = str(group.histories.possible.count)
        yield {**_of_group(group, answers), "histories": count, "reports": [*_history_reports(group)]}


def _history_reports(group):
    reached, layer = [HistoryState()], {HistoryState()}
    possible, states = group.histories.possible, range(group.histories.possible.states)
    for _ in range(possible.times - 1):
        layer = {
            group.histories.after(memory, true, symbol)
            for memory in layer
            for true in states
            for symbol in states
            if possible.going_on(memory)[0 if memory.last == symbol else 1] > 0
        }
        layer = set(sorted(layer, key=astuple)[:: max(1, len(layer) // MOST_MEMORIES)])
        reached += sorted(layer, key=astuple)
    for memory in [*reached[:: max(1, len(reached) // MOST_MEMORIES)], reached[-1]]:
        for true in (states[0], states[-1]):
            yield _report(group, 0, true, memory)


def _of_group(group, answers):
    return {"kind": "group", "answers": answers, "group": fields(plan_as_fields(ReleasePlan((group,)))[0])}


def _report(group, place, true, memory):
    """The symbols that drawn integers select, and what is remembered then: as `changeling_protocol.respond` does it."""
    coins = ListedCoins([0])
    respond(group, place, true, memory, coins)
    (below,) = coins.asked

    @cache
    def drawing(drawn):
        return respond(group, place, true, memory, ListedCoins([drawn]))

    chosen = drawn_near_every_edge(below, lambda drawn: drawing(drawn)[0], 3)
    rows = [[str(drawn), str(drawing(drawn)[0]), _shown(drawing(drawn)[1])] for drawn in chosen]
    return {"memory": _shown(memory), "input": true, "below": str(below), "symbols": rows}


def _shown(memory):
    return None if memory is None else asdict(memory)
