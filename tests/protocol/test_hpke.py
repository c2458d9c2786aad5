"""HPKE's base mode: what RFC 9180 and the library say, and nothing else opens."""

import sys

import pytest
from changeling_protocol import hpke_seal, hpke_unseal, upload
from changeling_protocol.upload import key_schedule
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

RFC = {  # RFC 9180, appendix A.1.1: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, base mode
    "info": "4f6465206f6e2061204772656369616e2055726e",
    "skEm": "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
    "enc": "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
    "skRm": "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
    "pkRm": "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d",
    "key": "4531685d41d65f03dc48f6b8302c05b0",
    "base_nonce": "56d890e5accaaf011cff4b7d",
    "pt": "4265617574792069732074727574682c20747275746820626561757479",
    "aad": "436f756e742d30",
    "ct": "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
}
VECTOR = {name: bytes.fromhex(value) for name, value in RFC.items()}
EPHEMERAL = X25519PrivateKey.from_private_bytes(VECTOR["skEm"])
PRIVATE = X25519PrivateKey.from_private_bytes(VECTOR["skRm"])


def test_the_key_schedule_is_that_of_the_rfc():
    """Both public keys, the key, the nonce, and the first ciphertext of appendix A.1.1."""
    assert EPHEMERAL.public_key().public_bytes_raw() == VECTOR["enc"]
    assert PRIVATE.public_key().public_bytes_raw() == VECTOR["pkRm"]
    exchanged = EPHEMERAL.exchange(PRIVATE.public_key())
    key, nonce = key_schedule(exchanged, VECTOR["enc"], VECTOR["pkRm"], VECTOR["info"])
    assert (key, nonce) == (VECTOR["key"], VECTOR["base_nonce"])
    assert AESGCM(key).encrypt(nonce, VECTOR["pt"], VECTOR["aad"]) == VECTOR["ct"]


@given(st.binary(max_size=300), st.binary(max_size=80))
def test_the_library_opens_what_we_seal_and_we_open_what_it_seals(plaintext, info):
    """The HPKE that the newest versions of `cryptography` bring is another implementation of the same."""
    from cryptography.hazmat.primitives import hpke as library

    suite = library.Suite(library.KEM.X25519, library.KDF.HKDF_SHA256, library.AEAD.AES_128_GCM)
    sealed = hpke_seal(plaintext, PRIVATE.public_key(), info, X25519PrivateKey.generate())
    assert suite.decrypt(sealed, PRIVATE, info=info) == plaintext
    assert hpke_unseal(suite.encrypt(plaintext, PRIVATE.public_key(), info=info), PRIVATE, info) == plaintext


def test_nothing_is_shared_with_a_key_of_low_order():
    """Neither sealed to one, nor opened from one: the secret would be known to everybody."""
    low = X25519PublicKey.from_public_bytes(bytes(32))
    with pytest.raises(ValueError, match="shared key"):
        hpke_seal(b"", low, b"", EPHEMERAL)
    with pytest.raises(ValueError, match="shared key"):
        hpke_unseal(bytes(48), PRIVATE, b"")


def test_an_envelope_opens_alike_whether_the_library_brings_hpke_or_not(monkeypatch):
    """Older versions of `cryptography` have none; what is altered opens with neither."""
    library = upload._library_unseal()
    monkeypatch.delattr("cryptography.hazmat.primitives.hpke")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.hpke", None)
    own = upload._library_unseal()
    assert own is hpke_unseal
    assert library is not own
    sealed = hpke_seal(b"plaintext", PRIVATE.public_key(), b"info", EPHEMERAL)
    altered = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for unseal in (library, own):
        assert unseal(sealed, PRIVATE, b"info") == b"plaintext"
        for wrong in (altered, b"", bytes(48), bytes(60)):
            with pytest.raises((InvalidTag, ValueError)):
                unseal(wrong, PRIVATE, b"info")
        with pytest.raises(InvalidTag):
            unseal(sealed, PRIVATE, b"other")
