"""Why an envelope, a closing or a report was not counted: a closed set, each reason with a counter per survey.

The first six are seen from outside the envelope and told to the sender; the others are seen only once it is open, long
after the sender was answered. A bad report never fails its neighbours.
"""

from collections import Counter
from enum import StrEnum
from typing import TypeAlias

from .quantities import SurveyId


class Refusal(StrEnum):
    """A reason, as it is counted and told."""

    MALFORMED = "malformed"
    """Not an envelope of this protocol version; or, once open, not an upload of the survey's plan, a closing of no
    known standing, or a report at a closing that is not answered."""
    UNKNOWN_SURVEY = "unknown-survey"
    """This server does not run the survey. Told, but counted nowhere: there is no survey to count it for."""
    UNKNOWN_KEY = "unknown-key"
    """Sealed to a key that this server did not make or has not published."""
    EXPIRED_KEY = "expired-key"
    """Sealed to a key past its date."""
    CLOSED = "closed"
    """The survey has not begun, or its last grace is over; or, once open, it was ended before that node's end."""
    TOO_LARGE = "too-large"
    """Longer than any upload of this survey can be."""
    UNOPENABLE = "unopenable"
    """Altered on its way, sealed for something else, or its private key is destroyed."""
    UNKNOWN_STRATUM = "unknown-stratum"
    """A closing of a stratum that the survey does not declare."""
    SYMBOL_OUT_OF_RANGE = "symbol-out-of-range"
    """A symbol that the track's randomizer cannot give."""
    LATE = "late"
    """A closing that arrived after its grace."""
    FUTURE = "future"
    """A closing of a period that has not even begun, allowing for the skew of clocks."""
    DUPLICATE = "duplicate"
    """A second closing with one period and id."""


RefusalCounts: TypeAlias = Counter[tuple[SurveyId, Refusal]]
"""How many envelopes, closings and reports were refused, by survey id and reason."""
