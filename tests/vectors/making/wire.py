"""What passes between a device and a server: values, seals, plaintexts and bodies, and what must be refused of them."""

from itertools import pairwise

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
    Standing,
    StratumNumber,
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

from ...protocol.examples import AUTHORITY
from .examples import PRIVATE, SEALING_KEY, SURVEYS, signed_survey
from .notation import tagged

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


def canonical():
    """Values with their bytes; bytes that must be refused."""
    for value in _VALUES:
        yield {"kind": "value", "value": tagged(value), "encoded": encode(value).hex()}
    for why, encoded in _REFUSED.items():
        with pytest.raises(MalformedBytes):
            decode(bytes.fromhex(encoded))
        yield {"kind": "refused", "why": why, "encoded": bytes.fromhex(encoded).hex()}


_OTHER = X25519PrivateKey.from_private_bytes(bytes(range(50, 82)))


def seals():
    """Seals of several lengths, then altered ones."""
    for seed, length in enumerate((1, 64, 700)):
        plaintext, ephemeral, envelope = _sealed(seed, length)
        head = head_of(envelope)
        assert open_envelope(envelope, PRIVATE) == plaintext
        yield {
            "kind": "seal",
            "private": PRIVATE.private_bytes_raw().hex(),
            "public": SEALING_KEY.public.hex(),
            "ephemeral": ephemeral.private_bytes_raw().hex(),
            "head": {"version": head.version, "survey": head.survey.hex(), "key": head.key.hex()},
            "plaintext": plaintext.hex(),
            "envelope": envelope.hex(),
        }
    _, _, envelope = _sealed(0, 64)
    for why, altered, private in (
        ("another version", bytes([envelope[0] ^ 1]) + envelope[1:], PRIVATE),
        ("another survey", envelope[:1] + bytes(16) + envelope[17:], PRIVATE),
        ("another key id", envelope[:17] + key_id(bytes(32)) + envelope[33:], PRIVATE),
        ("an altered encapsulated key", envelope[:33] + bytes([envelope[33] ^ 1]) + envelope[34:], PRIVATE),
        ("an encapsulated key of low order", envelope[:33] + bytes(32) + envelope[65:], PRIVATE),
        ("an altered ciphertext", envelope[:70] + bytes([envelope[70] ^ 1]) + envelope[71:], PRIVATE),
        ("an altered tag", envelope[:-1] + bytes([envelope[-1] ^ 1]), PRIVATE),
        ("cut short", envelope[:-1], PRIVATE),
        ("a head alone", envelope[:33], PRIVATE),
        ("nothing", b"", PRIVATE),
        ("another private key", envelope, _OTHER),
    ):
        with pytest.raises(CannotOpen):
            open_envelope(altered, private)
        key = private.private_bytes_raw().hex()
        yield {"kind": "refused", "why": why, "private": key, "envelope": altered.hex()}


def _sealed(seed, length):
    """A plaintext, and its envelope as `changeling_protocol.seal` makes it, with an ephemeral key that is given."""
    plaintext = bytes(i % 256 for i in range(length))
    ephemeral = X25519PrivateKey.from_private_bytes(bytes(range(seed, seed + 32)))
    head = VERSION.to_bytes(1) + SURVEYS["mixed"].id + SEALING_KEY.id
    return plaintext, ephemeral, head + hpke_seal(plaintext, PRIVATE.public_key(), head, ephemeral)


def uploads():
    """Uploads of every group of some surveys, then lengths over many spans."""
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
                **signed_survey(survey),
                "group": group,
                "span": [span.start, span.end],
                "closings": [
                    {"period": c.period, "id": c.id.hex(), "standing": c.standing.name.lower(), "stratum": c.stratum}
                    for c in rows
                ],
                "reports": [[r.track, r.node, str(r.symbol)] for r in reports],
                "plaintext": encode_upload(survey.plan, group, span, rows, reports).hex(),
            }
    for name in ("hierarchy", "mixed", "joint", "closed", "time-bounded"):
        survey = SURVEYS[name]
        last = survey.calendar.periods
        spans = [Node(0, last), *(Node(*each) for each in pairwise(sorted({0, 1, 3, last - 2, last})))]
        lengths = [[span.start, span.end, upload_bytes(survey.plan, span)] for span in spans]
        yield {"kind": "lengths", **signed_survey(survey), "lengths": lengths}


