"""The surveys and sealing keys of a store as they were last read, in memory: every upload is checked against them.

What another process publishes on the same store is seen at the next refresh.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock

from changeling_protocol import (
    CLOSING_BYTES,
    HEAD_BYTES,
    MOST_SPANNED_PERIODS,
    SEAL_BYTES,
    EarlyEnd,
    ReleasePlan,
    Survey,
    SurveyId,
    UnixSeconds,
    symbol_bytes,
)

from ..store import PublishedKey, Store, Token, readable

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
    unreadable: the published surveys that this version cannot read, and does not run.
    """

    store: Store
    surveys: Mapping[SurveyId, PublishedSurvey] = field(default_factory=dict)
    keys: Mapping[bytes, PublishedKey] = field(default_factory=dict)
    tokens: Mapping[bytes, Token] = field(default_factory=dict)
    unreadable: Collection[SurveyId] = ()
    _refreshing: Lock = field(default_factory=Lock, repr=False)

    def refresh(self) -> None:
        """Read the store again."""
        with self._refreshing:  # so that an older reading never replaces a newer one
            with self.store.view() as view:
                signed, keys, tokens = view.signed_surveys(), view.published_keys(), view.tokens()
                ends, public = view.early_ends(), view.public_surveys()
            known = {id_: each for id_, each in self.surveys.items() if id_ not in ends}
            self.surveys = {
                id_: replace(known.get(id_) or _published(survey, signed[id_], ends.get(id_)), public=id_ in public)
                for id_, survey in readable(signed).items()
            }
            self.unreadable = signed.keys() - self.surveys.keys()
            self.keys, self.tokens = keys, tokens

    def offered(self, now: UnixSeconds) -> PublishedKey | None:
        """The one key that uploads are to be sealed to now. now: Unix seconds."""
        valid = (each for each in self.keys.values() if each.key.valid_at(now))
        return max(valid, key=lambda each: each.key.begins, default=None)


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
