"""Decoders: the aggregator's half of every randomizer."""

from functools import lru_cache

from changeling_protocol import CustomResponse, KaryResponse, Randomizer, SignedSubset, SubsetSelection, UnaryEncoding

from .custom import CustomDecoder
from .interface import Decoder
from .kary import KaryDecoder
from .signed_subset import SignedSubsetDecoder
from .states import StateDecoder

__all__ = ["Decoder", "KaryDecoder", "decoder_of"]


@lru_cache(maxsize=256)
def decoder_of(randomizer: Randomizer) -> Decoder:
    """The decoder of a randomizer, kept with what it has precomputed.

    Raises TypeError for an unknown kind, ValueError for one that says nothing or has no unbiased decoder.
    """
    match randomizer:
        case KaryResponse():
            return KaryDecoder(randomizer)
        case SignedSubset():
            return SignedSubsetDecoder(randomizer)
        case SubsetSelection() | UnaryEncoding():
            return StateDecoder(randomizer)
        case CustomResponse():
            return CustomDecoder(randomizer)
    raise TypeError(f"no decoder for a {type(randomizer).__name__}")
