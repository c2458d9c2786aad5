"""What the server answers to an upload: {"refused": [[index, reason], …]}, in canonical MessagePack.

An envelope that is not named is durable on the server. The reason is a member of Refusal; a client reads it as text,
as a later server may know reasons that it does not.
"""

from collections.abc import Mapping

from .. import canonical
from ..errors import MalformedBytes
from ..refusal import Refusal

_FRAME_ITEMS = 3
"""The map, its one value, and the list of the refused."""
_PAIR_ITEMS = 4
"""A pair's place in that list, the pair, and its two values."""


def encode_acknowledgement(refused: Mapping[int, Refusal]) -> bytes:
    """The body that says which envelopes of a request were refused.

    refused: the reason, by the envelope's place in the request, from 0 on.
    """
    return canonical.encode({"refused": [[index, refused[index].value] for index in sorted(refused)]})


def decode_acknowledgement(body: bytes, envelopes: int) -> dict[int, str]:
    """The reasons of refusal, by the envelope's place in the request.

    envelopes: how many the request carried. Raises MalformedBytes for a body that is no acknowledgement of so many.
    """
    match canonical.decode(body, most_items=_FRAME_ITEMS + envelopes * _PAIR_ITEMS):
        case {"refused": [*pairs]}:
            return dict(_refusal(pair, envelopes) for pair in pairs)
    raise MalformedBytes("an acknowledgement lists what was refused")


def _refusal(pair: object, envelopes: int) -> tuple[int, str]:
    match pair:
        case [int(index), str(reason)] if not isinstance(index, bool) and 0 <= index < envelopes:
            return index, reason
    raise MalformedBytes("a refusal is the index of an envelope and a reason")
