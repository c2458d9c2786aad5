"""The early end of a survey, signed by the survey authority: after which period nothing more is asked.

A survey never changes; this is a second object beside it. The server keeps it, refuses what is of later closings, and
takes its last period for the calendar's last in all that it publishes. A device needs to know nothing of it. It answers
on until the calendar ends; the server refuses that as "closed" once the last grace is over, and each closing is
dropped, counted, when its own grace is. All that costs no more than the epsilon that the survey states.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .calendar import MOST_PERIODS
from .canonical import Fields, holds_booleans
from .errors import MalformedBytes
from .quantities import SurveyId
from .signing import signed, unverified, verified
from .survey import ID_BYTES

KIND = "early-end"


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """A survey's id, and the number of the last period of its calendar that counts, from 1."""

    survey: SurveyId
    last: int

    def __post_init__(self) -> None:
        if len(self.survey) != ID_BYTES:
            raise ValueError(f"a survey's id has {ID_BYTES} bytes, got {len(self.survey)}")
        if not 1 <= self.last <= MOST_PERIODS:
            raise ValueError(f"a survey ends after a period of its calendar, numbered from 1, got {self.last}")

    def signed_by(self, authority: Ed25519PrivateKey) -> bytes:
        """The end as a signed object, as a server publishes it."""
        return signed(KIND, {"survey": self.survey, "last": self.last}, authority)

    @classmethod
    def from_signed(cls, encoded: bytes, authority: Iterable[bytes]) -> "EarlyEnd":
        """The end in signed bytes.

        authority: the pinned public keys. Raises BadSignature or MalformedBytes.
        """
        return _from_fields(verified(KIND, encoded, authority))

    @classmethod
    def unverified(cls, encoded: bytes) -> "EarlyEnd":
        """The end in signed bytes, whoever signed them. Raises MalformedBytes."""
        return _from_fields(unverified(KIND, encoded))


def _from_fields(fields: Fields) -> EarlyEnd:
    match fields:
        case {"survey": bytes(survey), "last": int(last), **rest} if not (rest or holds_booleans(fields)):
            try:
                return EarlyEnd(SurveyId(survey), last)
            except ValueError as error:
                raise MalformedBytes(f"not an early end: {error}") from error
    raise MalformedBytes("an early end is a survey and its last period")
