"""A server at the edge of httpx that keeps all that a client uploads, opens it, and loses its answers if told to."""

from email.utils import formatdate

import httpx
from changeling_protocol import SealingKey, open_envelope
from changeling_protocol.wire import KEYS, UPLOADS, decode_upload_request, encode_acknowledgement, encode_key_list
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

AUTHORITY = Ed25519PrivateKey.from_private_bytes(b"authority of audits, of 32 bytes")
PRIVATE = X25519PrivateKey.from_private_bytes(b"sealing key of audits, 32 bytes.")


class Clock:
    """Unix time, as the audit sets it."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Server:
    """Keeps all that is uploaded. While it is `mute` it does so too, but the device learns nothing of that."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = SealingKey(PRIVATE.public_key().public_bytes_raw(), 0, 2**32).signed_by(AUTHORITY)
        self.mute = False
        self.uploaded: list[bytes] = []

    def serve(self, request: httpx.Request) -> httpx.Response:
        """The answer to a request, dated by the same clock as the device's."""
        date = {"date": formatdate(self._clock(), usegmt=True)}
        if request.url.path == KEYS:
            return httpx.Response(200, content=encode_key_list([self._key]), headers=date)
        if request.url.path != UPLOADS:
            return httpx.Response(404, headers=date)
        self.uploaded += decode_upload_request(request.content)
        if self.mute:
            return httpx.Response(503, headers=date)
        return httpx.Response(200, content=encode_acknowledgement({}), headers=date)

    def taken(self) -> list[bytes]:
        """The envelopes since the last time, in plaintext."""
        taken = [open_envelope(envelope, PRIVATE) for envelope in self.uploaded]
        self.uploaded = []
        return taken
