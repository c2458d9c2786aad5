"""How long browsers, and the caches at a network's edge, may keep an answer.

**Results.** Only snapshots change what is shown, and the next is not taken before the next closing is due, unless late
reports may still change one that is shown. So open results stand for a while in any cache; those that ask a token in
none but the reader's own, which asks each time whether they still hold.

**Sealing keys.** The list is the same for every device. A cache may give it out for a minute, and never beyond the
expiry of the key in it, which is harmless in every state of a key:

- pending: nobody is given it yet. The key before it is good until the second in which this one begins.
- active: it is what the server itself would give. A device keeps a key for its whole life, far longer than a cache.
- expired: no cache gives it out any more. Devices check its dates themselves, and a server goes on taking what was
  sealed to it for the skew of clocks.
- destroyed: that is a grace after it expired, so no cache can have it. Only a restored store may lack a key that is
  still active. Whoever seals to that one is refused, keeps the report, and asks for the key again: for a minute a cache
  may answer with the same.

An empty list is kept by no cache, so the first key reaches devices at once. Ending or withdrawing a survey changes no
key. Devices ask caches not to answer them, for the sake of the time of day in an answer; a cache that answers all the
same has to say the answer's `Age`, by which they know not to go by that time.
"""

from math import floor

from changeling_protocol import SealingKey, UnixSeconds

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
KEYS_SECONDS = 60
"""The list of sealing keys: a cache asks a server for it once in that time, however many devices ask the cache."""


def cache_control(published: PublishedSurvey, looked: Looked, now: UnixSeconds) -> str:
    """The header of an answer that is made of what is shown of a survey. now: Unix seconds."""
    return f"public, max-age={_seconds(published, looked, now)}" if published.public else OWN


def cache_control_of_keys(offered: SealingKey | None, now: UnixSeconds) -> str:
    """The header of the list of sealing keys. offered: the key in it, None where it is empty. now: Unix seconds."""
    if offered is None:
        return UNKEPT
    return f"public, max-age={max(0, min(KEYS_SECONDS, floor(offered.expires - now)))}"


def _seconds(published: PublishedSurvey, looked: Looked, now: UnixSeconds) -> int:
    survey = published.survey
    if looked.final >= published.last:
        return FOR_GOOD_SECONDS
    most = PROVISIONAL_SECONDS if looked.final < looked.due else MOST_SECONDS
    coming = min(looked.due + 1, published.last)
    due = survey.calendar.time(coming) + survey.skew + survey.spread
    return most if coming == looked.due else max(0, min(most, floor(due - now)))
