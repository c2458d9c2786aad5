"""The plaintext of an upload, its seal, and HPKE: what RFC 9180 and the library say opens, and nothing else."""

import random
from contextlib import suppress

import msgpack
import pytest
from changeling_client.testing import read_upload
from changeling_protocol import (
    HEAD_BYTES,
    MOST_SPANNED_PERIODS,
    MOST_TRACKS,
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
    decode_upload,
    encode_upload,
    head_of,
    hpke_seal,
    hpke_unseal,
    open_envelope,
    seal,
    symbol_bytes,
    upload_bytes,
)
from changeling_protocol.upload import key_schedule
from changeling_protocol.wire import MOST_BODY_BYTES
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from .examples import hierarchical, mixed, survey

PLAN = mixed(3, 8)
PRIVATE = X25519PrivateKey.from_private_bytes(b"p" * 32)
KEY = SealingKey(PRIVATE.public_key().public_bytes_raw(), 0, 10)


def answers_in(plan, group, span, generator):
    """Some of the span's closings, each with some of the reports that it could have."""
    answered = [
        Closing(period, generator.randbytes(16), generator.choice(list(Standing)), generator.randrange(2**10))
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


def test_the_longest_upload_fits_into_a_body():
    """64 periods of as many tracks as a plan may have, each with the longest symbols that there are."""
    track = Track(1, UnaryEncoding(StateSpace(61), Odds(2, 1)), 0, 64)
    assert symbol_bytes(track.randomizer) == 8
    plan = ReleasePlan((Group((track,) * MOST_TRACKS),))
    longest = upload_bytes(plan, Node(0, MOST_SPANNED_PERIODS))
    assert HEAD_BYTES + SEAL_BYTES + longest + 100 < MOST_BODY_BYTES


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


@given(st.binary(max_size=120))
def test_rubbish_is_refused_as_malformed(rubbish):
    """Arbitrary plaintext either parses or is malformed; nothing else is raised."""
    with suppress(MalformedBytes):
        read_upload(PLAN, rubbish)


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


RFC = {  # RFC 9180, appendix A.1.1: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, base mode
    "info": "4f6465206f6e2061204772656369616e2055726e",
    "skEm": "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
    "enc": "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
    "skRm": "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
    "pkRm": "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d",
    "key": "4531685d41d65f03dc48f6b8302c05b0",
    "base_nonce": "56d890e5accaaf011cff4b7d",
    "pt": "4265617574792069732074727574682c20747275746820626561757479",
    "aad": "436f756e742d30",
    "ct": "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
}
VECTOR = {name: bytes.fromhex(value) for name, value in RFC.items()}
EPHEMERAL = X25519PrivateKey.from_private_bytes(VECTOR["skEm"])
RECIPIENT = X25519PrivateKey.from_private_bytes(VECTOR["skRm"])


def test_the_key_schedule_is_that_of_the_rfc():
    """Both public keys, the key, the nonce, and the first ciphertext of appendix A.1.1."""
    assert EPHEMERAL.public_key().public_bytes_raw() == VECTOR["enc"]
    assert RECIPIENT.public_key().public_bytes_raw() == VECTOR["pkRm"]
    exchanged = EPHEMERAL.exchange(RECIPIENT.public_key())
    key, nonce = key_schedule(exchanged, VECTOR["enc"], VECTOR["pkRm"], VECTOR["info"])
    assert (key, nonce) == (VECTOR["key"], VECTOR["base_nonce"])
    assert AESGCM(key).encrypt(nonce, VECTOR["pt"], VECTOR["aad"]) == VECTOR["ct"]


@given(st.binary(max_size=300), st.binary(max_size=80))
def test_the_library_opens_what_we_seal_and_we_open_what_it_seals(plaintext, info):
    """The HPKE that the newest versions of `cryptography` bring is another implementation of the same."""
    from cryptography.hazmat.primitives import hpke as library

    suite = library.Suite(library.KEM.X25519, library.KDF.HKDF_SHA256, library.AEAD.AES_128_GCM)
    sealed = hpke_seal(plaintext, RECIPIENT.public_key(), info, X25519PrivateKey.generate())
    assert suite.decrypt(sealed, RECIPIENT, info=info) == plaintext
    assert hpke_unseal(suite.encrypt(plaintext, RECIPIENT.public_key(), info=info), RECIPIENT, info) == plaintext


def test_nothing_is_shared_with_a_key_of_low_order():
    """Neither sealed to one, nor opened from one: the secret would be known to everybody."""
    low = X25519PublicKey.from_public_bytes(bytes(32))
    with pytest.raises(ValueError, match="shared key"):
        hpke_seal(b"", low, b"", EPHEMERAL)
    with pytest.raises(ValueError, match="shared key"):
        hpke_unseal(bytes(48), RECIPIENT, b"")
