"""What a server answers where it does not do as it is asked: {"error": code, "detail": sentence}, in JSON.

The codes are a closed set, for programs; the sentence says what was wrong and what to do, for people.
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
    """The operator's token is missing, or another one."""
    FORBIDDEN = "forbidden"
    """This server was not started for that: it has no operator's token, or no clock that can be moved."""
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
    ErrorCode.FAILED: 500,
    ErrorCode.OVERLOADED: 503,
}
"""The HTTP status that each code is answered with."""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The body of an error."""

    code: ErrorCode
    detail: str

    def encode(self) -> bytes:
        """The body as JSON."""
        content = {"error": self.code.value, "detail": self.detail}
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, body: bytes) -> "ErrorAnswer":
        """The error in a body. Raises MalformedBytes for anything else, such as the page of a proxy in between."""
        try:
            content = json.loads(body)
            return cls(ErrorCode(content["error"]), str(content["detail"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MalformedBytes("not the error of a server of ours") from error
