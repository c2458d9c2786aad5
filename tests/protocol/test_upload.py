"""The plaintext of an upload and its seal."""

import random
from collections.abc import Iterator
from contextlib import suppress

import msgpack
import pytest
from changeling_protocol import (
    CLOSING_ID_BYTES,
    HEAD_BYTES,
    MOST_SPANNED_PERIODS,
    SEAL_BYTES,
    VERSION,
    CannotOpen,
    Closing,
    CustomResponse,
    Group,
    MalformedBytes,
    Node,
    Odds,
    ReleasePlan,
    Report,
    SealingKey,
    Standing,
    StateSpace,
    Track,
    UnaryEncoding,
    closings,
    column_bytes,
    decode_upload,
    encode_upload,
    head_of,
    open_envelope,
    seal,
    symbol_bytes,
    upload_bytes,
)
from changeling_protocol.plan import MOST_TRACKS
from changeling_protocol.survey import MOST_STRATA
from changeling_protocol.wire import MOST_BODY_BYTES
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from .examples import hierarchical, mixed, survey

PLAN = mixed(3, 8)
PRIVATE = X25519PrivateKey.from_private_bytes(b"p" * 32)
KEY = SealingKey(PRIVATE.public_key().public_bytes_raw(), 0, 10)


def read_upload(plan: ReleasePlan, plaintext: bytes) -> tuple[int, list[Closing], list[Report]]:
    """The group, the answered closings and the reports in a plaintext. Raises MalformedBytes."""
    upload = decode_upload(plaintext)
    if not 0 <= upload.group < len(plan.groups):
        raise MalformedBytes("a group of another plan")
    if column_bytes(plan, upload.group, upload.span) != (len(upload.closings), *map(len, upload.symbols)):
        raise MalformedBytes("columns of a wrong length")
    answered = list(_closings(closings(plan, upload.span.start, upload.span.end), upload.closings))
    reports = [
        Report(number, node, symbol)
        for (number, track), column in zip(plan.numbered(upload.group), upload.symbols, strict=True)
        for node, symbol in symbols_in(track, upload.span, column)
    ]
    return upload.group, answered, reports


def _closings(periods: list[int], column: bytes) -> Iterator[Closing]:
    n = len(periods)
    ids, standings, strata = column[: CLOSING_ID_BYTES * n], column[CLOSING_ID_BYTES * n : -2 * n], column[-2 * n :]
    for i, period in enumerate(periods):
        if standings[i]:
            id_ = ids[CLOSING_ID_BYTES * i : CLOSING_ID_BYTES * (i + 1)]
            yield Closing(period, id_, Standing(standings[i] - 1), int.from_bytes(strata[2 * i : 2 * i + 2]))


def symbols_in(track: Track, span: Node, column: bytes) -> Iterator[tuple[int, int]]:
    """Node and symbol of each report in a track's column."""
    width = symbol_bytes(track.randomizer)
    nodes = [number for number in track.node_numbers() if span.start < track.node(number).end <= span.end]
    for i, node in enumerate(nodes):
        if written := int.from_bytes(column[width * i : width * (i + 1)]):
            yield node, written - 1


def answers_in(plan, group, span, generator):
    """Some of the span's closings, each with some of the reports that it could have."""
    answered = [
        Closing(period, generator.randbytes(16), generator.choice(list(Standing)), generator.randrange(MOST_STRATA))
        for period in closings(plan, span.start, span.end)
        if generator.random() < 0.8
    ]
    reports = [
        Report(number, node, generator.randrange(track.randomizer.symbols))
        for number, track in plan.numbered(group)
        for closing in answered
        if (node := track.ending_at(closing.period)) is not None and generator.random() < 0.5
    ]
    return answered, reports


@given(st.integers(0, 2), st.integers(0, 7), st.integers(1, 8), st.integers())
def test_answers_come_back_and_the_size_says_nothing(group, start, width, seed):
    """Whatever an entry answers, in whatever group, the plaintext has the length its periods determine."""
    span = Node(start, min(start + width, 8))
    answered, reports = answers_in(PLAN, group, span, random.Random(seed))
    plaintext = encode_upload(PLAN, group, span, answered, reports)
    assert len(plaintext) == upload_bytes(PLAN, span)
    read = read_upload(PLAN, plaintext)
    assert read == (group, answered, sorted(reports, key=lambda report: (report.track, report.node)))


