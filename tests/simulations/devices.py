"""Entries of a joint group one by one: the exact law of all that they send, and reports drawn as devices draw them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, product

from changeling_protocol import Group, Odds, agreeing
from changeling_simulations.sampler import in_order

Sent = tuple[int | None, ...]
"""The symbol sent on each node, nodes in the order in which they are answered; None where nothing is reported."""


def exact_law(group: Group, states: Sequence[int]) -> dict[Sent, Fraction]:
    """How likely an entry with these states at times 0..T sends what, enumerated symbol by symbol."""
    law: dict[Sent, Fraction] = defaultdict(Fraction)
    choices = list(product(*(combinations(track.node_numbers(), track.reports) for track in group.tracks)))
    for chosen in choices:
        for sent, chance in _answers(group, states, chosen, (), [0] * len(group.joint.slots), 0):
            law[sent] += chance / len(choices)
    return law


def _answers(group, states, chosen, sent, used, score) -> Iterator[tuple[Sent, Fraction]]:
    nodes = in_order(group)
    if len(sent) == len(nodes):
        yield sent, Fraction(1)
        return
    place, number = nodes[len(sent)]
    if number not in chosen[place]:
        yield from _answers(group, states, chosen, (*sent, None), used, score)
        return
    randomizer = agreeing(group.tracks[place].randomizer)
    true, tells = _input(group, states, place, number, used)
    odds = group.kernel.conditional_odds(place, used, score) if tells else Odds(1, 1)
    base = [randomizer.weight(o, 0) if randomizer.space.reports_changes else 1 for o in range(randomizer.symbols)]
    agrees = [tells and randomizer.agrees(o, true) for o in range(randomizer.symbols)]
    weights = [w * (odds.favoured if a else odds.other) for w, a in zip(base, agrees, strict=True)]
    for symbol, weight in enumerate(weights):
        after = [n + (tells and at == place) for at, n in enumerate(used)]
        scored = group.kernel.scored(place, score, agrees[symbol]) if tells else score
        for rest, chance in _answers(group, states, chosen, (*sent, symbol), after, scored):
            yield rest, chance * Fraction(weight, sum(weights))


def _input(group, states, place, number, used) -> tuple[int, bool]:
    """The true input on a node, and whether it tells something and has a slot left."""
    track = group.tracks[place]
    node = track.node(number)
    true = track.randomizer.space.index(states[node.start], states[node.end])
    return true, agreeing(track.randomizer).tells(true) and used[place] < group.joint.slots[place]
