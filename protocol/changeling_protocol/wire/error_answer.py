"""What a server answers where it does not do as it is asked: a problem document (RFC 9457), in JSON.

The codes are a closed set, for programs; the detail says what was wrong here, and the advice what to do about its kind,
both for people. Whoever reads it needs the code and the detail alone.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..errors import MalformedBytes


class ErrorCode(StrEnum):
    """Why a request was turned down."""

    MALFORMED = "malformed"
    """The body is not what belongs there, or broke off."""
    UNAUTHORIZED = "unauthorized"
    """It needs a token, and there is none with it, or none that the server knows."""
    FORBIDDEN = "forbidden"
    """The token is not for that, the server was not started for that, or it does not admit who sends."""
    BAD_SIGNATURE = "bad_signature"
    """None of the authority's keys that the server takes signed this."""
    NOT_FOUND = "not_found"
    """There is no such path, or no such survey."""
    METHOD_NOT_ALLOWED = "method_not_allowed"
    """The path takes other methods."""
    TOO_SLOW = "too_slow"
    """The body did not arrive in time."""
    CONFLICT = "conflict"
    """It contradicts what the server holds."""
    NOT_ESTIMABLE = "not_estimable"
    """What was asked for cannot be estimated, or not yet, from what may be published."""
    TOO_LARGE = "too_large"
    """The body is longer than this path takes."""
    INVALID = "invalid"
    """It can be read, but asks for what is impossible: a period that the survey does not have, a negative width."""
    UNDERSTATED_EPSILON = "understated_epsilon"
    """The survey can cost an entry more than the epsilon it states."""
    TOO_MANY_REQUESTS = "too_many_requests"
    """More requests come from this network than the server takes from one."""
    HEAD_TOO_LARGE = "head_too_large"
    """The request's headers are too long."""
    FAILED = "failed"
    """The server is at fault; its log says why."""
    OVERLOADED = "overloaded"
    """The server has no room at the moment: come again later."""


STATUS: Mapping[ErrorCode, int] = {
    ErrorCode.MALFORMED: 400,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.BAD_SIGNATURE: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.METHOD_NOT_ALLOWED: 405,
    ErrorCode.TOO_SLOW: 408,
    ErrorCode.CONFLICT: 409,
    ErrorCode.NOT_ESTIMABLE: 409,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.INVALID: 422,
    ErrorCode.UNDERSTATED_EPSILON: 422,
    ErrorCode.TOO_MANY_REQUESTS: 429,
    ErrorCode.HEAD_TOO_LARGE: 431,
    ErrorCode.FAILED: 500,
    ErrorCode.OVERLOADED: 503,
}
"""The HTTP status that each code is answered with."""


ADVICE: Mapping[ErrorCode, str] = {
    ErrorCode.MALFORMED: "Send what the path takes; sending the same again is no use.",
    ErrorCode.UNAUTHORIZED: "Send the header Authorization: Bearer TOKEN, with a token that is for this.",
    ErrorCode.FORBIDDEN: "Ask who runs the server for a token that is for this, or to start it so.",
    ErrorCode.BAD_SIGNATURE: "Have it signed by an authority whose key the server was started with.",
    ErrorCode.NOT_FOUND: "Look at the path and the id, and whether the survey is published on this server.",
    ErrorCode.METHOD_NOT_ALLOWED: "Use a method that the header Allow names.",
    ErrorCode.TOO_SLOW: "Send it again, over a better connection or in smaller parts.",
    ErrorCode.CONFLICT: "Look at what the server holds; what is published stays as it is.",
    ErrorCode.NOT_ESTIMABLE: "Ask again when more has been reported, or for another time.",
    ErrorCode.TOO_LARGE: "Send less at a time.",
    ErrorCode.INVALID: "Ask for what the survey has.",
    ErrorCode.UNDERSTATED_EPSILON: "State the survey's epsilon as it is, and sign it again.",
    ErrorCode.TOO_MANY_REQUESTS: "Wait for as long as the header Retry-After says, then send it again.",
    ErrorCode.HEAD_TOO_LARGE: "Send shorter headers and a shorter path.",
    ErrorCode.FAILED: "Tell who runs the server, with the header X-Request-Id; the server's log says why.",
    ErrorCode.OVERLOADED: "Wait for as long as the header Retry-After says, then send it again.",
}
"""What to do, by code."""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The body of an error. detail: what was wrong, in a sentence."""

    code: ErrorCode
    detail: str

    def encode(self) -> bytes:
        """The body as JSON."""
        content = {
            "type": f"urn:changeling:{self.code.value}",
            "title": self.code.value.replace("_", " ").capitalize(),
            "status": STATUS[self.code],
            "detail": self.detail,
            "code": self.code.value,
            "advice": ADVICE[self.code],
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
