"""What passes between client and server: a value has one byte string, only a private key of the authority's signs, and
bodies come back within their limits; the bytes are fixed in tests/vectors."""

from functools import partial

import pytest
from changeling_protocol import (
    BadSignature,
    EarlyEnd,
    MalformedBytes,
    Refusal,
    SealingKey,
    Survey,
    authority_key,
    decode,
    encode,
    signed,
)
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
from hypothesis import example, given
from hypothesis import strategies as st

from .examples import AUTHORITY, PINNED, survey

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def size(value):
    """Each list and map, and each value in them."""
    held = value.values() if isinstance(value, dict) else value
    return 1 + len(value) + sum(map(size, held)) if isinstance(value, list | dict) else 0


def reversed_maps(value):
    """The same, with every map built in the opposite order."""
    if isinstance(value, dict):
        return {key: reversed_maps(each) for key, each in reversed(value.items())}
    return [*map(reversed_maps, value)] if isinstance(value, list) else value


@given(values)
def test_a_value_has_one_form_and_comes_back_within_its_bound(value):
    """Whatever order its maps were made in. A bound on the values in it is kept exactly: one more is refused."""
    encoded = encode(value)
    assert decode(encoded, most_items=size(value)) == value
    assert encode(decode(encoded)) == encode(reversed_maps(value)) == encoded
    if size(value):
        with pytest.raises(MalformedBytes):
            decode(encoded, most_items=size(value) - 1)


@given(st.binary(max_size=80))
@example(b"\x91" * 2000)
def test_rubbish_is_refused(rubbish):
    """Arbitrary bytes either decode to a value with exactly these bytes, or are refused as malformed."""
    try:
        value = decode(rubbish)
    except MalformedBytes:
        return
    assert encode(value) == rubbish


def test_a_megabyte_of_empty_maps_is_refused_before_they_are_compared(monkeypatch):
    """And before more of them are made than are allowed."""
    monkeypatch.setattr("changeling_protocol.signing.encode", lambda _: pytest.fail("it was encoded again"))
    for count in (b"\xdd" + (10**6).to_bytes(4), b"\xdc" + (60).to_bytes(2)):
        with pytest.raises(MalformedBytes):
            decode(b"\x81\xa9envelopes" + count + b"\x80" * 10**6, most_items=67)


@pytest.mark.parametrize("value", [1.5, {1: 2}, {1, 2}, [0.0]], ids=str)
def test_values_without_a_canonical_form_are_not_encoded(value):
    """Floats, sets and maps with other keys are a ValueError."""
    with pytest.raises(ValueError, match="canonical"):
        encode(value)


PRIME = 2**255 - 19
OF_ORDER_EIGHT = (
    2707385501144840649318225287225658788936804267575313519463743609750303402022,
    55188659117513257062467267217118295137698188065244968500265048394206261417927,
)
LOW_ORDER = [
    (y | sign << 255).to_bytes(32, "little")
    for y in (0, 1, PRIME - 1, PRIME, PRIME + 1, *OF_ORDER_EIGHT)
    for sign in (0, 1)
]
"""Every spelling, canonical or not, of every point of edwards25519 whose order divides eight, by its y."""


def test_an_authority_is_a_key_whose_signatures_need_a_private_key():
    """None of the fourteen spellings of a point of low order is one, the usual placeholder, all zeros, among them."""
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    assert sum(OF_ORDER_EIGHT) == PRIME
    assert all((d * y**4 + 2 * y**2 - 1) % PRIME == 0 for y in OF_ORDER_EIGHT)  # twice such a point has y = 0
    assert bytes(32) in LOW_ORDER
    for key in LOW_ORDER:
        with pytest.raises(ValueError, match="low order"):
            authority_key(key)
    assert authority_key(PINNED[0]).public_bytes_raw() == PINNED[0]
    with pytest.raises(ValueError, match="32 bytes"):
        authority_key(PINNED[0][:31])


def test_nobody_signs_without_a_private_key():
    """Under the identity anybody's signature holds, so it is no authority; another beside it still is."""
    identity, genuine = b"\1" + bytes(31), survey().signed_by(AUTHORITY)
    forged = encode({**decode(genuine), "signature": identity + bytes(32)})
    with pytest.raises(BadSignature):
        Survey.from_signed(forged, [identity])
    assert Survey.from_signed(genuine, [identity, PINNED[0]]) == survey()


def test_signed_objects_are_read_without_their_signature_in_one_place():
    """The same survey, key and early end come back, whoever signed; another kind is malformed."""
    published, key = survey(), SealingKey(bytes(31) + b"\7", 0, 1)
    assert Survey.from_payload(published.payload) == published
    for original in (published, key, EarlyEnd(published.id, 3)):
        kind, encoded = type(original), original.signed_by(AUTHORITY)
        assert kind.from_signed(encoded, PINNED) == kind.unverified(encoded) == original
        with pytest.raises(BadSignature):
            kind.from_signed(encoded, [])
        other = key if kind is not SealingKey else published
        for read in (kind.unverified, partial(kind.from_signed, authority=PINNED)):
            with pytest.raises(MalformedBytes, match="not a"):
                read(other.signed_by(AUTHORITY))
    with pytest.raises(MalformedBytes, match="payload and its signature"):
        Survey.unverified(encode({"payload": published.payload}))
    with pytest.raises(MalformedBytes):
        Survey.unverified(signed("survey", {"rubbish": [[]] * 2**16}, AUTHORITY))


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
