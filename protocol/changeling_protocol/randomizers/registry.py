"""Randomizers to and from the fields of a survey's signed bytes."""

from typing import Any

from .interface import Randomizer
from .kary import KaryResponse
from .odds import Odds
from .spaces import MutationSpace, Space, StateSpace

_SPACES: dict[str, dict[str, bool]] = {
    "mutations": {"repeats": False},
    "mutation-pairs": {"repeats": True},
    "states": {"null": True},
    "answers": {"null": False},
}


def randomizer_as_fields(randomizer: Randomizer) -> dict[str, Any]:
    return {"space": _space_name(randomizer.space), **randomizer.as_fields()}


def randomizer_from_fields(fields: dict[str, Any], answers: int) -> Randomizer:
    """The randomizer that `randomizer_as_fields` wrote, for a survey of so many answers.

    Raises ValueError for anything else.
    """
    match fields:
        case {"kind": "k-rr", "space": str(space), "odds": [int(favoured), int(other)], **rest} if not rest:
            return KaryResponse(_space(space, answers), Odds(favoured, other))
    raise ValueError(f"not a randomizer: {fields!r}")


def _space(name: str, answers: int) -> Space:
    options = _SPACES.get(name)
    if options is None:
        raise ValueError(f"a randomizer's space is one of {sorted(_SPACES)}, got {name!r}")
    return MutationSpace(answers, **options) if "repeats" in options else StateSpace(answers, **options)


def _space_name(space: Space) -> str:
    names = {_space(name, space.answers): name for name in _SPACES}
    return names[space]