def bodies():
    """Paths and limits, then bodies, then what must be refused."""
    survey = SURVEYS["hierarchy"].id.hex()
    for named, method, path in (
        ({"asks": "survey", "survey": survey}, "GET", survey_path(survey)),
        ({"asks": "keys"}, "GET", KEYS),
        ({"asks": "upload"}, "POST", UPLOADS),
    ):
        yield {"kind": "path", **named, "method": method, "path": path, "media type": MSGPACK}
    yield {
        "kind": "limits",
        "most bytes of a body": MOST_BODY_BYTES,
        "most envelopes of a request": MOST_ENVELOPES,
        "most periods of an upload": MOST_SPANNED_PERIODS,
    }
    for envelopes in ([], [bytes(range(40))], [bytes(range(40)), b"", bytes(300)], [bytes(1)] * MOST_ENVELOPES):
        body = encode_upload_request(envelopes)
        yield {"kind": "upload request", "envelopes": [each.hex() for each in envelopes], "body": body.hex()}
    every = dict(enumerate(Refusal))
    for envelopes, refused in (
        (3, {}),
        (3, {0: Refusal.UNKNOWN_KEY, 2: Refusal.TOO_LARGE}),
        (0, {}),
        (len(every), every),
    ):
        yield _acknowledgement(envelopes, refused, encode_acknowledgement(refused))
    later = "a reason of a later server"
    yield _acknowledgement(1, {0: later}, encode({"refused": [[0, later]]}))
    for keys in ([], [SEALING_KEY.signed_by(AUTHORITY), bytes(20)]):
        yield {"kind": "key list", "signed": [key.hex() for key in keys], "body": encode_key_list(keys).hex()}
    for code in ErrorCode:
        answer = ErrorAnswer(code, "a sentence for people, with “quotes” in it")
        yield {
            "kind": "error",
            "code": code.value,
            "status": code.status,
            "detail": answer.detail,
            "media type": PROBLEM,
            "body": answer.encode().hex(),
        }
    for kind, why, body in _REFUSED_BODIES:
        with pytest.raises(MalformedBytes):
            _READ[kind](body)
        yield {"kind": "refused", "what": kind, "why": why, "envelopes": 3, "body": body.hex()}


def _acknowledgement(envelopes, refused, body):
    assert decode_acknowledgement(body, envelopes) == refused
    said = {str(i): str(reason) for i, reason in refused.items()}
    return {"kind": "acknowledgement", "envelopes": envelopes, "refused": said, "body": body.hex()}


_READ = {
    "acknowledgement": lambda body: decode_acknowledgement(body, 3),
    "key list": decode_key_list,
    "error": ErrorAnswer.decode,
}
_REFUSED_BODIES = (
    ("acknowledgement", "a place past the end", encode({"refused": [[3, "malformed"]]})),
    ("acknowledgement", "a place before the first", encode({"refused": [[-1, "malformed"]]})),
    ("acknowledgement", "a place that is a boolean", encode({"refused": [[True, "malformed"]]})),
    ("acknowledgement", "a place that is text", encode({"refused": [["0", "malformed"]]})),
    ("acknowledgement", "a reason that is a number", encode({"refused": [[0, 1]]})),
    ("acknowledgement", "a pair of three", encode({"refused": [[0, "malformed", 1]]})),
    ("acknowledgement", "more refusals than envelopes", encode({"refused": [[0, "malformed"]] * 4})),
    ("acknowledgement", "no list", encode({"refused": 1})),
    ("acknowledgement", "no map", encode([])),
    ("acknowledgement", "nothing of it", encode({})),
    ("acknowledgement", "nothing at all", b""),
    ("acknowledgement", "a page of a proxy", b"<html>"),
    ("acknowledgement", "something after it", encode({"refused": []}) + b"\0"),
    ("key list", "a key that is text", encode({"keys": ["key"]})),
    ("key list", "no list", encode({"keys": {}})),
    ("key list", "no keys", encode({})),
    ("error", "a page of a proxy", b"<html>"),
    ("error", "a code that is not known", b'{"code":"tired","detail":"come back"}'),
    ("error", "no detail", b'{"code":"not_found"}'),
    ("error", "a list", b"[]"),
)
