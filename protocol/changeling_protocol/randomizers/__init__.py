"""Randomizers: exact odds, samplers and losses."""

from .interface import Losses, Randomizer, symbol_bytes
from .kary import KaryResponse
from .odds import Odds, log_ratio, rounded_up
from .registry import randomizer_as_fields, randomizer_from_fields
from .spaces import MutationSpace, Space, StateSpace

__all__ = [
    "KaryResponse",
    "Losses",
    "MutationSpace",
    "Odds",
    "Randomizer",
    "Space",
    "StateSpace",
    "log_ratio",
    "randomizer_as_fields",
    "randomizer_from_fields",
    "rounded_up",
    "symbol_bytes",
]
