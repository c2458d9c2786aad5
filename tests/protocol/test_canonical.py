"""Canonical MessagePack: one value, one byte string."""

import pytest
from changeling_protocol import MalformedBytes, decode, encode
from hypothesis import example, given
from hypothesis import strategies as st

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(values)
def test_what_is_encoded_is_decoded_again(value):
    """Round trip, and encoding again gives the same bytes."""
    encoded = encode(value)
    assert decode(encoded) == value
    assert encode(decode(encoded)) == encoded


@given(st.dictionaries(st.text(), st.integers(0, 9), min_size=2))
def test_the_order_of_keys_does_not_matter_when_encoding(value):
    """Maps built in another order have the same bytes."""
    assert encode(dict(reversed(value.items()))) == encode(value)


@given(st.binary(max_size=80))
@example(b"\x91" * 2000)
def test_rubbish_is_refused(rubbish):
    """Arbitrary bytes either decode to a value with exactly these bytes, or are refused as malformed."""
    try:
        value = decode(rubbish)
    except MalformedBytes:
        return
    assert encode(value) == rubbish


def size(value):
    """Each list and map, and each value in them."""
    held = value.values() if isinstance(value, dict) else value
    return 1 + len(value) + sum(map(size, held)) if isinstance(value, list | dict) else 0


@given(values)
def test_a_bound_on_the_values_is_kept_exactly(value):
    """With as many as are allowed it decodes as without a bound; with one more it is refused."""
    encoded = encode(value)
    assert decode(encoded, most_items=size(value)) == value
    if size(value):
        with pytest.raises(MalformedBytes):
            decode(encoded, most_items=size(value) - 1)


def test_a_megabyte_of_empty_maps_is_refused_before_they_are_compared(monkeypatch):
    """And before more of them are made than are allowed."""
    monkeypatch.setattr("changeling_protocol.signing.encode", lambda _: pytest.fail("it was encoded again"))
    for count in (b"\xdd" + (10**6).to_bytes(4), b"\xdc" + (60).to_bytes(2)):
        with pytest.raises(MalformedBytes):
            decode(b"\x81\xa9envelopes" + count + b"\x80" * 10**6, most_items=67)


def test_values_without_a_canonical_form_are_not_encoded():
    """Floats, sets and maps with other keys are a ValueError."""
    for value in (1.5, {1: 2}, {1, 2}, [0.0]):
        with pytest.raises(ValueError, match="canonical"):
            encode(value)
