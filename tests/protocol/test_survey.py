"""Surveys and other signed objects."""

from dataclasses import replace
from hashlib import sha256

import pytest
from changeling_protocol import (
    BadSignature,
    ExpectedChanges,
    Group,
    KaryResponse,
    MalformedBytes,
    Odds,
    ProtocolError,
    ReleasePlan,
    SealingKey,
    StateSpace,
    Survey,
    Track,
    UnderstatedEpsilon,
    canonical,
)
from changeling_protocol.signing import payload_bytes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .examples import AUTHORITY, PINNED, mixed, survey

SURVEYS = [survey(), replace(survey(), expected=ExpectedChanges(5, 7)), survey(mixed(3, 8)), survey(closed=True)]


@pytest.mark.parametrize("original", SURVEYS)
def test_a_signed_survey_comes_back_with_its_name(original):
    """What was signed is what is read, and its id is the hash of the signed bytes."""
    encoded = original.signed_by(AUTHORITY)
    read = Survey.from_signed(encoded, PINNED)
    assert read == original
    assert read.id == sha256(canonical.decode(encoded)["payload"]).digest()[:16]


def test_a_survey_with_any_byte_altered_is_refused():
    """Each byte of the signed object in turn, two ways; nothing but a protocol error comes of it."""
    encoded = survey().signed_by(AUTHORITY)
    for i in range(len(encoded)):
        for flip in (0x01, 0x80):
            tampered = encoded[:i] + bytes([encoded[i] ^ flip]) + encoded[i + 1 :]
            with pytest.raises(ProtocolError):
                Survey.from_signed(tampered, PINNED)
    for short in (b"", encoded[:-1], encoded + b"\0"):
        with pytest.raises(MalformedBytes):
            Survey.from_signed(short, PINNED)


def test_only_a_pinned_key_signs():
    """The current and the next key both pass; a stranger's does not."""
    stranger = Ed25519PrivateKey.from_private_bytes(b"a stranger's key of the tests,32")
    encoded = survey().signed_by(stranger)
    with pytest.raises(BadSignature, match="pinned"):
        Survey.from_signed(encoded, PINNED)
    assert Survey.from_signed(encoded, (*PINNED, stranger.public_key().public_bytes_raw())) == survey()


def test_a_survey_never_states_less_than_its_plan_costs():
    """Neither one made here nor one that a dishonest authority signed."""
    honest = survey()
    with pytest.raises(UnderstatedEpsilon, match="state at least"):
        replace(honest, epsilon_micro=honest.epsilon_micro - 1)
    assert replace(honest, epsilon_micro=honest.epsilon_micro + 1).epsilon > honest.epsilon
    fields = canonical.decode(canonical.decode(honest.signed_by(AUTHORITY))["payload"])
    fields["epsilon_micro"] -= 1
    payload = canonical.encode(fields)
    signed = canonical.encode({"payload": payload, "signature": AUTHORITY.sign(payload)})
    with pytest.raises(UnderstatedEpsilon):
        Survey.from_signed(signed, PINNED)


def test_an_object_of_another_kind_or_version_is_not_a_survey():
    """A signature over a sealing key never passes for one over a survey, nor one of a later protocol."""
    key = SealingKey(b"p" * 32, 0, 1)
    with pytest.raises(MalformedBytes, match="not a survey"):
        Survey.from_signed(key.signed_by(AUTHORITY), PINNED)
    with pytest.raises(MalformedBytes, match="not a sealing-key"):
        SealingKey.from_signed(survey().signed_by(AUTHORITY), PINNED)
    payload = canonical.encode({**canonical.decode(payload_bytes("survey", {})), "version": 2})
    with pytest.raises(MalformedBytes, match="version 2"):
        Survey.from_signed(canonical.encode({"payload": payload, "signature": AUTHORITY.sign(payload)}), PINNED)


@pytest.mark.parametrize(
    "change",
    [
        {"question": ""},
        {"answers": ("tea", "tea", "coffee")},
        {"answers": ("tea", "coffee", "")},
        {"answers": ("tea", "coffee")},
        {"skew": -1},
        {"spread": 0},
        {"grace": 15},
        {"minimum": 0},
    ],
    ids=str,
)
def test_impossible_surveys_are_refused(change):
    """Each with what is wrong."""
    with pytest.raises(ValueError, match=r"must|answers"):
        replace(survey(), **change)


def test_an_entry_without_an_answer_is_never_given_away_by_silence():
    """States without NULL are for closed cohorts, where everybody has an answer."""
    plan = ReleasePlan((Group((Track(1, KaryResponse(StateSpace(3, null=False), Odds(3, 1)), 0, 8),)),))
    assert survey(plan, closed=True).plan == plan
    with pytest.raises(ValueError, match="silence would tell"):
        survey(plan)


def test_fields_that_are_missing_added_or_of_another_type_are_refused():
    """A survey has exactly its fields."""
    fields = survey().payload
    known = {k: v for k, v in canonical.decode(fields).items() if k not in ("kind", "version")}
    for broken in (
        {**known, "more": 1},
        {k: v for k, v in known.items() if k != "grace"},
        *({**known, name: "x"} for name in known if not isinstance(known[name], str)),
        {**known, "question": 7},
        {**known, "plan": []},
        {**known, "answers": [1, 2, 3]},
    ):
        with pytest.raises(MalformedBytes, match="not a survey"):
            Survey.from_fields(broken)
