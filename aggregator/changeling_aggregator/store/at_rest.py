"""How private keys lie in the store: encrypted under the operator's store key, if there is one.

Whoever gets the file alone, or a copy of it, then opens nothing. AES-256-GCM, bound to the key's id.
"""

import os
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..errors import StoreError

STORE_KEY_BYTES = 32
PRIVATE_BYTES = 32
_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class AtRest:
    """The key that private keys are encrypted under. secret: the store key, 32 bytes; None leaves them in the clear."""

    secret: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.secret is not None and len(self.secret) != STORE_KEY_BYTES:
            raise ValueError(f"a store key has {STORE_KEY_BYTES} bytes, got {len(self.secret)}")

    def kept(self, private: bytes, id_: bytes) -> bytes:
        """A private key as it is stored. id_: the key's."""
        if self.secret is None:
            return private
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self.secret).encrypt(nonce, private, id_)

    def taken(self, kept: bytes, id_: bytes) -> bytes:
        """The private key in what is stored, encrypted or not. Raises StoreError where this is not its store key."""
        if len(kept) == PRIVATE_BYTES:
            return kept
        if self.secret is None:
            raise StoreError("the store's private keys are encrypted: give the store key that they are under")
        try:
            return AESGCM(self.secret).decrypt(kept[:_NONCE_BYTES], kept[_NONCE_BYTES:], id_)
        except InvalidTag:
            raise StoreError("the store's private keys are encrypted under another store key than the given") from None


IN_CLEAR = AtRest()
