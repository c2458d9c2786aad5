"""The plaintext of an upload and its seal."""

import random

import pytest
from changeling_protocol import (
    VERSION,
    CannotOpen,
    MalformedBytes,
    Node,
    Odds,
    Report,
    SealingKey,
    open_envelope,
    seal,
)
from changeling_protocol.sealing import HEAD_BYTES, SEAL_BYTES, head_of
from changeling_protocol.upload import closings, decode_upload, encode_upload, upload_bytes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from .examples import hierarchical, mixed, survey
from .reading import read_columns

PLAN = mixed(3, 8)
PRIVATE = X25519PrivateKey.from_private_bytes(b"p" * 32)
KEY = SealingKey(PRIVATE.public_key().public_bytes_raw(), 0, 10)


def reports_in(plan, group, span, generator):
    return [
        Report(number, node, generator.randbytes(16), generator.randrange(track.randomizer.symbols))
        for number, track in plan.numbered(group)
        for node in range(1, track.count + 1)
        if span.start < track.node(node).end <= span.end and generator.random() < 0.5
    ]


@given(st.integers(0, 2), st.integers(0, 7), st.integers(1, 8), st.integers())
def test_reports_come_back_and_the_size_says_nothing(group, start, width, seed):
    """Whatever an entry reports, in whatever group, the plaintext has the length its periods determine."""
    span = Node(start, min(start + width, 8))
    reports = reports_in(PLAN, group, span, random.Random(seed))
    plaintext = encode_upload(PLAN, group, span, reports)
    assert len(plaintext) == upload_bytes(PLAN, span)
    read = [
        report
        for number, columns in decode_upload(plaintext)
        for report in read_columns(PLAN.tracks[number], number, columns)
    ]
    assert sorted(read, key=str) == sorted(reports, key=str)


def test_a_report_outside_the_upload_is_refused():
    """A node that ends elsewhere, or a track of another group."""
    for report in (Report(0, 5, b"i" * 16, 0), Report(1, 1, b"i" * 16, 0), Report(0, 99, b"i" * 16, 0)):
        with pytest.raises(ValueError, match="not on nodes"):
            encode_upload(PLAN, 0, Node(0, 4), [report])
    with pytest.raises(ValueError, match="one report a node"):
        encode_upload(PLAN, 0, Node(0, 4), [Report(0, 1, b"i" * 16, 0), Report(0, 1, b"j" * 16, 1)])


def test_closings_are_the_ends_of_nodes():
    """Periods at which nothing closes are not reported on."""
    plan = hierarchical(2, 9, (2, 4), Odds(3, 1))
    assert closings(plan, 0, 9) == [2, 4, 6, 8]
    assert closings(plan, 3, 5) == [4]
    assert closings(plan, 5, 5) == []


@given(st.binary(max_size=120))
def test_rubbish_is_refused_as_malformed(rubbish):
    """Arbitrary plaintext either parses or is malformed; nothing else is raised."""
    try:
        for number, columns in decode_upload(rubbish):
            list(read_columns(PLAN.tracks[0], number, columns))
    except MalformedBytes:
        pass


@pytest.mark.parametrize(
    "plaintext", [b"", b"\x00\x01", b"\x91\x00", b"\x92\x00\x00", b"\x92\xc3\xc4\x00", b"\x90\x01", b"\xc1"]
)
def test_named_rubbish_is_refused(plaintext):
    """Not an array, odd, columns that are no bytes, padding that is not zero."""
    with pytest.raises(MalformedBytes):
        decode_upload(plaintext)
    with pytest.raises(MalformedBytes, match="rows of"):
        list(read_columns(PLAN.tracks[0], 0, bytes(22)))


def test_a_seal_opens_with_its_key_and_under_its_head_only():
    """Another key, another survey's head, a flipped byte or a missing one: it does not open."""
    envelope = seal(b"plaintext", survey().id, KEY)
    assert open_envelope(envelope, PRIVATE) == b"plaintext"
    assert len(envelope) == HEAD_BYTES + SEAL_BYTES + len(b"plaintext")
    head = head_of(envelope)
    assert (head.version, head.survey, head.key) == (VERSION, survey().id, KEY.id)
    assert seal(b"plaintext", survey().id, KEY) != envelope
    with pytest.raises(CannotOpen):
        open_envelope(envelope, X25519PrivateKey.from_private_bytes(b"q" * 32))
    for i in range(len(envelope)):
        with pytest.raises(CannotOpen):
            open_envelope(envelope[:i] + bytes([envelope[i] ^ 1]) + envelope[i + 1 :], PRIVATE)
    for length in range(len(envelope)):
        with pytest.raises(CannotOpen):
            open_envelope(envelope[:length], PRIVATE)
    with pytest.raises(MalformedBytes):
        head_of(envelope[: HEAD_BYTES + SEAL_BYTES])


@pytest.mark.parametrize("public", [bytes(32), b"\1" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f"])
def test_a_key_that_nothing_can_be_sealed_to_is_none(public):
    """A point of low order shares no secret with anybody; it is refused where keys are read, not where uploads are."""
    with pytest.raises(ValueError, match="low order"):
        SealingKey(public, 0, 1)
