"""Which envelopes are appended: the checks that need no private key, on an envelope's head, the dates and its length.

Pure; the caller brings the time and what is published.
"""

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

from changeling_protocol import HEAD_BYTES, ID_BYTES, SEAL_BYTES, VERSION, Refusal, SurveyId, UnixSeconds
from changeling_protocol.wire import common_head

from .registry import Registry

Refused: TypeAlias = tuple[SurveyId | None, Refusal]
"""The id of the survey to count a refusal for, None if there is none, and the reason."""


def takes_whole(body: bytes, registry: Registry, now: UnixSeconds) -> bool:
    """Whether a request's envelopes are alike, and to be appended all, as one look tells; False tells nothing.

    now: Unix seconds.
    """
    alike = common_head(body, HEAD_BYTES)
    return alike is not None and _refusal(*alike, registry, now) is None


def refusals_of(envelopes: Sequence[bytes], registry: Registry, now: UnixSeconds) -> dict[int, Refused]:
    """Why some of these envelopes are refused, by their places; the others are to be appended.

    now: Unix seconds. Head and length decide. So where many envelopes are alike, as in a relay's batch, few are judged.
    """
    heads, lengths = {envelope[:HEAD_BYTES] for envelope in envelopes}, set(map(len, envelopes))
    if len(heads) * len(lengths) < len(envelopes) and not any(
        _refusal(head, length, registry, now) for head, length in product(heads, lengths)
    ):
        return {}
    judged = ((place, refusal_of(envelope, registry, now)) for place, envelope in enumerate(envelopes))
    return {place: refused for place, refused in judged if refused}


def refusal_of(envelope: bytes, registry: Registry, now: UnixSeconds) -> Refused | None:
    """Why this envelope is refused; None where it is to be appended.

    now: Unix seconds. A key is taken for the survey's skew beyond its expiry, as clocks differ.
    """
    return _refusal(envelope[:HEAD_BYTES], len(envelope), registry, now)


def _refusal(head: bytes, length: int, registry: Registry, now: UnixSeconds) -> Refused | None:
    if length <= HEAD_BYTES + SEAL_BYTES or head[0] != VERSION:
        return None, Refusal.MALFORMED
    id_ = SurveyId(head[1 : 1 + ID_BYTES])
    published = registry.surveys.get(id_)
    if published is None:
        return None, Refusal.UNKNOWN_SURVEY
    survey = published.survey
    if not survey.calendar.start <= now <= published.taken_until:
        return id_, Refusal.CLOSED
    key = registry.keys.get(head[1 + ID_BYTES :])
    if key is None:
        return id_, Refusal.UNKNOWN_KEY
    if now > key.key.expires + survey.skew:
        return id_, Refusal.EXPIRED_KEY
    if length > published.most_bytes:
        return id_, Refusal.TOO_LARGE
    return None
