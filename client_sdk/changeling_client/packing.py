"""How uploads are put into request bodies. Their sizes depend on the calendar and on when the app ran, never on what is
reported."""

from collections.abc import Iterable, Iterator

from changeling_protocol import HEAD_BYTES, SEAL_BYTES
from changeling_protocol.wire import MOST_BODY_BYTES, MOST_ENVELOPES

from .outbox import Upload

_BODY_HEAD_BYTES = 32
"""Covers the map, its key and the array's head."""
_ENVELOPE_BYTES = HEAD_BYTES + SEAL_BYTES + 5
"""What sealing and the bytes' own head add to a plaintext."""


def bodies(waiting: Iterable[Upload]) -> Iterator[list[Upload]]:
    """Puts uploads together in order, as many in a body as one request may carry."""
    body: list[Upload] = []
    size = _BODY_HEAD_BYTES
    for upload in waiting:
        more = len(upload.plaintext) + _ENVELOPE_BYTES
        if body and (len(body) == MOST_ENVELOPES or size + more > MOST_BODY_BYTES):
            yield body
            body, size = [], _BODY_HEAD_BYTES
        body.append(upload)
        size += more
    if body:
        yield body
