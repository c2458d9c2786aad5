"""The room of each kind of randomizer: its counterpart, and what the planner may offer of it.

Knows no kind: each registers itself against its class in the protocol.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from changeling_protocol import Odds, Randomizer, StateSpace

from .counterpart import Counterpart
from .offers import ChangeOffers, Offer

R = TypeVar("R", bound=Randomizer)
StateOffers: TypeAlias = Callable[[StateSpace, Odds], Iterable[Offer]]
"""Randomizers of a state whose loss is at most that of the odds."""


@dataclass(frozen=True, slots=True)
class _Room:
    counterpart: Callable[[Any], Counterpart[Randomizer]]
    states: StateOffers | None
    changes: ChangeOffers | None


_ROOMS: dict[type[Randomizer], _Room] = {}


def register(
    kind: type[R],
    counterpart: Callable[[R], Counterpart[R]],
    *,
    states: StateOffers | None = None,
    changes: ChangeOffers | None = None,
) -> None:
    """Make the statistics of a kind of randomizer known.

    kind: its class, registered in the protocol as well. counterpart: makes the counterpart of one of them. states,
    changes: what the planner may choose of the kind, for reports of a state or of a change. Raises ValueError where
    the kind is registered already.
    """
    if kind in _ROOMS:
        raise ValueError(f"{kind.__name__} has a counterpart already")
    _ROOMS[kind] = _Room(counterpart, states, changes)


@lru_cache(maxsize=256)
def counterpart_of(randomizer: Randomizer) -> Counterpart[Randomizer]:
    """The counterpart of a randomizer, kept with what it has worked out. Raises TypeError for an unknown kind."""
    room = _ROOMS.get(type(randomizer))
    if room is None:
        raise TypeError(f"nothing is known of the randomizer {type(randomizer).__name__}: register its counterpart")
    return room.counterpart(randomizer)


def state_offers(space: StateSpace, odds: Odds) -> Iterator[Offer]:
    """What the planner may choose from for a state, at a loss of at most ln(odds) a report."""
    for room in _ROOMS.values():
        if room.states is not None:
            yield from room.states(space, odds)


def change_offers() -> Iterator[ChangeOffers]:
    """What the planner may choose from for changes: an offer of each kind that tells them."""
    for room in _ROOMS.values():
        if room.changes is not None:
            yield room.changes
