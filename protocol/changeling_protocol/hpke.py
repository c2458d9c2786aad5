"""HPKE's base mode (RFC 9180), single shot: X25519, HKDF-SHA256, AES-128-GCM.

`cryptography` brings it ready made in its newest versions only, and an app that embeds the SDK pins its own. So the key
schedule stands here; exchange, hash and cipher are the library's. Names follow the RFC. Tests hold it to the RFC's
vectors and to the library's own HPKE.
"""

import hmac
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ENC_BYTES = 32
"""The encapsulated key, which stands before the ciphertext."""
TAG_BYTES = 16
"""What the cipher adds to the plaintext."""
_KEM = b"KEM\x00\x20"
"""DHKEM(X25519, HKDF-SHA256)."""
_HPKE = b"HPKE\x00\x20\x00\x01\x00\x01"
"""That KEM with HKDF-SHA256 and AES-128-GCM."""
_BASE_MODE = b"\0"
_KEY_BYTES, _NONCE_BYTES, _SECRET_BYTES = 16, 12, 32


def seal(plaintext: bytes, recipient: X25519PublicKey, info: bytes, ephemeral: X25519PrivateKey) -> bytes:
    """The encapsulated key and the ciphertext.

    info: what the seal is bound to; it opens under the same alone.
    ephemeral: a new private key, for this seal and no other.
    Raises ValueError for a recipient of low order, with which no secret can be shared.
    """
    enc = ephemeral.public_key().public_bytes_raw()
    key, nonce = key_schedule(ephemeral.exchange(recipient), enc, recipient.public_bytes_raw(), info)
    return enc + AESGCM(key).encrypt(nonce, plaintext, b"")


def unseal(sealed: bytes, recipient: X25519PrivateKey, info: bytes) -> bytes:
    """The plaintext. Raises ValueError for bytes that are no seal, InvalidTag for one that does not open."""
    if len(sealed) < ENC_BYTES + TAG_BYTES:
        raise ValueError(f"a seal has at least {ENC_BYTES + TAG_BYTES} bytes, got {len(sealed)}")
    enc = sealed[:ENC_BYTES]
    shared = recipient.exchange(X25519PublicKey.from_public_bytes(enc))
    key, nonce = key_schedule(shared, enc, recipient.public_key().public_bytes_raw(), info)
    return AESGCM(key).decrypt(nonce, sealed[ENC_BYTES:], b"")


def key_schedule(exchanged: bytes, enc: bytes, recipient: bytes, info: bytes) -> tuple[bytes, bytes]:
    """The cipher's key and nonce.

    exchanged: what X25519 gave. enc, recipient: the two public keys, 32 bytes each. info: what the seal is bound to.
    """
    eae_prk = _labeled_extract(_KEM, b"", b"eae_prk", exchanged)
    shared_secret = _labeled_expand(_KEM, eae_prk, b"shared_secret", enc + recipient, _SECRET_BYTES)
    context = _context(info)
    secret = _labeled_extract(_HPKE, shared_secret, b"secret", b"")
    key = _labeled_expand(_HPKE, secret, b"key", context, _KEY_BYTES)
    return key, _labeled_expand(_HPKE, secret, b"base_nonce", context, _NONCE_BYTES)


@lru_cache(maxsize=64)
def _context(info: bytes) -> bytes:
    """What the key schedule is bound to; whoever opens many seals meets few of them."""
    return _BASE_MODE + _PSK_ID_HASH + _labeled_extract(_HPKE, b"", b"info_hash", info)


def _labeled_extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + ikm, "sha256")


def _labeled_expand(suite: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """At most 32 bytes: the first block of HKDF-Expand."""
    labeled_info = length.to_bytes(2) + b"HPKE-v1" + suite + label + info
    return hmac.digest(prk, labeled_info + b"\x01", "sha256")[:length]


_PSK_ID_HASH = _labeled_extract(_HPKE, b"", b"psk_id_hash", b"")
"""Base mode has no pre-shared key, and so an empty id of one."""
