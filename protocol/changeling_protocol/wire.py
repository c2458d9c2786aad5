"""The messages of client and server over HTTP: paths, bodies, media types and errors, each written once here.

A body that a device sends or reads is canonical MessagePack; what operators and analysts read is JSON. How requests
are sent and answered is the business of the client and of the server.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import msgpack

from .errors import MalformedBytes
from .signing import decode, encode
from .upload import Refusal

UPLOADS = "/v1/uploads"
"""POST an upload request; the answer is an acknowledgement."""
SURVEYS = "/v1/surveys"
"""GET the list of published surveys."""
KEYS = "/v1/keys"
"""GET the list of sealing keys, PUT a signed one."""
FOLD = "/v1/fold"
"""POST to count now what has been uploaded."""
CLOCK = "/v1/clock"
"""PUT the time: a demo's clock is moved to it, a real one confirmed."""
ALIVE, READY = "/healthz", "/readyz"
"""GET whether the server answers, and whether it can do its work."""
DOCUMENT = "/openapi.json"
"""GET the OpenAPI document of a server."""

END = "/end"
"""Behind a survey's path: GET its early end, as it was signed, or PUT it."""
HISTOGRAM, SERIES, WINDOWS, CHANGE, STATUS = "/histogram", "/series", "/windows", "/change", "/status"
COMPARISON, NUMBERS = "/comparison", "/numbers"
"""Behind a survey's path: GET its estimates, and how its reports are doing."""

EDITIONS = "/editions"
"""Behind a survey's path, before an edition's name, or `latest`, and a file: GET what is published of its results."""
EDITION_FILE, KEY_FILE = "edition.signed", "key.signed"
"""Beside the files of figures in an edition: the edition itself, and the certificate of the key that signed it."""

MOST_BODY_BYTES = 2**20
"""The most bytes of a body that a device sends or reads, a signed survey included."""

MSGPACK = "application/msgpack"
"""The media type of canonical MessagePack, and of signed objects, which are canonical MessagePack too."""

JSON = "application/json"
"""The media type of what operators and analysts read."""

PROBLEM = "application/problem+json"
"""The media type of every error."""

MOST_ENVELOPES = 64
"""The most envelopes that a device puts into one request."""

MOST_ENVELOPES_TAKEN = 4096
"""The most envelopes of a request that a server takes, as who forwards those of many devices puts more into one."""

_ENVELOPES = "envelopes"
_FRAME_ITEMS = 3
"""The values around a list of envelopes, or of refusals: the map, its one value, and the list."""
_PAIR_ITEMS = 4
"""The values of a refusal: its place in the list, the pair, and its two values."""
_MOST_KEY_ITEMS = MOST_BODY_BYTES // 64
"""More values do not fit into a list of keys: each is a signed key, and a signature alone has 64 bytes."""


