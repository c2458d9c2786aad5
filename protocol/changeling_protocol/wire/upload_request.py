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
_BEFORE = canonical.encode({_ENVELOPES: []})[:-1]
"""What stands before the list."""
_FEW, _MANY, _SHORT, _LONG = 0x90, b"\xdc", b"\xc4", b"\xc5"
"""What MessagePack begins lists of less than 16 with, and of less than 2^16; bytes, of less than 2^8, and than 2^16."""


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


def common_head(body: bytes, size: int) -> tuple[bytes, int] | None:
    """The first `size` bytes of every envelope of a request, and the length of each, where all are alike in both.

    None for any other body, whether it is an upload request or not. Takes a small part of the time of
    `decode_upload_request`, which gives the envelopes of a body with a common head, and raises nothing.
    """
    if not body.startswith(_BEFORE):
        return None
    at = len(_BEFORE)
    if (list_ := body[at : at + 1]) == _MANY:
        count, least, most, at = int.from_bytes(body[at + 1 : at + 3]), 16, MOST_ENVELOPES_TAKEN, at + 3
    else:
        count, least, most, at = int.from_bytes(list_) - _FEW, 1, 15, at + 1
    if (kind := body[at : at + 1]) == _SHORT:
        length, shortest, before = int.from_bytes(body[at + 1 : at + 2]), 0, 2
    elif kind == _LONG:
        length, shortest, before = int.from_bytes(body[at + 1 : at + 3]), 2**8, 3
    else:
        return None
    row = before + length
    if not least <= count <= most or length < max(size, shortest) or len(body) != at + count * row:
        return None
    columns = range(at, at + before + size) if count > 1 else ()
    if any(body[column::row] != body[column : column + 1] * count for column in columns):
        return None
    return body[at + before : at + before + size], length
