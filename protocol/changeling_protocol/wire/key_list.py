"""The list of sealing keys: {"keys": [bytes, …]}, in canonical MessagePack, each key as the authority signed it."""

from collections.abc import Iterable

from .. import canonical
from ..errors import MalformedBytes
from .bodies import MOST_BODY_BYTES

_MOST_ITEMS = MOST_BODY_BYTES // 64
"""More values do not fit into a body: each is a signed key, and a signature alone has 64 bytes."""


def encode_key_list(signed: Iterable[bytes]) -> bytes:
    """The body that lists these signed sealing keys."""
    return canonical.encode({"keys": list(signed)})


def decode_key_list(body: bytes) -> list[bytes]:
    """The signed sealing keys of a list, their signatures unread. Raises MalformedBytes."""
    match canonical.decode(body, most_items=_MOST_ITEMS):
        case {"keys": [*signed]} if all(isinstance(each, bytes) for each in signed):
            return signed
    raise MalformedBytes("a list of sealing keys holds nothing but signed bytes")
