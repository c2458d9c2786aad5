"""Which envelopes are appended: the checks that need no private key, on an envelope's head, the dates and its length.

Pure; the caller brings the time and what is published.
"""

from changeling_protocol import VERSION, MalformedBytes
from changeling_protocol.quantities import SurveyId, UnixSeconds
from changeling_protocol.refusal import Refusal
from changeling_protocol.sealing import head_of

from .registry import Registry


def refusal_of(envelope: bytes, registry: Registry, now: UnixSeconds) -> tuple[SurveyId | None, Refusal] | None:
    """Why this envelope is refused; None where it is to be appended.

    now: Unix seconds. A key is taken for the survey's skew beyond its expiry, as clocks differ.
    Returns the id of the survey to count the refusal for, None if there is none, and the reason.
    """
    try:
        head = head_of(envelope)
    except MalformedBytes:
        return None, Refusal.MALFORMED
    if head.version != VERSION:
        return None, Refusal.MALFORMED
    published = registry.surveys.get(head.survey)
    if published is None:
        return None, Refusal.UNKNOWN_SURVEY
    survey, calendar = published.survey, published.survey.calendar
    if not calendar.start <= now <= calendar.time(published.last) + survey.grace:
        return head.survey, Refusal.CLOSED
    key = registry.keys.get(head.key)
    if key is None:
        return head.survey, Refusal.UNKNOWN_KEY
    if now > key.key.expires + survey.skew:
        return head.survey, Refusal.EXPIRED_KEY
    if len(envelope) > published.most_bytes:
        return head.survey, Refusal.TOO_LARGE
    return None
