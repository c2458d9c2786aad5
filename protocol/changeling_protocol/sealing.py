"""Sealing an upload to the server's key, once, with HPKE (RFC 9180): X25519, HKDF-SHA256, AES-128-GCM.

An envelope is version ‖ survey id ‖ key id ‖ sealed bytes; the three head fields are bound to the seal as
HPKE's info, so a seal moved under another head does not open. Base mode: it says nothing of the sender.

`cryptography` brings HPKE ready made in its newest versions only, and an app that embeds the SDK pins its own. So the
key schedule stands here; exchange, hash and cipher are the library's. Names follow the RFC. Tests hold it to the RFC's
vectors and to the library's own HPKE.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import ClassVar, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .calendar import UnixSeconds
from .errors import CannotOpen, MalformedBytes
from .signing import ID_BYTES, VERSION, Fields, SignedObject, SurveyId, check_order, holds_booleans

ENC_BYTES = 32
"""The encapsulated key, which stands before the ciphertext."""
TAG_BYTES = 16
"""The cipher's tag, which it adds to the plaintext."""
HEAD_BYTES = 1 + 2 * ID_BYTES
SEAL_BYTES = ENC_BYTES + TAG_BYTES
"""How much longer HPKE makes the plaintext."""
_KEM = b"KEM\x00\x20"
"""DHKEM(X25519, HKDF-SHA256)."""
_HPKE = b"HPKE\x00\x20\x00\x01\x00\x01"
"""That KEM with HKDF-SHA256 and AES-128-GCM."""
_BASE_MODE = b"\0"
_KEY_BYTES, _NONCE_BYTES, _SECRET_BYTES = 16, 12, 32


@dataclass(frozen=True)
class SealingKey(SignedObject):
    """A server's public key, good for sealing from `begins` until `expires`, in Unix seconds."""

    kind: ClassVar[str] = "sealing-key"
    public: bytes
    begins: int
    expires: int

    def __post_init__(self) -> None:
        if len(self.public) != 32:
            raise ValueError(f"an X25519 public key has 32 bytes, got {len(self.public)}")
        if not 0 <= self.begins < self.expires < 2**63:  # stores keep both in 64 bits
            raise ValueError(f"a key must begin before it expires, below 2^63, got {self.begins} and {self.expires}")
        check_order(self.public)

    @cached_property
    def id(self) -> bytes:
        """`key_id` of the public key: 16 bytes."""
        return key_id(self.public)

    def valid_at(self, time: UnixSeconds) -> bool:
        """Whether uploads may be sealed to it at this Unix time, in seconds."""
        return self.begins <= time <= self.expires

    def as_fields(self) -> Fields:
        """The key and its dates."""
        return {"public": self.public, "begins": self.begins, "expires": self.expires}

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        match fields:
            case {"public": bytes(public), "begins": int(begins), "expires": int(expires), **rest} if not (
                rest or holds_booleans(fields)
            ):
                return cls(public, begins, expires)
        raise ValueError("it is public, begins and expires")


@dataclass(frozen=True, slots=True)
class EnvelopeHead:
    """The part of an envelope that is read without opening it: protocol version, survey id and key id."""

    version: int
    survey: SurveyId
    key: bytes


def key_id(public: bytes) -> bytes:
    """The first 16 bytes of the SHA-256 of a public sealing key."""
    return sha256(public).digest()[:ID_BYTES]


def seal(plaintext: bytes, survey: SurveyId, key: SealingKey) -> bytes:
    """The envelope of an upload's plaintext: HEAD_BYTES + SEAL_BYTES longer, and different each time.

    survey: the survey's 16-byte id.
    """
    head = VERSION.to_bytes(1) + survey + key.id
    return head + hpke_seal(plaintext, _recipient(key.public), head, X25519PrivateKey.generate())


_recipient = lru_cache(maxsize=64)(X25519PublicKey.from_public_bytes)


def head_of(envelope: bytes) -> EnvelopeHead:
    """The head of an envelope, which is not opened. Raises MalformedBytes for one too short to hold an upload."""
    if len(envelope) <= HEAD_BYTES + SEAL_BYTES:
        raise MalformedBytes(f"an envelope is longer than {HEAD_BYTES + SEAL_BYTES} bytes")
    return _head(envelope[:HEAD_BYTES])


