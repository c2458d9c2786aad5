"""Envelopes: made with a fixed ephemeral key, which no device may do, and ones that must not open."""

from collections.abc import Iterator

import pytest
from changeling_protocol import VERSION, CannotOpen, SealingKey, SurveyId, head_of, hpke_seal, key_id, open_envelope
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from .examples import PRIVATE, SEALING_KEY, SURVEYS
from .notation import Case

_OTHER = X25519PrivateKey.from_private_bytes(bytes(range(50, 82)))


def cases() -> list[Case]:
    """Seals of several lengths, then altered ones."""
    return [*map(_seal, range(3), (1, 64, 700)), *_refused()]


def _seal(seed: int, length: int) -> Case:
    plaintext = bytes(i % 256 for i in range(length))
    ephemeral = X25519PrivateKey.from_private_bytes(bytes(range(seed, seed + 32)))
    envelope = _sealed(plaintext, SURVEYS["mixed"].id, SEALING_KEY, ephemeral)
    head = head_of(envelope)
    assert open_envelope(envelope, PRIVATE) == plaintext
    return {
        "kind": "seal",
        "private": PRIVATE.private_bytes_raw().hex(),
        "public": SEALING_KEY.public.hex(),
        "ephemeral": ephemeral.private_bytes_raw().hex(),
        "head": {"version": head.version, "survey": head.survey.hex(), "key": head.key.hex()},
        "plaintext": plaintext.hex(),
        "envelope": envelope.hex(),
    }


def _refused() -> Iterator[Case]:
    envelope = bytes.fromhex(_seal(0, 64)["envelope"])
    for why, altered in (
        ("another version", bytes([envelope[0] ^ 1]) + envelope[1:]),
        ("another survey", envelope[:1] + bytes(16) + envelope[17:]),
        ("another key id", envelope[:17] + key_id(bytes(32)) + envelope[33:]),
        ("an altered encapsulated key", envelope[:33] + bytes([envelope[33] ^ 1]) + envelope[34:]),
        ("an encapsulated key of low order", envelope[:33] + bytes(32) + envelope[65:]),
        ("an altered ciphertext", envelope[:70] + bytes([envelope[70] ^ 1]) + envelope[71:]),
        ("an altered tag", envelope[:-1] + bytes([envelope[-1] ^ 1])),
        ("cut short", envelope[:-1]),
        ("a head alone", envelope[:33]),
        ("nothing", b""),
    ):
        yield _closed(why, altered, PRIVATE)
    yield _closed("another private key", envelope, _OTHER)


def _closed(why: str, envelope: bytes, private: X25519PrivateKey) -> Case:
    with pytest.raises(CannotOpen):
        open_envelope(envelope, private)
    return {"kind": "refused", "why": why, "private": private.private_bytes_raw().hex(), "envelope": envelope.hex()}


def _sealed(plaintext: bytes, survey: SurveyId, key: SealingKey, ephemeral: X25519PrivateKey) -> bytes:
    """`changeling_protocol.seal` with a given ephemeral key."""
    head = VERSION.to_bytes(1) + survey + key.id
    return head + hpke_seal(plaintext, PRIVATE.public_key(), head, ephemeral)
