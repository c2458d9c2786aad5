"""What client and server say to each other: known bytes, round trips, and that nobody else spells it."""

import json
from functools import partial
from pathlib import Path

import pytest
from changeling_protocol import BadSignature, EarlyEnd, MalformedBytes, Refusal, SealingKey, Survey, encode, signed
from changeling_protocol.wire import (
    MOST_ENVELOPES,
    MOST_ENVELOPES_TAKEN,
    ErrorAnswer,
    ErrorCode,
    decode_acknowledgement,
    decode_key_list,
    decode_upload_request,
    encode_acknowledgement,
    encode_key_list,
    encode_upload_request,
)
from hypothesis import given
from hypothesis import strategies as st

from .examples import AUTHORITY, PINNED, survey

ROOT = Path(__file__).parents[2]
OTHERS = ("client_sdk", "aggregator", "simulations", "benchmarks")


@given(st.lists(st.binary(max_size=40), max_size=MOST_ENVELOPES))
def test_envelopes_and_keys_come_back(blobs):
    """Whatever is sent is what is read."""
    assert decode_upload_request(encode_upload_request(blobs)) == blobs
    assert decode_key_list(encode_key_list(blobs)) == blobs


@given(st.dictionaries(st.integers(0, MOST_ENVELOPES - 1), st.sampled_from(Refusal)))
def test_an_acknowledgement_comes_back(refused):
    """Each refused envelope with its reason."""
    assert decode_acknowledgement(encode_acknowledgement(refused), MOST_ENVELOPES) == refused


def test_a_request_carries_so_many_envelopes_and_no_more():
    """One more is refused by whoever would send it, and by whoever reads it."""
    with pytest.raises(ValueError, match="at most 4096 envelopes, got 4097"):
        encode_upload_request([b""] * (MOST_ENVELOPES_TAKEN + 1))
    with pytest.raises(MalformedBytes):
        decode_upload_request(encode({"envelopes": [b""] * (MOST_ENVELOPES_TAKEN + 1)}))


def test_what_is_no_envelope_is_none_by_itself():
    """An integer or a list in the place of an envelope reads as empty bytes, its neighbours as they are."""
    assert decode_upload_request(encode({"envelopes": [b"a", 17, [b"b"], b"c"]})) == [b"a", b"", b"", b"c"]


def _acknowledgement(body):
    return decode_acknowledgement(body, MOST_ENVELOPES)


@pytest.mark.parametrize("read", [decode_key_list, decode_upload_request, _acknowledgement])
@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", b"<html>", b"\x80", b"\xdd\x00\x10\x00\x00" + b"\x90" * 2**20])
def test_other_bodies_are_malformed(read, body):
    """Also a megabyte of empty lists, of which no million objects is made."""
    with pytest.raises(MalformedBytes):
        read(body)


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_is_its_code_and_a_sentence(code):
    """A problem document (RFC 9457) with what to do. It comes back; each code has one status."""
    answer = ErrorAnswer(code, "Zu groß.")
    problem = json.loads(answer.encode())
    assert (problem["code"], problem["detail"], problem["status"]) == (code.value, "Zu groß.", code.status)
    assert (problem["type"], problem["advice"]) == (f"urn:changeling:{code.value}", code.advice)
    assert ErrorAnswer.decode(answer.encode()) == answer
    assert 400 <= code.status < 600


def test_signed_objects_are_read_without_their_signature_in_one_place():
    """The same survey and key come back, whoever signed; another kind, or a flipped form, is malformed."""
    published, key = survey(), SealingKey(bytes(31) + b"\7", 0, 1)
    assert Survey.unverified(published.signed_by(AUTHORITY)) == published == Survey.from_payload(published.payload)
    assert SealingKey.unverified(key.signed_by(AUTHORITY)) == key
    end = EarlyEnd(published.id, 3)
    encoded = end.signed_by(AUTHORITY)
    assert EarlyEnd.from_signed(encoded, PINNED) == EarlyEnd.unverified(encoded) == end
    with pytest.raises(BadSignature):
        EarlyEnd.from_signed(encoded, [])
    for kind, other in ((Survey, key), (SealingKey, published), (EarlyEnd, published)):
        for read in (kind.unverified, partial(kind.from_signed, authority=PINNED)):
            with pytest.raises(MalformedBytes, match="not a"):
                read(other.signed_by(AUTHORITY))
    with pytest.raises(MalformedBytes, match="payload and its signature"):
        Survey.unverified(encode({"payload": published.payload}))
    with pytest.raises(MalformedBytes):
        Survey.unverified(signed("survey", {"rubbish": [[]] * 2**16}, AUTHORITY))
