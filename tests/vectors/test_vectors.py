"""The protocol's bytes, fixed for implementations in other languages."""

import hmac
import json

import pytest
from changeling_protocol import Survey, open_envelope
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from .generate import HERE, deterministic


def read(name):
    return json.loads((HERE / f"{name}.json").read_text())


@pytest.mark.parametrize("name", sorted(deterministic()))
def test_bytes_coins_and_symbols_are_what_they_were(name):
    """What the code makes today is what the file holds."""
    assert deterministic()[name] == read(name)


def test_an_old_seal_still_opens():
    """The envelope in the file opens with its key."""
    vector = read("seals")
    private = X25519PrivateKey.from_private_bytes(bytes.fromhex(vector["private"]))
    assert open_envelope(bytes.fromhex(vector["envelope"]), private).hex() == vector["plaintext"]


def test_an_old_survey_still_verifies():
    """A survey signed once is read for good, under the same name."""
    vector = read("signed")
    for each in vector["surveys"]:
        survey = Survey.from_signed(bytes.fromhex(each["signed"]), [bytes.fromhex(vector["authority"])])
        assert survey.id.hex() == each["id"]
        assert survey.epsilon_micro == each["epsilon_micro"]


def test_coins_are_hmac_blocks_read_from_the_left():
    """An independent reading of the stream: blocks HMAC(key, context ‖ i), each draw the fewest whole bytes, their
    lowest bits dropped down to the bits needed, redrawn while not below n."""
    vector = read("coins")
    key, context = bytes.fromhex(vector["key"]), bytes.fromhex(vector["context"])
    stream = b"".join(hmac.digest(key, context + i.to_bytes(4), "sha256") for i in range(99))
    for n, drawn in zip(map(int, vector["below"]), map(int, vector["drawn"]), strict=True):
        while True:
            size = ((n - 1).bit_length() + 7) // 8
            value = int.from_bytes(stream[:size]) >> (8 * size - (n - 1).bit_length())
            stream = stream[size:]
            if value < n:
                break
        assert value == drawn
