"""What passes between a device and a server: values, seals, plaintexts and bodies, and what must be refused of them."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from changeling_protocol import (
    MOST_SPANNED_PERIODS,
    VERSION,
    CannotOpen,
    Closing,
    MalformedBytes,
    Node,
    NodeNumber,
    Refusal,
    Report,
    SealingKey,
    Standing,
    StratumNumber,
    SurveyId,
    TrackNumber,
    closings,
    decode,
    encode,
    encode_upload,
    head_of,
    hpke_seal,
    key_id,
    open_envelope,
    upload_bytes,
)
from changeling_protocol.wire import (
    KEYS,
    MOST_BODY_BYTES,
    MOST_ENVELOPES,
    MSGPACK,
    PROBLEM,
    UPLOADS,
    ErrorAnswer,
    ErrorCode,
    decode_acknowledgement,
    decode_key_list,
    encode_acknowledgement,
    encode_key_list,
    encode_upload_request,
    survey_path,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ...protocol.examples import AUTHORITY, PINNED
from .examples import PRIVATE, SEALING_KEY, SURVEYS
from .notation import Case, tagged

_VALUES = (
    None,
    False,
    True,
    *(0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**53 + 1, 2**63, 2**64 - 1),
    *(-1, -32, -33, -128, -129, -32_768, -32_769, -(2**31), -(2**31) - 1, -(2**63)),
    *("", "tea", "é", "茶", "a" * 31, "a" * 32, "a" * 255, "a" * 256),
    *(b"", b"\0", bytes(255), bytes(256)),
    [],
    [*range(15)],
    [*range(16)],
    [[], [None, [True]]],
    {},
    {"b": 1, "a": [b"", ""], "ab": {"": -1}, "é": None, "z": 2, "B": 3},
    {"￿": 1, "\U00010000": 2},
    {f"{i:02}": i for i in range(15)},
    {f"{i:02}": i for i in range(16)},
)
_REFUSED = {
    "nothing": "",
    "something after it": "0000",
    "cut short": "a2 61",
    "a list that is cut short": "92 00",
    "keys out of order": "82 a162 01 a161 01",
    "a key twice": "82 a161 01 a161 01",
    "a key that is no string": "81 01 01",
    "a key that is bytes": "81 c40161 01",
    "an integer in a longer form": "cc 01",
    "a negative integer in a longer form": "d0 ff",
    "a positive integer in a signed form": "d1 0100",
    "a string in a longer form": "d9 01 61",
    "bytes in a longer form": "c5 0001 00",
    "bytes in the longest form": "c6 00000001 00",
    "a list in a longer form": "dc 0001 00",
    "a map in a longer form": "de 0001 a161 00",
    "a float": "ca 3f800000",
    "a double": "cb 3ff0000000000000",
    "an extension": "d4 01 00",
    "a time": "d6 ff 00000000",
    "a byte that is never used": "c1",
    "a string that is no UTF-8": "a1 ff",
    "a string with half a surrogate pair": "a3 eda080",
    "a longer form deep inside": "81 a161 91 cc01",
}


def canonical() -> list[Case]:
    """Values with their bytes; bytes that must be refused."""
    return [*(_value(value) for value in _VALUES), *(_refused_value(why, encoded) for why, encoded in _REFUSED.items())]


def _value(value: object) -> Case:
    return {"kind": "value", "value": tagged(value), "encoded": encode(value).hex()}


def _refused_value(why: str, encoded: str) -> Case:
    with pytest.raises(MalformedBytes):
        decode(bytes.fromhex(encoded))
    return {"kind": "refused", "why": why, "encoded": bytes.fromhex(encoded).hex()}


_OTHER = X25519PrivateKey.from_private_bytes(bytes(range(50, 82)))


def seals() -> list[Case]:
    """Seals of several lengths, then altered ones."""
    return [*map(_seal, range(3), (1, 64, 700)), *_refused_seal()]


def _seal(seed: int, length: int) -> Case:
    plaintext = bytes(i % 256 for i in range(length))
    ephemeral = X25519PrivateKey.from_private_bytes(bytes(range(seed, seed + 32)))
    envelope = _sealed(plaintext, SURVEYS["mixed"].id, SEALING_KEY, ephemeral)
    head = head_of(envelope)
    assert open_envelope(envelope, PRIVATE) == plaintext
    return {
        "kind": "seal",
        "private": PRIVATE.private_bytes_raw().hex(),
        "public": SEALING_KEY.public.hex(),
        "ephemeral": ephemeral.private_bytes_raw().hex(),
        "head": {"version": head.version, "survey": head.survey.hex(), "key": head.key.hex()},
        "plaintext": plaintext.hex(),
        "envelope": envelope.hex(),
    }


def _refused_seal() -> Iterator[Case]:
    envelope = bytes.fromhex(_seal(0, 64)["envelope"])
    for why, altered in (
        ("another version", bytes([envelope[0] ^ 1]) + envelope[1:]),
        ("another survey", envelope[:1] + bytes(16) + envelope[17:]),
        ("another key id", envelope[:17] + key_id(bytes(32)) + envelope[33:]),
        ("an altered encapsulated key", envelope[:33] + bytes([envelope[33] ^ 1]) + envelope[34:]),
        ("an encapsulated key of low order", envelope[:33] + bytes(32) + envelope[65:]),
        ("an altered ciphertext", envelope[:70] + bytes([envelope[70] ^ 1]) + envelope[71:]),
        ("an altered tag", envelope[:-1] + bytes([envelope[-1] ^ 1])),
        ("cut short", envelope[:-1]),
        ("a head alone", envelope[:33]),
        ("nothing", b""),
    ):
        yield _closed(why, altered, PRIVATE)
    yield _closed("another private key", envelope, _OTHER)


def _closed(why: str, envelope: bytes, private: X25519PrivateKey) -> Case:
    with pytest.raises(CannotOpen):
        open_envelope(envelope, private)
    return {"kind": "refused", "why": why, "private": private.private_bytes_raw().hex(), "envelope": envelope.hex()}


def _sealed(plaintext: bytes, survey: SurveyId, key: SealingKey, ephemeral: X25519PrivateKey) -> bytes:
    """`changeling_protocol.seal` with a given ephemeral key."""
    head = VERSION.to_bytes(1) + survey + key.id
    return head + hpke_seal(plaintext, PRIVATE.public_key(), head, ephemeral)


def uploads() -> list[Case]:
    """Uploads of every group of some surveys, then lengths over many spans."""
    return [*_uploads(), *_lengths()]


def _uploads() -> Iterator[Case]:
    for name in ("mixed", "joint", "closed", "states", "strata", "time-bounded"):
        survey = SURVEYS[name]
        last = survey.calendar.periods
        for group, span in enumerate(
            [Node(0, min(last, 64)), Node(2, 6), Node(last - 1, last)][: len(survey.plan.groups)]
        ):
            answered = closings(survey.plan, span.start, span.end)
            answered = answered[::2] if len(answered) > 1 else answered  # some are not answered
            rows = [
                Closing(period, bytes(range(i, i + 16)), Standing(i % 3), StratumNumber(257 * i))
                for i, period in enumerate(answered)
            ]
            reports = [
                Report(track, node, (7 * i + 1) % each.randomizer.symbols)
                for track, each in survey.plan.numbered(group)
                for i, node in enumerate(map(NodeNumber, range(1, each.count + 1)))
                if each.node(node).end in answered and (each.reported is None or i % 2)
            ]
            yield {
                "kind": "upload",
                "survey": survey.signed_by(AUTHORITY).hex(),
                "authority": [key.hex() for key in PINNED],
                "group": group,
                "span": [span.start, span.end],
                "closings": [
                    {"period": c.period, "id": c.id.hex(), "standing": c.standing.name.lower(), "stratum": c.stratum}
                    for c in rows
                ],
                "reports": [[TrackNumber(r.track), r.node, str(r.symbol)] for r in reports],
                "plaintext": encode_upload(survey.plan, group, span, rows, reports).hex(),
            }


def _lengths() -> Iterator[Case]:
    for name in ("hierarchy", "mixed", "joint", "closed", "time-bounded"):
        survey = SURVEYS[name]
        last = survey.calendar.periods
        spans = [Node(0, last), *(Node(*each) for each in pairwise(sorted({0, 1, 3, last - 2, last})))]
        yield {
            "kind": "lengths",
            "survey": survey.signed_by(AUTHORITY).hex(),
            "authority": [key.hex() for key in PINNED],
            "lengths": [[span.start, span.end, upload_bytes(survey.plan, span)] for span in spans],
        }


def bodies() -> list[Case]:
    """Paths and limits, then bodies, then what must be refused."""
    return [*_paths(), _limits(), *_requests(), *_acknowledgements(), *_key_lists(), *_errors(), *_refused_bodies()]


def _paths() -> Iterator[Case]:
    survey = SURVEYS["hierarchy"].id.hex()
    for asks, method, path, media in (
        ("survey", "GET", survey_path(survey), MSGPACK),
        ("keys", "GET", KEYS, MSGPACK),
        ("upload", "POST", UPLOADS, MSGPACK),
    ):
        named = {"survey": survey} if asks == "survey" else {}
        yield {"kind": "path", "asks": asks, **named, "method": method, "path": path, "media type": media}


def _limits() -> Case:
    return {
        "kind": "limits",
        "most bytes of a body": MOST_BODY_BYTES,
        "most envelopes of a request": MOST_ENVELOPES,
        "most periods of an upload": MOST_SPANNED_PERIODS,
    }


def _requests() -> Iterator[Case]:
    for envelopes in ([], [bytes(range(40))], [bytes(range(40)), b"", bytes(300)], [bytes(1)] * MOST_ENVELOPES):
        body = encode_upload_request(envelopes)
        yield {"kind": "upload request", "envelopes": [each.hex() for each in envelopes], "body": body.hex()}


def _acknowledgements() -> Iterator[Case]:
    for envelopes, refused in ((3, {}), (3, {0: Refusal.UNKNOWN_KEY, 2: Refusal.TOO_LARGE}), (0, {})):
        body = encode_acknowledgement(refused)
        yield _acknowledgement(envelopes, {str(i): reason.value for i, reason in refused.items()}, body)
    every = dict(enumerate(Refusal))
    body = encode_acknowledgement(every)
    yield _acknowledgement(len(every), {str(i): reason.value for i, reason in every.items()}, body)
    later = encode({"refused": [[0, "a reason of a later server"]]})
    yield _acknowledgement(1, {"0": "a reason of a later server"}, later)


def _acknowledgement(envelopes: int, refused: dict[str, str], body: bytes) -> Case:
    assert {str(i): str(reason) for i, reason in decode_acknowledgement(body, envelopes).items()} == refused
    return {"kind": "acknowledgement", "envelopes": envelopes, "refused": refused, "body": body.hex()}


def _key_lists() -> Iterator[Case]:
    for keys in ([], [SEALING_KEY.signed_by(AUTHORITY), bytes(20)]):
        yield {"kind": "key list", "signed": [key.hex() for key in keys], "body": encode_key_list(keys).hex()}


def _errors() -> Iterator[Case]:
    for code in ErrorCode:
        answer = ErrorAnswer(code, "a sentence for people, with “quotes” in it")
        body = answer.encode()
        yield {
            "kind": "error",
            "code": code.value,
            "status": code.status,
            "detail": answer.detail,
            "media type": PROBLEM,
            "body": body.hex(),
        }


def _refused_bodies() -> Iterator[Case]:
    acknowledgements: tuple[tuple[str, Any], ...] = (
        ("a place past the end", {"refused": [[3, "malformed"]]}),
        ("a place before the first", {"refused": [[-1, "malformed"]]}),
        ("a place that is a boolean", {"refused": [[True, "malformed"]]}),
        ("a place that is text", {"refused": [["0", "malformed"]]}),
        ("a reason that is a number", {"refused": [[0, 1]]}),
        ("a pair of three", {"refused": [[0, "malformed", 1]]}),
        ("more refusals than envelopes", {"refused": [[0, "malformed"]] * 4}),
        ("no list", {"refused": 1}),
        ("no map", []),
        ("nothing of it", {}),
    )
    for why, content in acknowledgements:
        yield _refused_body("acknowledgement", why, encode(content))
    yield _refused_body("acknowledgement", "nothing at all", b"")
    yield _refused_body("acknowledgement", "a page of a proxy", b"<html>")
    yield _refused_body("acknowledgement", "something after it", encode({"refused": []}) + b"\0")
    for why, content in (("a key that is text", {"keys": ["key"]}), ("no list", {"keys": {}}), ("no keys", {})):
        yield _refused_body("key list", why, encode(content))
    for why, body in (
        ("a page of a proxy", b"<html>"),
        ("a code that is not known", b'{"code":"tired","detail":"come back"}'),
        ("no detail", b'{"code":"not_found"}'),
        ("a list", b"[]"),
    ):
        yield _refused_body("error", why, body)


def _refused_body(kind: str, why: str, body: bytes) -> Case:
    reads = {
        "acknowledgement": lambda body: decode_acknowledgement(body, 3),
        "key list": decode_key_list,
        "error": ErrorAnswer.decode,
    }
    with pytest.raises(MalformedBytes):
        reads[kind](body)
    return {"kind": "refused", "what": kind, "why": why, "envelopes": 3, "body": body.hex()}