def survey_path(survey: str) -> str:
    """The path of one survey: GET its signed bytes, PUT them to publish it.

    survey: its id, in 32 hexadecimal digits.
    """
    return f"{SURVEYS}/{survey}"


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server on the host: the one place where nobody listens on the way."""
    import ipaddress  # which few devices need, and all would load

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def encode_upload_request(envelopes: Sequence[bytes]) -> bytes:
    """The body that carries these envelopes.

    envelopes: sealed uploads, at most MOST_ENVELOPES_TAKEN. Raises ValueError for more.
    """
    if len(envelopes) > MOST_ENVELOPES_TAKEN:
        raise ValueError(f"a request carries at most {MOST_ENVELOPES_TAKEN} envelopes, got {len(envelopes)}")
    return encode({_ENVELOPES: list(envelopes)})


def decode_upload_request(body: bytes) -> list[bytes]:
    """The envelopes of a request, unread; empty bytes where something else stands in the place of one.

    So one that is no envelope is refused by itself, and not its neighbours with it.
    Raises MalformedBytes for a body that is no upload request.
    """
    match decode(body, most_items=MOST_ENVELOPES_TAKEN + _FRAME_ITEMS):
        case {"envelopes": [*envelopes], **rest} if not rest and len(envelopes) <= MOST_ENVELOPES_TAKEN:
            if set(map(type, envelopes)) <= {bytes}:
                return envelopes
            return [envelope if isinstance(envelope, bytes) else b"" for envelope in envelopes]
    raise MalformedBytes(f'an upload is {{"{_ENVELOPES}": [...]}}, at most {MOST_ENVELOPES_TAKEN} of them')


def envelopes_in(body: bytes) -> list[bytes]:
    """The envelopes of a request that `decode_upload_request` took before; that is not checked again."""
    envelopes: list[bytes] = msgpack.unpackb(body)[_ENVELOPES]
    return envelopes


def encode_acknowledgement(refused: Mapping[int, Refusal]) -> bytes:
    """The answer to an upload: {"refused": [[index, reason], …]}, in canonical MessagePack.

    An envelope that is not named is durable on the server. The reason is a member of Refusal; a client reads it as
    text, as a later server may know reasons that it does not.

    refused: the reason, by the envelope's place in the request, from 0 on.
    """
    return encode({"refused": [[index, refused[index].value] for index in sorted(refused)]})


def decode_acknowledgement(body: bytes, envelopes: int) -> dict[int, str]:
    """The reasons of refusal, by the envelope's place in the request.

    envelopes: how many the request carried. Raises MalformedBytes for a body that is no acknowledgement of so many.
    """
    match decode(body, most_items=_FRAME_ITEMS + envelopes * _PAIR_ITEMS):
        case {"refused": [*pairs]}:
            return dict(_refusal(pair, envelopes) for pair in pairs)
    raise MalformedBytes("an acknowledgement lists what was refused")


def _refusal(pair: object, envelopes: int) -> tuple[int, str]:
    match pair:
        case [int(index), str(reason)] if not isinstance(index, bool) and 0 <= index < envelopes:
            return index, reason
    raise MalformedBytes("a refusal is the index of an envelope and a reason")


def encode_key_list(signed: Iterable[bytes]) -> bytes:
    """The list of sealing keys: {"keys": [bytes, …]}, in canonical MessagePack, each key as the authority signed it."""
    return encode({"keys": list(signed)})


def decode_key_list(body: bytes) -> list[bytes]:
    """The signed sealing keys of a list, their signatures unread. Raises MalformedBytes."""
    match decode(body, most_items=_MOST_KEY_ITEMS):
        case {"keys": [*signed]} if all(isinstance(each, bytes) for each in signed):
            return signed
    raise MalformedBytes("a list of sealing keys holds nothing but signed bytes")


class ErrorCode(StrEnum):
    """Why a request was turned down.

    status: the HTTP status that it is answered with. advice: what to do about it, for people.
    """

    status: int
    advice: str

    def __new__(cls, code: str, status: int = 0, advice: str = "") -> Self:
        """The member whose value is the code alone."""
        made = str.__new__(cls, code)
        made._value_, made.status, made.advice = code, status, advice
        return made

    MALFORMED = "malformed", 400, "Send what the path takes; sending the same again is no use."
    """The body is not what belongs there, or broke off."""
    UNAUTHORIZED = "unauthorized", 401, "Send the header Authorization: Bearer TOKEN, with a token that is for this."
    """It needs a token, and there is none with it, or none that the server knows."""
    FORBIDDEN = "forbidden", 403, "Ask who runs the server for a token that is for this, or to start it so."
    """The token is not for that, the server was not started for that, or it does not admit who sends."""
    BAD_SIGNATURE = "bad_signature", 403, "Have it signed by an authority whose key the server was started with."
    """None of the authority's keys that the server takes signed this."""
    NOT_FOUND = "not_found", 404, "Look at the path and the id, and whether the survey is published on this server."
    """There is no such path, or no such survey."""
    METHOD_NOT_ALLOWED = "method_not_allowed", 405, "Use a method that the header Allow names."
    """The path takes other methods."""
    TOO_SLOW = "too_slow", 408, "Send it again, over a better connection or in smaller parts."
    """The body did not arrive in time."""
    CONFLICT = "conflict", 409, "Look at what the server holds; what is published stays as it is."
    """It contradicts what the server holds."""
    NOT_ESTIMABLE = "not_estimable", 409, "Ask again when more has been reported, or for another time."
    """The estimate asked for cannot be made, or not yet, from what may be published."""
    TOO_LARGE = "too_large", 413, "Send less at a time."
    """The body is longer than this path takes."""
    INVALID = "invalid", 422, "Ask for what the survey has."
    """It can be read, but asks for what is impossible: a period that the survey does not have, a negative width."""
    UNDERSTATED_EPSILON = "understated_epsilon", 422, "State the survey's epsilon as it is, and sign it again."
    """The survey can cost an entry more than the epsilon it states."""
    TOO_MANY_REQUESTS = "too_many_requests", 429, "Wait for as long as the header Retry-After says, then send it again."
    """More requests come from this network than the server takes from one."""
    FAILED = "failed", 500, "Tell who runs the server, with the header X-Request-Id; the server's log says why."
    """The server is at fault; its log says why."""
    OVERLOADED = "overloaded", 503, "Wait for as long as the header Retry-After says, then send it again."
    """The server has no room at the moment: come again later."""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The body of an error: a problem document (RFC 9457), in JSON. detail: what was wrong here, in a sentence.

    The codes are a closed set, for programs; the detail and the advice on its kind are for people. Whoever reads it
    needs the code and the detail alone.
    """

    code: ErrorCode
    detail: str

    def encode(self) -> bytes:
        """The body as JSON."""
        content = {
            "type": f"urn:changeling:{self.code.value}",
            "title": self.code.value.replace("_", " ").capitalize(),
            "status": self.code.status,
            "detail": self.detail,
            "code": self.code.value,
            "advice": self.code.advice,
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, body: bytes) -> "ErrorAnswer":
        """The error in a body. Raises MalformedBytes for anything else, such as the page of a proxy in between."""
        try:
            content = json.loads(body)
            return cls(ErrorCode(content["code"]), str(content["detail"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MalformedBytes("not the error of a server of ours") from error
