"""The protocol's bytes, fixed for implementations in other languages."""

import json

import pytest
from changeling_client.responding import Slots, respond
from changeling_protocol import Survey, open_envelope
from changeling_protocol.ending import EarlyEnd
from changeling_protocol.plan_fields import plan_from_fields
from changeling_protocol.randomizers import randomizer_from_fields
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.coins import ListedCoins

from .generate import HERE, deterministic


def read(name):
    return json.loads((HERE / f"{name}.json").read_text())


@pytest.mark.parametrize("name", sorted(deterministic()))
def test_bytes_and_symbols_are_what_they_were(name):
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


def test_an_old_end_still_verifies():
    """It names the survey and its last period."""
    vector = read("signed")
    each = vector["early end"]
    end = EarlyEnd.from_signed(bytes.fromhex(each["signed"]), [bytes.fromhex(vector["authority"])])
    assert (end.survey.hex(), end.last) == (each["survey"], each["last"])


def test_a_drawn_integer_selects_what_the_file_says_in_a_survey_that_is_read_from_bytes():
    """Randomizers come from their fields, as another implementation would make them."""
    for vector in read("symbols"):
        randomizer = randomizer_from_fields(vector["randomizer"], vector["answers"])
        for each in vector["inputs"]:
            assert randomizer.total(each["true"]) == int(each["total"])
            for drawn, symbol in each["symbols"]:
                assert randomizer.respond(each["true"], ListedCoins([int(drawn)])) == int(symbol)


def test_a_device_answers_jointly_as_the_file_says():
    """By the slots that are used and their score it asks for an integer below the total, which selects the symbol."""
    seen = 0
    for vector in read("joint"):
        (group,) = plan_from_fields([vector["group"]], vector["answers"]).groups
        assert [[str(t.randomizer.odds.favoured), str(t.randomizer.odds.other)] for t in group.tracks] == vector[
            "odds of one report by itself"
        ]
        for each in vector["reports"]:
            slots = None if tuple(each["used"]) == group.joint.slots else Slots(tuple(each["used"]), each["score"])
            for drawn, symbol in each["symbols"]:
                coins = ListedCoins([int(drawn)])
                assert respond(group, each["track"], each["true"], slots, coins)[0] == int(symbol)
                assert coins.asked == [int(each["total"])]
                seen += 1
    assert seen > 500
