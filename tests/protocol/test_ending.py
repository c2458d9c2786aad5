"""Early ends: signed by the authority, and read back as they were."""

import pytest
from changeling_protocol import MOST_PERIODS, BadSignature, EarlyEnd, MalformedBytes, Survey, signed
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .examples import AUTHORITY, PINNED, survey

END = EarlyEnd(survey().id, 3)


def test_an_end_comes_back_from_its_signed_bytes():
    """With the authority's key checked, or not."""
    encoded = END.signed_by(AUTHORITY)
    assert EarlyEnd.from_signed(encoded, PINNED) == EarlyEnd.unverified(encoded) == END
    with pytest.raises(BadSignature):
        EarlyEnd.from_signed(END.signed_by(Ed25519PrivateKey.from_private_bytes(bytes(32))), PINNED)


def test_a_survey_is_no_end_and_an_end_no_survey():
    """The kind stands inside the signed bytes."""
    with pytest.raises(MalformedBytes, match="not a"):
        EarlyEnd.from_signed(survey().signed_by(AUTHORITY), PINNED)
    with pytest.raises(MalformedBytes, match="not a survey"):
        Survey.from_signed(END.signed_by(AUTHORITY), PINNED)


@pytest.mark.parametrize(
    "changed",
    [
        {"survey": b"short"},
        {"survey": "text"},
        {"last": 0},
        {"last": -1},
        {"last": True},
        {"last": MOST_PERIODS + 1},
        {"last": "3"},
        {"more": 1},
    ],
)
def test_other_fields_are_malformed(changed):
    """An id that is none, a period that no calendar has, true for one, a field too many."""
    fields = {"survey": END.survey, "last": 1}
    assert EarlyEnd.unverified(signed("early-end", fields, AUTHORITY)).last == 1
    with pytest.raises(MalformedBytes):
        EarlyEnd.unverified(signed("early-end", {**fields, **changed}, AUTHORITY))
