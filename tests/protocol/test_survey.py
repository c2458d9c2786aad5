"""Surveys and other signed objects."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from changeling_protocol import (
    ExpectedChanges,
    Group,
    KaryResponse,
    MalformedBytes,
    MutationSpace,
    Odds,
    ProtocolError,
    ReleasePlan,
    SealingKey,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
    UnderstatedEpsilon,
    decode,
    encode,
    signed,
)

from .examples import AUTHORITY, PINNED, hierarchical, joint_plan, mixed, survey

SEALING = SealingKey(b"p" * 32, 0, 1)
SURVEYS = [
    survey(),
    survey().asking(expected=ExpectedChanges(5, 7)),
    survey(mixed(3, 8)),
    survey(closed=True),
    survey(joint_plan(3, 8)),
]


@pytest.mark.parametrize("original", SURVEYS)
def test_a_signed_survey_comes_back_with_its_name(original):
    """What was signed is what is read, and its id is the hash of the signed bytes."""
    encoded = original.signed_by(AUTHORITY)
    read = Survey.from_signed(encoded, PINNED)
    assert read == original
    assert read.id == sha256(decode(encoded)["payload"]).digest()[:16]


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


def test_a_survey_never_states_less_than_its_plan_costs():
    """Neither one made here nor one that a dishonest authority signed."""
    honest = survey()
    with pytest.raises(UnderstatedEpsilon, match="state at least"):
        replace(honest, epsilon_micro=honest.epsilon_micro - 1)
    assert replace(honest, epsilon_micro=honest.epsilon_micro + 1).epsilon > honest.epsilon
    fields = decode(decode(honest.signed_by(AUTHORITY))["payload"])
    fields["epsilon_micro"] -= 1
    payload = encode(fields)
    signed = encode({"payload": payload, "signature": AUTHORITY.sign(payload)})
    with pytest.raises(UnderstatedEpsilon):
        Survey.from_signed(signed, PINNED)


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
        survey().asking(**change)


def test_an_entry_without_an_answer_is_never_given_away_by_silence():
    """States without NULL are for closed cohorts, where everybody has an answer."""
    plan = ReleasePlan((Group((Track(1, KaryResponse(StateSpace(3, null=False), Odds(3, 1)), 0, 8),)),))
    assert survey(plan, closed=True).plan == plan
    with pytest.raises(ValueError, match="silence would tell"):
        survey(plan)


def test_changes_without_null_are_for_closed_cohorts_after_the_first_period():
    """There an insertion would have no input, and in an open cohort a deletion."""
    space = MutationSpace(3, null=False)

    def moves(first: int) -> ReleasePlan:
        return ReleasePlan((Group((Track(1, SignedSubset(space, Odds(3, 1)), first, 8),)),))

    assert survey(moves(1), closed=True).plan == moves(1)
    assert Survey.from_signed(survey(moves(1), closed=True).signed_by(AUTHORITY), PINNED).plan == moves(1)
    with pytest.raises(ValueError, match="only a closed cohort"):
        survey(moves(1))
    with pytest.raises(ValueError, match="in the first period answers appear"):
        survey(moves(0), closed=True)


def test_odds_beyond_64_bits_are_not_signed():
    """A survey's bytes have no room for them."""
    with pytest.raises(ValueError, match="2\\^64 - 1"):
        survey(hierarchical(3, 8, (1,), Odds(2**64, 1))).signed_by(AUTHORITY)


def with_booleans(value: Any) -> Iterator[Any]:
    """The value with each of its whole numbers, in turn, replaced by each boolean."""
    if isinstance(value, dict):
        yield from ({**value, name: other} for name in value for other in with_booleans(value[name]))
    elif isinstance(value, list):
        yield from (
            [*value[:i], other, *value[i + 1 :]] for i, each in enumerate(value) for other in with_booleans(each)
        )
    elif type(value) is int:
        yield from (True, False)


@pytest.mark.parametrize("original", SURVEYS)
def test_true_is_no_form_of_one_in_a_survey(original):
    """Python takes them for equal: two surveys that are the same to every program would have two ids."""
    changed = [*with_booleans(original.as_fields())]
    assert len(changed) > 20
    for fields in changed:
        with pytest.raises(MalformedBytes):
            Survey.from_signed(signed("survey", fields, AUTHORITY), PINNED)