@lru_cache(maxsize=1024)
def _head(head: bytes) -> EnvelopeHead:
    """As most envelopes at a time have the same few heads, these are taken apart once."""
    return EnvelopeHead(head[0], SurveyId(head[1 : 1 + ID_BYTES]), head[1 + ID_BYTES :])


def open_envelope(envelope: bytes, private: X25519PrivateKey) -> bytes:
    """The upload's plaintext. Raises CannotOpen."""
    try:
        return _unseal(envelope[HEAD_BYTES:], private, envelope[:HEAD_BYTES])
    except (InvalidTag, ValueError) as error:
        raise CannotOpen("the envelope does not open with this key") from error


def hpke_seal(plaintext: bytes, recipient: X25519PublicKey, info: bytes, ephemeral: X25519PrivateKey) -> bytes:
    """The encapsulated key and the ciphertext.

    info: the bytes that the seal is bound to; it opens under the same alone.
    ephemeral: a new private key, for this seal and no other.
    Raises ValueError for a recipient of low order, with which no secret can be shared.
    """
    enc = ephemeral.public_key().public_bytes_raw()
    key, nonce = key_schedule(ephemeral.exchange(recipient), enc, recipient.public_bytes_raw(), info)
    return enc + AESGCM(key).encrypt(nonce, plaintext, b"")


def hpke_unseal(sealed: bytes, recipient: X25519PrivateKey, info: bytes) -> bytes:
    """The plaintext. Raises ValueError for bytes that are no seal, InvalidTag for one that does not open."""
    if len(sealed) < ENC_BYTES + TAG_BYTES:
        raise ValueError(f"a seal has at least {ENC_BYTES + TAG_BYTES} bytes, got {len(sealed)}")
    enc = sealed[:ENC_BYTES]
    shared = recipient.exchange(X25519PublicKey.from_public_bytes(enc))
    key, nonce = key_schedule(shared, enc, recipient.public_key().public_bytes_raw(), info)
    return AESGCM(key).decrypt(nonce, sealed[ENC_BYTES:], b"")


def key_schedule(exchanged: bytes, enc: bytes, recipient: bytes, info: bytes) -> tuple[bytes, bytes]:
    """The cipher's key and nonce.

    exchanged: the secret that X25519 gave. enc, recipient: the two public keys, 32 bytes each.
    info: the bytes that the seal is bound to.
    """
    eae_prk = _labeled_extract(_KEM, b"", b"eae_prk", exchanged)
    shared_secret = _labeled_expand(_KEM, eae_prk, b"shared_secret", enc + recipient, _SECRET_BYTES)
    context = _context(info)
    secret = _labeled_extract(_HPKE, shared_secret, b"secret", b"")
    key = _labeled_expand(_HPKE, secret, b"key", context, _KEY_BYTES)
    return key, _labeled_expand(_HPKE, secret, b"base_nonce", context, _NONCE_BYTES)


@lru_cache(maxsize=64)
def _context(info: bytes) -> bytes:
    """The context that the key schedule is bound to; whoever opens many seals meets few of them."""
    return _BASE_MODE + _PSK_ID_HASH + _labeled_extract(_HPKE, b"", b"info_hash", info)


def _labeled_extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + ikm, "sha256")


def _labeled_expand(suite: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """At most 32 bytes: the first block of HKDF-Expand."""
    labeled_info = length.to_bytes(2) + b"HPKE-v1" + suite + label + info
    return hmac.digest(prk, labeled_info + b"\x01", "sha256")[:length]


_PSK_ID_HASH = _labeled_extract(_HPKE, b"", b"psk_id_hash", b"")
"""Base mode has no pre-shared key, and so an empty id of one."""


def _library_unseal() -> Callable[[bytes, X25519PrivateKey, bytes], bytes]:
    """The same as `hpke_unseal`, where `cryptography` brings HPKE: it opens a fifteenth faster than ours."""
    try:
        from cryptography.hazmat.primitives import hpke as library
    except ImportError:
        return hpke_unseal
    suite = library.Suite(library.KEM.X25519, library.KDF.HKDF_SHA256, library.AEAD.AES_128_GCM)
    return lambda sealed, private, info: suite.decrypt(sealed, private, info=info)


_unseal = _library_unseal()
