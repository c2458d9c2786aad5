"""Which counterpart each kind of randomizer has, and what it offers the planner.

Knows no kind: each registers itself under its class in the protocol.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from changeling_protocol import Agreeing, Odds, Randomizer, Space, StateSpace

from .counterpart import Counterpart
from .offers import ChangeOffers, Offer

R = TypeVar("R", bound=Randomizer)
StateOffers: TypeAlias = Callable[[StateSpace, Odds], Iterable[Offer]]
"""Takes a space of states and odds; gives randomizers whose loss is at most that of the odds."""

AgreeingOffers: TypeAlias = Callable[[Space, float], Iterable[Agreeing]]
"""Takes a space and p; gives randomizers for joint responses, at any odds, of which a symbol of the base agrees with
an input that tells with a probability of about p."""


@dataclass(frozen=True, slots=True)
class _Room:
    counterpart: Callable[[Any], Counterpart[Randomizer]]
    states: StateOffers | None
    changes: ChangeOffers | None
    agreeing: AgreeingOffers | None


_ROOMS: dict[type[Randomizer], _Room] = {}


def register(
    kind: type[R],
    counterpart: Callable[[R], Counterpart[R]],
    *,
    states: StateOffers | None = None,
    changes: ChangeOffers | None = None,
    agreeing: AgreeingOffers | None = None,
) -> None:
    """Makes the statistics of a kind of randomizer known.

    kind: its class, which is registered in the protocol too.
    counterpart: makes the counterpart of a randomizer of that kind.
    states: what the planner may choose for reports of a state; None if the kind reports no states.
    changes: what the planner may choose for reports of changes; None if the kind reports no changes.
    agreeing: what it may choose for joint responses; None if the kind has no joint form.
    Raises ValueError if the kind is registered already.
    """
    if kind in _ROOMS:
        raise ValueError(f"{kind.__name__} has a counterpart already")
    _ROOMS[kind] = _Room(counterpart, states, changes, agreeing)


@lru_cache(maxsize=256)
def counterpart_of(randomizer: Randomizer) -> Counterpart[Randomizer]:
    """The counterpart of a randomizer. It is kept, with whatever it has computed, for the next call.

    Raises TypeError for a kind that is not registered.
    """
    room = _ROOMS.get(type(randomizer))
    if room is None:
        raise TypeError(f"nothing is known of the randomizer {type(randomizer).__name__}: register its counterpart")
    return room.counterpart(randomizer)


def state_offers(space: StateSpace, odds: Odds) -> Iterator[Offer]:
    """Everything that the planner may choose for reports of a state.

    space: the states. odds: the loss of a report is at most their logarithm.
    """
    for room in _ROOMS.values():
        if room.states is not None:
            yield from room.states(space, odds)


def change_offers() -> Iterator[ChangeOffers]:
    """What the planner may choose for reports of changes, kind by kind."""
    for room in _ROOMS.values():
        if room.changes is not None:
            yield room.changes


def agreeing_offers(space: Space, p: float) -> Iterator[Agreeing]:
    """Everything that the planner may choose for joint responses, at any odds.

    space: the inputs. p: about how likely a symbol of the base ought to agree with an input that tells.
    """
    for room in _ROOMS.values():
        if room.agreeing is not None:
            yield from room.agreeing(space, p)