def closing(period, id_=b"i" * 16):
    return Closing(period, id_, Standing.KNOWN, 0)


def test_what_does_not_belong_into_an_upload_is_refused():
    """A closing outside of the span, or where no node ends; a report on a node that ends elsewhere or with a closing
    that is not answered, or on a track of another group; either of them twice."""
    sparse = hierarchical(2, 8, (2,), Odds(3, 1))
    for plan, period in ((PLAN, 5), (PLAN, 0), (sparse, 3)):
        with pytest.raises(ValueError, match="no closings of the plan"):
            encode_upload(plan, 0, Node(0, 4), [closing(period)], [])
    for report in (Report(0, 5, 0), Report(1, 1, 0), Report(0, 99, 0), Report(0, 2, 0)):
        with pytest.raises(ValueError, match="not on nodes"):
            encode_upload(PLAN, 0, Node(0, 4), [closing(1)], [report])
    for answered, reports in (
        ([closing(1), closing(1, b"j" * 16)], []),
        ([closing(1)], [Report(0, 1, 0), Report(0, 1, 1)]),
    ):
        with pytest.raises(ValueError, match="answers a closing once"):
            encode_upload(PLAN, 0, Node(0, 4), answered, reports)


def test_a_symbol_has_room_beside_none():
    """Where the alphabet fills its bytes, one byte more: the last symbol is told from no report."""
    for symbols, width in ((255, 1), (256, 2), (257, 2), (2**16, 3)):
        track = Track(1, CustomResponse(StateSpace(1), ((2, 3), *((1, 1),) * (symbols - 1))), 0, 2)
        assert symbol_bytes(track.randomizer) == width
        plan = ReleasePlan((Group((track,)),))
        plaintext = encode_upload(plan, 0, Node(0, 2), [closing(1), closing(2)], [Report(0, 2, symbols - 1)])
        assert read_upload(plan, plaintext)[2] == [Report(0, 2, symbols - 1)]


def test_closings_are_the_ends_of_nodes():
    """Periods at which nothing closes are not reported on."""
    plan = hierarchical(2, 9, (2, 4), Odds(3, 1))
    assert closings(plan, 0, 9) == [2, 4, 6, 8]
    assert closings(plan, 3, 5) == [4]
    assert closings(plan, 5, 5) == []


def test_the_longest_upload_fits_into_a_body():
    """64 periods of as many tracks as a plan may have, each with the longest symbols that there are."""
    track = Track(1, UnaryEncoding(StateSpace(61), Odds(2, 1)), 0, 64)
    assert symbol_bytes(track.randomizer) == 8
    plan = ReleasePlan((Group((track,) * MOST_TRACKS),))
    longest = upload_bytes(plan, Node(0, MOST_SPANNED_PERIODS))
    assert HEAD_BYTES + SEAL_BYTES + longest + 100 < MOST_BODY_BYTES


@given(st.binary(max_size=120))
def test_rubbish_is_refused_as_malformed(rubbish):
    """Arbitrary plaintext either parses or is malformed; nothing else is raised."""
    with suppress(MalformedBytes):
        read_upload(PLAN, rubbish)


NO_UPLOADS = [
    *([], [0, 0, 1], [0, 0, 1, 0], [True, 0, 1, b""], [0, False, 1, b""], [0, 0, 1, "text"], [0, 1, 1, b""]),
    *([0, -1, 1, b""], [0, 0, 65, b""], [0, 2**64 - 2, 2**64 - 1, b""], [0, 2**20, 2**20 + 1, b""], {}, 7),
]


@pytest.mark.parametrize(
    "plaintext", [b"", b"\x00\x01", b"\x94\x00\x00\x01\xc4\x00\x01", b"\xc1", *map(msgpack.packb, NO_UPLOADS)]
)
def test_named_rubbish_is_refused(plaintext):
    """Nothing, no array, padding that is not zero, no MessagePack; an array that is not a group, a span of periods that
    there may be, and columns of bytes."""
    with pytest.raises(MalformedBytes):
        decode_upload(plaintext)


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
