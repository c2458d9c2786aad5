"""Randomizers: exact odds, samplers and losses."""

from .custom import CustomResponse
from .interface import SYMBOL_LIMIT, Agreeing, Losses, Randomizer, symbol_bytes
from .kary import KaryResponse
from .kary_change import KaryChange
from .odds import Odds, log_ratio, rounded_up
from .registry import randomizer_as_fields, randomizer_from_fields, register, registered
from .sign_vectors import SignVectors
from .signed_subset import BALANCED, SignedSubset
from .spaces import MutationSpace, Space, StateSpace
from .subset_selection import SubsetSelection
from .unary_encoding import UnaryEncoding

__all__ = [
    "BALANCED",
    "SYMBOL_LIMIT",
    "Agreeing",
    "CustomResponse",
    "KaryChange",
    "KaryResponse",
    "Losses",
    "MutationSpace",
    "Odds",
    "Randomizer",
    "SignVectors",
    "SignedSubset",
    "Space",
    "StateSpace",
    "SubsetSelection",
    "UnaryEncoding",
    "log_ratio",
    "randomizer_as_fields",
    "randomizer_from_fields",
    "register",
    "registered",
    "rounded_up",
    "symbol_bytes",
]
