"""Randomizers: exact odds, samplers and losses."""

from .interface import (
    SYMBOL_LIMIT,
    Agreeing,
    Coins,
    Losses,
    MutationSpace,
    OddsRandomizer,
    Randomizer,
    Space,
    StateSpace,
    SystemCoins,
    check_answers,
    randomizer_as_fields,
    randomizer_from_fields,
    register,
    registered,
    symbol_bytes,
)
from .kary import BasedResponse, KaryChange, KaryResponse
from .other import MOST_BITS, CustomResponse, UnaryEncoding
from .subsets import BALANCED, SignedSubset, SignVectors, SubsetSelection, arrangements

__all__ = [
    "BALANCED",
    "MOST_BITS",
    "SYMBOL_LIMIT",
    "Agreeing",
    "BasedResponse",
    "Coins",
    "CustomResponse",
    "KaryChange",
    "KaryResponse",
    "Losses",
    "MutationSpace",
    "OddsRandomizer",
    "Randomizer",
    "SignVectors",
    "SignedSubset",
    "Space",
    "StateSpace",
    "SubsetSelection",
    "SystemCoins",
    "UnaryEncoding",
    "arrangements",
    "check_answers",
    "randomizer_as_fields",
    "randomizer_from_fields",
    "register",
    "registered",
    "symbol_bytes",
]
