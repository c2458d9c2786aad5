"""Randomizers by their wire names, to and from the fields of a survey's signed bytes.

Knows no kind of randomizer: each registers itself, and reads and writes its own parameters.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from ..canonical import Fields, holds_booleans
from .interface import Randomizer
from .spaces import MutationSpace, Space, StateSpace

R = TypeVar("R", bound=Randomizer)

_KINDS: dict[str, type[Randomizer]] = {}
_SPACES: dict[str, dict[str, bool]] = {
    "mutations": {"repeats": False},
    "mutation-pairs": {"repeats": True},
    "moves": {"repeats": False, "null": False},
    "states": {"null": True},
    "answers": {"null": False},
}


def register(randomizer: type[R]) -> type[R]:
    """Make a class of randomizers known by its wire name, `kind`; used as a class decorator.

    A survey that names a kind can be read wherever the kind is registered, and nowhere else. Raises ValueError where
    another class has the name.
    """
    if _KINDS.setdefault(randomizer.kind, randomizer) is not randomizer:
        raise ValueError(f"the kind {randomizer.kind!r} is taken by {_KINDS[randomizer.kind].__name__}")
    return randomizer


def registered() -> Mapping[str, type[Randomizer]]:
    """Every class of randomizers by its wire name, in the order of registration."""
    return MappingProxyType(_KINDS)


def randomizer_as_fields(randomizer: Randomizer) -> Fields:
    """The fields of a survey's signed bytes that say which randomizer this is: its kind, its space, its parameters."""
    return {"kind": randomizer.kind, "space": _space_name(randomizer.space), **randomizer.as_fields()}


def randomizer_from_fields(fields: Fields, answers: int) -> Randomizer:
    """The randomizer that `randomizer_as_fields` wrote.

    answers: how many answers the survey has, z.
    Raises ValueError for anything else, and for a kind that is not registered.
    """
    match fields:
        case {"kind": str(kind), "space": str(space), **own} if kind in _KINDS and not holds_booleans(own):
            if (randomizer := _KINDS[kind].from_fields(_space(space, answers), own)) is not None:
                return randomizer
    raise ValueError(f"not a randomizer: {fields!r}")


def _space(name: str, answers: int) -> Space:
    options = _SPACES.get(name)
    if options is None:
        raise ValueError(f"a randomizer's space is one of {sorted(_SPACES)}, got {name!r}")
    return MutationSpace(answers, **options) if "repeats" in options else StateSpace(answers, **options)


def _space_name(space: Space) -> str:
    names = {_space(name, space.answers): name for name in _SPACES}
    return names[space]
