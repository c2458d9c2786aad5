"""The body of an upload: {"envelopes": [bytes, …]}, in canonical MessagePack."""

from collections.abc import Sequence

import msgpack

from .. import canonical
from ..errors import MalformedBytes

MOST_ENVELOPES = 64
"""The most envelopes that a device puts into one request."""

MOST_ENVELOPES_TAKEN = 4096
"""The most envelopes of a request that a server takes, as who forwards those of many devices puts more into one."""

_ENVELOPES = "envelopes"
_FRAME_ITEMS = 3
"""The map, its one value, and the list of envelopes."""


def encode_upload_request(envelopes: Sequence[bytes]) -> bytes:
    """The body that carries these envelopes.

    envelopes: sealed uploads, at most MOST_ENVELOPES_TAKEN. Raises ValueError for more.
    """
    if len(envelopes) > MOST_ENVELOPES_TAKEN:
        raise ValueError(f"a request carries at most {MOST_ENVELOPES_TAKEN} envelopes, got {len(envelopes)}")
    return canonical.encode({_ENVELOPES: list(envelopes)})


def decode_upload_request(body: bytes) -> list[bytes]:
    """The envelopes of a request, unread; empty bytes where something else stands in the place of one.

    So one that is no envelope is refused by itself, and not its neighbours with it.
    Raises MalformedBytes for a body that is no upload request.
    """
    match canonical.decode(body, most_items=MOST_ENVELOPES_TAKEN + _FRAME_ITEMS):
        case {"envelopes": [*envelopes], **rest} if not rest and len(envelopes) <= MOST_ENVELOPES_TAKEN:
            if set(map(type, envelopes)) <= {bytes}:
                return envelopes
            return [envelope if isinstance(envelope, bytes) else b"" for envelope in envelopes]
    raise MalformedBytes(f'an upload is {{"{_ENVELOPES}": [...]}}, at most {MOST_ENVELOPES_TAKEN} of them')


def envelopes_in(body: bytes) -> list[bytes]:
    """The envelopes of a request that `decode_upload_request` took before; that is not checked again."""
    envelopes: list[bytes] = msgpack.unpackb(body)[_ENVELOPES]
    return envelopes
