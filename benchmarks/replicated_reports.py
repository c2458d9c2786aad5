"""What the entries of one group report in many replications at once: who draws which nodes, and every node's tally.

Entries are never drawn one by one. In a joint group those of one history that report on the same nodes are split by
which of their telling reports agree with the truth, as the kernel says; given that, reports are independent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from changeling_protocol import Agreeing, Group, NodeNumber, agreeing
from changeling_simulations import Population
from changeling_statistics import NodeTally, counterpart_of
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
At = tuple[int, NodeNumber]
"""A node of a group: the place of its track, and its number."""
Telling = tuple[tuple[At, int], ...]
"""The nodes on which an entry has something to tell, with what is true there."""


@dataclass(frozen=True, slots=True, eq=False)
class _Heard:
    """Of one node, in each of R replications: how many report, and what, shape (R, inputs).

    For a plain group `plain` has all inputs; for a joint one `agree` and `other` have those who tell something, by
    whether their report agrees, and the rest say nothing.
    """

    reports: Counts
    plain: Counts
    agree: Counts
    other: Counts


def tallies_of_group(
    population: Population, group: Group, members: Counts, generator: np.random.Generator
) -> Iterator[tuple[At, list[NodeTally]]]:
    """The tallies of all nodes of a group, a replication per row.

    members: how many entries of each history are in the group, shape (R, histories).
    """
    heard: dict[At, _Heard] = {}
    for place, track in enumerate(group.tracks):
        for number in track.node_numbers():
            none = np.zeros((len(members), track.randomizer.space.size), np.int64)
            heard[place, number] = _Heard(np.zeros(len(members), np.int64), none, none.copy(), none.copy())
    drawn = _drawn(group)
    each, rest = divmod(int(members[0].sum()), len(drawn))
    sizes = [each + (at < rest) for at in range(len(drawn))]
    for nodes, entries in zip(drawn, split(members, sizes, generator), strict=True):
        _listen(population, group, nodes, entries, heard, generator)
    for at, said in heard.items():
        slots = _slots(group, at[0], said, generator)
        reports = int(said.reports[0])
        yield at, [NodeTally(reports, row) for row in slots]


def split(weights: Counts, sizes: list[int], generator: np.random.Generator) -> Iterator[Counts]:
    """Each row of entries, by history, dealt at random into parts of these sizes; weights of shape (R, histories)."""
    left = weights.copy()
    for size in sizes[:-1]:
        part, wanted = np.zeros_like(left), np.full(len(left), size)
        others = left.sum(1)
        for history in range(left.shape[1]):
            others -= left[:, history]
            taken = generator.hypergeometric(left[:, history], others, wanted)
            part[:, history] = taken
            wanted -= taken
        left -= part
        yield part
    yield left


def _drawn(group: Group) -> list[tuple[At, ...]]:
    """Every set of nodes that an entry of the group may report; all are as likely."""
    drawing = [place for place, track in enumerate(group.tracks) if track.reports < track.count]
    if len(drawing) > 1:
        raise ValueError(f"only one track of a group draws nodes here, got {len(drawing)}")
    whole = [
        (place, at) for place, track in enumerate(group.tracks) if place not in drawing for at in track.node_numbers()
    ]
    sets = (
        [()] if not drawing else combinations(group.tracks[drawing[0]].node_numbers(), group.tracks[drawing[0]].reports)
    )
    return [(*whole, *((place, at) for place in drawing for at in chosen)) for chosen in sets]


def _listen(
    population: Population,
    group: Group,
    nodes: tuple[At, ...],
    entries: Counts,
    heard: dict[At, _Heard],
    generator: np.random.Generator,
) -> None:
    """Adds what the entries that report on these nodes say, before it is turned into symbols."""
    telling: dict[Telling, Counts] = {}
    everybody, true = entries.sum(1), {at: _true(population, group, at) for at in nodes}
    for at in nodes:
        heard[at].reports[:] += everybody
        if group.joint is None:
            for value in np.unique(true[at]).tolist():
                heard[at].plain[:, value] += entries[:, true[at] == value].sum(1)
    if group.joint is None:
        return
    for history in range(entries.shape[1]):
        values = [(at, int(true[at][history])) for at in nodes]
        told = tuple((at, value) for at, value in values if _agreeing(group, at[0]).tells(value))
        telling[told] = telling.get(told, 0) + entries[:, history]
    for told, count in telling.items():
        chances, agreed = _patterns(group, tuple(at[0] for at, _ in told))
        by_pattern = generator.multinomial(count, chances)
        for slot, (at, value) in enumerate(told):
            agree = by_pattern[:, agreed[:, slot]].sum(1)
            heard[at].agree[:, value] += agree
            heard[at].other[:, value] += count - agree


@lru_cache(maxsize=256)
def _patterns(group: Group, places: tuple[int, ...]) -> tuple[Floats, NDArray[np.bool_]]:
    """How likely each pattern of agreements is for telling reports on tracks of these places, in this order.

    Returns the chances, shape (2^n,), and which slots agree in each pattern, shape (2^n, n).
    """
    patterns: list[tuple[float, tuple[bool, ...], int]] = [(1.0, (), 0)]
    for slot, place in enumerate(places):
        used = [places[:slot].count(track) for track in range(len(group.tracks))]
        p = group.kernel.agreements[place]
        longer = []
        for chance, agreed, score in patterns:
            odds = group.kernel.conditional_odds(place, used, score)
            agrees = float(odds.favoured * p / (odds.favoured * p + odds.other * (1 - p)))
            for one, share in ((True, agrees), (False, 1 - agrees)):
                longer.append((chance * share, (*agreed, one), group.kernel.scored(place, score, one)))
        patterns = longer
    chances = np.array([chance for chance, _, _ in patterns])
    return chances / chances.sum(), np.array([agreed for _, agreed, _ in patterns], np.bool_).reshape(len(chances), -1)


def _slots(group: Group, place: int, said: _Heard, generator: np.random.Generator) -> Counts:
    """The slots of a node's tally, shape (R, slots), given what its entries say."""
    randomizer = group.tracks[place].randomizer
    if group.joint is None:
        return counterpart_of(randomizer).sample_slots(said.plain, generator)
    joint = _agreeing(group, place)
    base = _base(joint)
    slots: Counts = generator.multinomial(said.reports - said.agree.sum(1) - said.other.sum(1), base)
    for value in np.flatnonzero((said.agree + said.other).any(0)).tolist():
        agrees = np.array([joint.agrees(symbol, value) for symbol in range(joint.symbols)])
        for count, chosen in ((said.agree[:, value], agrees), (said.other[:, value], ~agrees)):
            slots += generator.multinomial(count, base * chosen / base[chosen].sum())
    return slots


@lru_cache(maxsize=64)
def _base(randomizer: Agreeing) -> Floats:
    """How likely each symbol of the base is: what odds of 1:1 select for any input."""
    symbols = range(randomizer.symbols)
    if not randomizer.tells(0):
        return np.array([randomizer.weight(symbol, 0) / randomizer.total(0) for symbol in symbols])
    return np.full(randomizer.symbols, 1 / randomizer.symbols)


def _agreeing(group: Group, place: int) -> Agreeing:
    return agreeing(group.tracks[place].randomizer)


def _true(population: Population, group: Group, at: At) -> NDArray[np.intp]:
    """The input of each history on a node, shape (histories,)."""
    track = group.tracks[at[0]]
    node, space = track.node(at[1]), track.randomizer.space
    pairs = zip(population.frozen[:, node.start].tolist(), population.frozen[:, node.end].tolist(), strict=True)
    return np.array([space.index(*pair) for pair in pairs], dtype=np.intp)
