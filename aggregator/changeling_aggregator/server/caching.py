"""How long an answer to a reader may be kept by browsers, and by the caches at a network's edge.

Only snapshots change what is shown, and the next is not taken before the next closing is due, unless late reports may
still change one that is shown. So open results stand for a while in any cache; those that ask a token in none but the
reader's own, which asks each time whether they still hold.
"""

from math import floor

from changeling_protocol.quantities import UnixSeconds

from ..ingest import PublishedSurvey
from ..store.snapshots import Looked

UNKEPT = "no-store"
"""For errors, and whatever else holds for one moment."""
OWN = "private, no-cache"
MOST_SECONDS = 3600
"""However far off the next closing is, as a survey may be ended early."""
PROVISIONAL_SECONDS = 60
"""While late reports may still change what is shown."""
FOR_GOOD_SECONDS = 86_400
"""When all is shown for good."""


def cache_control(published: PublishedSurvey, looked: Looked, now: UnixSeconds) -> str:
    """The header of an answer that is made of what is shown of a survey. now: Unix seconds."""
    return f"public, max-age={_seconds(published, looked, now)}" if published.public else OWN


def _seconds(published: PublishedSurvey, looked: Looked, now: UnixSeconds) -> int:
    survey = published.survey
    if looked.final >= published.last:
        return FOR_GOOD_SECONDS
    most = PROVISIONAL_SECONDS if looked.final < looked.due else MOST_SECONDS
    coming = min(looked.due + 1, published.last)
    due = survey.calendar.time(coming) + survey.skew + survey.spread
    return most if coming == looked.due else max(0, min(most, floor(due - now)))
