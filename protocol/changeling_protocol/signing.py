"""Objects signed by the survey authority, with Ed25519.

The kind and the protocol version stand inside the signed bytes, so a signature over one kind never passes for
another. Apps pin the authority's current and next key.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from . import canonical
from .canonical import Fields
from .errors import BadSignature, MalformedBytes
from .version import VERSION

MOST_ITEMS = 2**15
"""The most values in a signed object, lists and maps included: what reads one makes no more objects than that."""
KEY_BYTES = 32
_PRIME = 2**255 - 19


@lru_cache(maxsize=16)
def authority_key(public: bytes) -> Ed25519PublicKey:
    """The public key of a survey authority, 32 bytes.

    Raises ValueError for one of low order: under such a key, all zeros among them, anybody can sign.
    """
    if len(public) != KEY_BYTES:
        raise ValueError(f"an authority's public key has {KEY_BYTES} bytes, got {len(public)}")
    y = (int.from_bytes(public, "little") & (2**255 - 1)) % _PRIME
    same_on_x25519 = (1 + y) * pow(1 - y, _PRIME - 2, _PRIME) % _PRIME  # RFC 7748, 4.1; 0 in place of infinity
    check_order(same_on_x25519.to_bytes(KEY_BYTES, "little"))
    return Ed25519PublicKey.from_public_bytes(public)


def check_order(public: bytes) -> None:
    """Raises ValueError for an X25519 public key, 32 bytes, of low order: with it no secret can be shared."""
    try:
        _ANYONE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise ValueError("this public key is of low order: it protects nothing") from None


_ANYONE = X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES))
"""Some private key: an exchange with it fails for a public key of low order."""


def signed(kind: str, fields: Fields, authority: Ed25519PrivateKey) -> bytes:
    """The canonical bytes of an object of this kind with these fields, signed by the authority's private key."""
    payload = payload_bytes(kind, fields)
    return canonical.encode({"payload": payload, "signature": authority.sign(payload)})


def payload_bytes(kind: str, fields: Fields) -> bytes:
    """What is signed: the fields with their kind and the protocol version, canonical."""
    return canonical.encode({**fields, "kind": kind, "version": VERSION})


def verified(kind: str, encoded: bytes, authority: Iterable[bytes]) -> Fields:
    """The fields of a signed object.

    authority: the pinned Ed25519 public keys, 32 bytes each; one of them must have signed, which none of low order can.
    Raises MalformedBytes, or BadSignature.
    """
    payload, signature = _parts(encoded)
    for key in authority:
        with suppress(InvalidSignature, ValueError):
            authority_key(key).verify(signature, payload)
            break
    else:
        raise BadSignature(f"none of the pinned authority keys signed this {kind}")
    return payload_fields(kind, payload)


def unverified(kind: str, encoded: bytes) -> Fields:
    """The fields of a signed object, whoever signed it.

    For bytes whose signature was checked before they were kept, and for showing what is about to be checked elsewhere.
    Raises MalformedBytes.
    """
    payload, _ = _parts(encoded)
    return payload_fields(kind, payload)


def payload_fields(kind: str, payload: bytes) -> Fields:
    """The fields of a payload of this kind and of our version. Raises MalformedBytes for any other."""
    fields = canonical.decode(payload, MOST_ITEMS)
    if not isinstance(fields, dict) or fields.pop("kind", None) != kind:
        raise MalformedBytes(f"the bytes are not a {kind}")
    version = fields.pop("version", None)
    if version != VERSION or isinstance(version, bool):
        raise MalformedBytes(f"this {kind} has protocol version {version!r}; this is version {VERSION}")
    return fields


def _parts(encoded: bytes) -> tuple[bytes, bytes]:
    match canonical.decode(encoded, MOST_ITEMS):
        case {"payload": bytes(payload), "signature": bytes(signature), **rest} if not rest:
            return payload, signature
    raise MalformedBytes("a signed object is a payload and its signature")
