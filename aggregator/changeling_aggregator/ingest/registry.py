"""The published surveys and keys, as they were last read of the store, and which envelopes are appended.

The checks are those that need no private key: on an envelope's head, the dates and its length. What another process
publishes on the same store is seen at the next refresh.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from threading import Lock
from typing import TypeAlias

from changeling_protocol import (
    CLOSING_BYTES,
    HEAD_BYTES,
    ID_BYTES,
    MOST_SPANNED_PERIODS,
    SEAL_BYTES,
    VERSION,
    EarlyEnd,
    Refusal,
    ReleasePlan,
    Survey,
    SurveyId,
    UnixSeconds,
    symbol_bytes,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..errors import StoreError
from ..store import PublishedKey, Store, Token, View, readable

Refused: TypeAlias = tuple[SurveyId | None, Refusal]
"""The id of the survey to count a refusal for, None if there is none, and the reason."""
_PACKING_BYTES = 5
"""The most that MessagePack needs for the head of an array or of a column, or for one of the numbers before them."""


@dataclass(frozen=True, slots=True)
class PublishedSurvey:
    """A survey as this server runs it.

    signed: its signed bytes.
    most_bytes: the length that no envelope of it exceeds.
    last: the last period that counts: the calendar's, or an earlier one that the authority has ended it after.
    taken_until: when the grace of that period ends, in Unix seconds.
    public: whether its results are open to all.
    """

    survey: Survey
    signed: bytes
    most_bytes: int
    last: int
    taken_until: int
    public: bool = False

    def closed(self, time: UnixSeconds) -> int:
        """How many of the periods that count had closed by this Unix time, in seconds."""
        return min(self.survey.calendar.closed(time), self.last)


@dataclass(slots=True)
class Registry:
    """Published surveys, keys and tokens of a store, by id, or by hash.

    keys: those whose private half is there: nothing is offered, or taken, that nobody could open.
    private: these halves, by key id; none where the store key is another by now.
    unreadable: the published surveys that this version cannot read, and does not run.
    """

    store: Store
    surveys: Mapping[SurveyId, PublishedSurvey] = field(default_factory=dict)
    keys: Mapping[bytes, PublishedKey] = field(default_factory=dict)
    tokens: Mapping[bytes, Token] = field(default_factory=dict)
    private: Mapping[bytes, X25519PrivateKey] = field(default_factory=dict, repr=False)
    unreadable: Collection[SurveyId] = ()
    _refreshing: Lock = field(default_factory=Lock, repr=False)

    def refresh(self) -> None:
        """Read the store again."""
        with self._refreshing:  # so that an older reading never replaces a newer one
            with self.store.view() as view:
                signed, keys, tokens = view.signed_surveys(), view.published_keys(), view.tokens()
                ends, public, private = view.early_ends(), view.public_surveys(), _private_keys(view)
            known = {id_: each for id_, each in self.surveys.items() if id_ not in ends}
            self.surveys = {
                id_: replace(known.get(id_) or _published(survey, signed[id_], ends.get(id_)), public=id_ in public)
                for id_, survey in readable(signed).items()
            }
            self.unreadable = signed.keys() - self.surveys.keys()
            self.keys, self.tokens, self.private = keys, tokens, private

    def offered(self, now: UnixSeconds) -> PublishedKey | None:
        """The one key that uploads are to be sealed to now. now: Unix seconds."""
        valid = (each for each in self.keys.values() if each.key.valid_at(now))
        return max(valid, key=lambda each: each.key.begins, default=None)


def _private_keys(view: View) -> dict[bytes, X25519PrivateKey]:
    try:
        return view.private_keys()
    except StoreError:
        return {}


def most_envelope_bytes(plan: ReleasePlan) -> int:
    """A length in bytes that no envelope exceeds, as an upload spans at most MOST_SPANNED_PERIODS periods."""
    counts = {track: min(-(-MOST_SPANNED_PERIODS // track.width), track.count) for track in plan.tracks}
    most_closings = min(MOST_SPANNED_PERIODS, sum(counts.values()))
    most_symbols = max(
        sum(counts[track] * symbol_bytes(track.randomizer) + _PACKING_BYTES for track in group.tracks)
        for group in plan.groups
    )
    return HEAD_BYTES + SEAL_BYTES + 5 * _PACKING_BYTES + most_closings * CLOSING_BYTES + most_symbols


def _published(survey: Survey, signed: bytes, end: EarlyEnd | None) -> PublishedSurvey:
    last = survey.calendar.periods if end is None else end.last
    taken_until = survey.calendar.time(last) + survey.grace
    return PublishedSurvey(survey, signed, most_envelope_bytes(survey.plan), last, taken_until)


def survey_of(envelope: bytes) -> SurveyId:
    """The survey that an envelope, or the head of one, names."""
    return SurveyId(envelope[1 : 1 + ID_BYTES])


def refusals_of(
    envelopes: Sequence[bytes], heads: Collection[bytes], registry: Registry, now: UnixSeconds
) -> dict[int, Refused]:
    """Why some of these envelopes are refused, by their places; the others are to be appended.

    heads: theirs, each once. now: Unix seconds. Head and length decide. So where many envelopes are alike, as in a
    relay's batch, few are judged.
    """
    lengths = set(map(len, envelopes))
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
    id_ = survey_of(head)
    published = registry.surveys.get(id_)
    if published is None:
        return None, Refusal.UNKNOWN_SURVEY
    reason = _refusal_of_survey(published, registry.keys.get(head[1 + ID_BYTES :]), length, now)
    return None if reason is None else (id_, reason)


def _refusal_of_survey(
    published: PublishedSurvey, key: PublishedKey | None, length: int, now: UnixSeconds
) -> Refusal | None:
    survey = published.survey
    if not survey.calendar.start <= now <= published.taken_until:
        return Refusal.CLOSED
    if key is None:
        return Refusal.UNKNOWN_KEY
    if now > key.key.expires + survey.skew:
        return Refusal.EXPIRED_KEY
    return Refusal.TOO_LARGE if length > published.most_bytes else None
