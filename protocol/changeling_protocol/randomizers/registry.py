"""Randomizers to and from the fields of a survey's signed bytes."""

from fractions import Fraction
from math import gcd
from typing import Any

from .custom import CustomResponse
from .interface import Randomizer
from .kary import KaryResponse
from .odds import Odds
from .signed_subset import SignedSubset
from .spaces import MutationSpace, Space, StateSpace
from .subset_selection import SubsetSelection
from .unary_encoding import UnaryEncoding

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
        case {"space": str(name), **own} if not _holds_booleans(own):
            if (randomizer := _in_space(_space(name, answers), own)) is not None:
                return randomizer
    raise ValueError(f"not a randomizer: {fields!r}")


def _in_space(space: Space, fields: dict[str, Any]) -> Randomizer | None:
    match space, fields:
        case _, {"kind": "k-rr", "odds": [int(a), int(b)], **rest} if not rest:
            return KaryResponse(space, Odds(a, b))
        case MutationSpace(), {
            "kind": "signed-subset",
            "odds": [int(a), int(b)],
            "pluses": int(pluses),
            "spoken": [int(u), int(of)],
            **rest,
        } if not rest and 1 <= u <= of and gcd(u, of) == 1:
            return SignedSubset(space, Odds(a, b), pluses, Fraction(u, of))
        case StateSpace(), {"kind": "subset", "odds": [int(a), int(b)], "chosen": int(chosen), **rest} if not rest:
            return SubsetSelection(space, Odds(a, b), chosen)
        case StateSpace(), {"kind": "unary", "odds": [int(a), int(b)], **rest} if not rest:
            return UnaryEncoding(space, Odds(a, b))
        case _, {"kind": "custom", "weights": [*rows], **rest} if not rest and all(isinstance(r, list) for r in rows):
            return CustomResponse(space, tuple(tuple(row) for row in rows))
    return None


def _holds_booleans(value: Any) -> bool:
    """Whether a boolean passes for an integer somewhere: one value would then have two forms."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, bool) or any(map(_holds_booleans, items))


def _space(name: str, answers: int) -> Space:
    options = _SPACES.get(name)
    if options is None:
        raise ValueError(f"a randomizer's space is one of {sorted(_SPACES)}, got {name!r}")
    return MutationSpace(answers, **options) if "repeats" in options else StateSpace(answers, **options)


def _space_name(space: Space) -> str:
    names = {_space(name, space.answers): name for name in _SPACES}
    return names[space]
