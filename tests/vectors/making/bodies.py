"""What client and server say over HTTP: paths, bodies, limits, errors; and bodies that a client must not believe."""

from collections.abc import Iterator
from typing import Any

import pytest
from changeling_protocol import MOST_SPANNED_PERIODS, MalformedBytes, Refusal, encode
from changeling_protocol.wire import (
    HTTP_STATUS,
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

from ...protocol.examples import AUTHORITY
from .examples import SEALING_KEY, SURVEYS
from .notation import Case


def cases() -> list[Case]:
    """Paths and limits, then bodies, then what must be refused."""
    return [*_paths(), _limits(), *_requests(), *_acknowledgements(), *_key_lists(), *_errors(), *_refused()]


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
            "status": HTTP_STATUS[code],
            "detail": answer.detail,
            "media type": PROBLEM,
            "body": body.hex(),
        }


def _refused() -> Iterator[Case]:
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
