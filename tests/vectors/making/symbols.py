"""Which symbol a drawn integer selects, for every randomizer by itself.

Whoever draws it uniformly below the total has the randomizer's law.
"""

from functools import partial
from typing import Any

from changeling_protocol import Randomizer, randomizer_as_fields, symbol_bytes

from .examples import RANDOMIZERS
from .notation import Case, drawn_near_every_edge, fields, some


def cases() -> list[Case]:
    """Each randomizer with some of its inputs."""
    return [_randomizer(each) for each in RANDOMIZERS]


def _randomizer(randomizer: Randomizer) -> Case:
    most = 13 if randomizer.symbols < 10**6 else 3
    return {
        "kind": "randomizer",
        "randomizer": fields(randomizer_as_fields(randomizer)),
        "answers": randomizer.space.answers,
        "symbols": str(randomizer.symbols),
        "bytes": symbol_bytes(randomizer),
        "inputs": [_input(randomizer, true) for true in some(randomizer.space.size, most)],
    }


def _input(randomizer: Randomizer, true: int) -> dict[str, Any]:
    total, symbol_at = randomizer.total(true), partial(randomizer.symbol_at, true=true)
    return {
        "input": true,
        "states": randomizer.space.pair(true),
        "below": str(total),
        "symbols": [[str(drawn), str(symbol_at(drawn))] for drawn in drawn_near_every_edge(total, symbol_at, 8)],
    }
