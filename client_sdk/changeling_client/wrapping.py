"""What the store keeps of answers, encrypted under a key that the app brings, or as it is without one.

AES-256-GCM under a random nonce; what a piece belongs to is authenticated with it, so that none can be put in another's
place. Rows, their number and their length are in the open. What hangs on answers is filled up before it is encrypted,
so that its length says no more than that there is a lot of it.
"""

import os

from .errors import StoreUnusable

KEY_BYTES = 32
_NONCE_BYTES = 12
_CHECK = b"changeling store"


class Wrapping:
    """Encrypts and opens pieces of a store.

    key: 32 bytes; None keeps everything as it is. Raises ValueError for another length.
    """

    def __init__(self, key: bytes | None) -> None:
        self._cipher = None
        if key is not None:
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise ValueError(f"a store's key is {KEY_BYTES} bytes")
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(key)

    @property
    def has_key(self) -> bool:
        """Whether anything is encrypted."""
        return self._cipher is not None

    def wrap(self, piece: bytes, place: bytes) -> bytes:
        """The piece as it is stored. place: which row it belongs to."""
        if self._cipher is None:
            return piece
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, piece, place)

    def unwrap(self, stored: bytes, place: bytes) -> bytes:
        """The piece again. Raises StoreUnusable if it was wrapped with another key, for another place, or altered."""
        if self._cipher is None:
            return stored
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(stored[:_NONCE_BYTES], stored[_NONCE_BYTES:], place)
        except (InvalidTag, ValueError):
            raise StoreUnusable("a piece of the store does not open with this key") from None

    def check(self) -> bytes:
        """Words by which the key is known again; empty without a key."""
        return self.wrap(_CHECK, b"") if self._cipher is not None else b""

    def fits(self, check: bytes) -> bool:
        """Whether a store with these words was made with this key, or both are without."""
        if self._cipher is None:
            return not check
        try:
            return self.unwrap(check, b"") == _CHECK
        except StoreUnusable:
            return False
