"""What client and server say to each other comes back, within its limits; the bytes are fixed in tests/vectors."""

import pytest
from changeling_protocol import MalformedBytes, Refusal, encode
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


@given(
    st.lists(st.binary(max_size=40), max_size=MOST_ENVELOPES),
    st.dictionaries(st.integers(0, MOST_ENVELOPES - 1), st.sampled_from(Refusal)),
    st.builds(ErrorAnswer, st.sampled_from(ErrorCode), st.text()),
)
def test_bodies_come_back(blobs, refused, error):
    """Envelopes, keys, each refused envelope with its reason, and an error with its sentence."""
    assert decode_upload_request(encode_upload_request(blobs)) == blobs
    assert decode_key_list(encode_key_list(blobs)) == blobs
    assert decode_acknowledgement(encode_acknowledgement(refused), MOST_ENVELOPES) == refused
    assert ErrorAnswer.decode(error.encode()) == error


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


BODIES = {
    "nothing": b"",
    "a byte that is never used": b"\xc1",
    "a list": b"\x90",
    "a page": b"<html>",
    "an empty map": b"\x80",
    "a megabyte of empty lists, of which no million objects is made": b"\xdd\x00\x10\x00\x00" + b"\x90" * 2**20,
}


@pytest.mark.parametrize("read", [decode_key_list, decode_upload_request, _acknowledgement])
@pytest.mark.parametrize("body", BODIES)
def test_other_bodies_are_malformed(read, body):
    """Whoever reads them."""
    with pytest.raises(MalformedBytes):
        read(BODIES[body])
