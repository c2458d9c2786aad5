"""After the log is folded: closings whose grace is over are sealed, what nobody needs any more goes, the rest is shown.

Private keys are destroyed a grace after they have expired, and envelopes deleted that no open closing needs. For keys
the grace is the longest of the surveys that have something left to seal; for envelopes it is their own survey's.

A snapshot of what is counted is taken by whoever folds, in a transaction in which nothing else is folded, and never by
whoever reads: so all servers of a store show the same, a restart changes nothing, and asking more often makes no
snapshot come earlier.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from math import ceil, floor
from typing import NamedTuple

from changeling_protocol import Survey, SurveyId, UnixMilliseconds, UnixSeconds
from changeling_statistics import batches_to_show

from ..errors import SegmentLost, Unwritable
from ..store import ClosingKey, Lot, LotKey, SnapshotProgress, Store, Transaction, Turn, View

MOST_RETENTION_SECONDS = 90 * 86_400
"""No survey keeps expired keys and folded envelopes longer than that, whatever its grace."""
MOST_AHEAD_MS = 60_000
"""Arrivals this far ahead of a clock that is believed come of one that was wrong."""

_log = logging.getLogger("changeling")


def compact(turn: Turn) -> None:
    """Write small segments anew as larger ones, and delete files of no use; where that fails, another time."""
    try:
        turn.compact()
    except (SegmentLost, Unwritable) as error:
        _log.warning("segments cannot be put in order", extra={"why": f"{error}"})


def set_arrivals_right(store: Store, now: UnixSeconds) -> None:
    """Where arrivals were given out far ahead of now, by a clock that was wrong, set them back.

    now: Unix seconds, of a clock that is believed. What is not folded has then arrived now, and is not late for it.
    """
    if arrivals_are_ahead(store, now):
        with store.transaction() as writing:
            writing.stop_appending()
            writing.set_back_arrivals(_ms(now))


def arrivals_are_ahead(store: Store, now: UnixSeconds) -> bool:
    """Whether arrivals were given out so far ahead of now that a clock was wrong. now: Unix seconds."""
    with store.view() as view:
        return view.latest_arrival() > latest_right(view, now)


def latest_to_count(store: Store, now: UnixSeconds, believed: bool) -> UnixMilliseconds:
    """The moment, in Unix milliseconds, after which no arrival is counted yet.

    believed: False where `now` may be wrong. What is late by such a clock is in time once that is set right, and late
    for good if it is counted: so what arrived after the time that was last believed waits from the first deadline on.
    """
    with store.view() as view:
        latest = latest_right(view, now)
        if believed:
            return latest
        due = [
            survey.calendar.time(period) + survey.grace
            for id_, survey in view.surveys().items()
            if (period := view.sealed_period(id_) + 1) <= _last(view, survey)
        ]
        return min(latest, max(view.kept_time().told, UnixMilliseconds(1000 * min(due, default=0))))


def latest_right(view: View, now: UnixSeconds) -> UnixMilliseconds:
    """After this moment, in Unix milliseconds, an arrival comes of a clock that was wrong. now: Unix seconds.

    Another server may give one out at any time, so a fold counts none that is later, until it is set back.
    """
    return UnixMilliseconds(max(_ms(now) + MOST_AHEAD_MS, view.arrival_floor()))


def close_what_ended(store: Store, now: UnixSeconds) -> None:
    """Seal closings, destroy keys and prune the log, as of now; or of the first arrival that is not folded, if earlier.

    now: Unix seconds, of a clock that is believed. From then on no arrival is before that moment, so that whatever else
    comes for a sealed closing is late, and nothing that waits was sealed to a key that is gone.
    """
    destroyed = False
    if _anything_ended(store, now):
        with store.transaction() as writing:
            writing.stop_appending()
            moment, longest = _moment(writing, now), _retention(writing)
            writing.raise_arrival_floor(UnixMilliseconds(ceil(moment * 1000)))
            for survey, period in _to_seal(writing, moment):
                writing.seal(survey, period)
            writing.apply_retention(_ms(moment), _graces(writing), 1000 * longest)
            destroyed = writing.destroy_expired_keys(UnixSeconds(moment - longest)) > 0
    store.forget_overwritten(changed=destroyed)
    store.give_back()


def _anything_ended(store: Store, now: UnixSeconds) -> bool:
    """Whether there is anything to seal, to destroy or to delete, told without a transaction that uploads wait for."""
    with store.view() as view:
        longest, moment = _retention(view), _moment(view, now)
        return bool(
            _to_seal(view, moment)
            or view.any_key_expired(UnixSeconds(moment - longest))
            or view.retention_due(_ms(moment), _graces(view), 1000 * longest)
        )


def _moment(view: View, now: UnixSeconds) -> UnixSeconds:
    """Now, or the first arrival that is not folded, if that is earlier."""
    first = view.first_unfolded()
    return now if first is None else min(now, UnixSeconds(first / 1000))


def _ms(time: UnixSeconds) -> UnixMilliseconds:
    return UnixMilliseconds(floor(time * 1000))


def _to_seal(view: View, now: UnixSeconds) -> list[ClosingKey]:
    """Up to which period the closings of a survey can be sealed, of those where that is more than is sealed already."""
    ended = ((id_, survey.calendar.closed(UnixSeconds(now - survey.grace))) for id_, survey in view.surveys().items())
    return [(id_, period) for id_, period in ended if period > view.sealed_period(id_)]


def _graces(view: View) -> dict[SurveyId, int]:
    """For how many milliseconds each survey needs its requests: its grace, or 0 where all that counts is sealed."""
    return {
        id_: 1000 * min(survey.grace, MOST_RETENTION_SECONDS) if view.sealed_period(id_) < _last(view, survey) else 0
        for id_, survey in view.surveys().items()
    }


def _retention(view: View) -> int:
    """For how many seconds what could still be folded again is kept: the longest grace with something left to seal."""
    surveys = view.surveys()
    if len(surveys) < len(view.signed_surveys()):  # another version, perhaps on another server, may need them longer
        return MOST_RETENTION_SECONDS
    graces = (survey.grace for survey in surveys.values() if view.sealed_period(survey.id) < _last(view, survey))
    return min(max(graces, default=0), MOST_RETENTION_SECONDS)


def _last(view: View, survey: Survey) -> int:
    """The last period of a survey that counts."""
    end = view.early_ends().get(survey.id)
    return survey.calendar.periods if end is None else end.last


def take_snapshots(store: Store, now: UnixSeconds) -> None:
    """Show what may be shown by now, in Unix seconds, of what is counted, where that moves enough.

    What that is is found out before the transaction that writes it, which uploads may have to wait for.
    """
    with store.view() as view:
        found = {
            (survey.id, before, after): _fresh(view, survey, before, after)
            for survey, before, after in _to_look_at(view, now)
        }
    if not found:
        return
    with store.transaction() as writing:
        writing.stop_folding()
        for survey, before, after in list(_to_look_at(writing, now)):
            known = found.get((survey.id, before, after))  # None where something was folded or sealed since
            _show(writing, survey, before, after, known or _fresh(writing, survey, before, after))


def _to_look_at(view: View, now: UnixSeconds) -> Iterator[tuple[Survey, SnapshotProgress, SnapshotProgress]]:
    """The surveys of which anything was folded, closed or sealed since they were looked at; how far before, and now."""
    known, counted = view.looked_at(), view.folded()
    for id_, survey in view.surveys().items():
        before = known.get(id_, SnapshotProgress())
        due = min(survey.calendar.closed(UnixSeconds(now - survey.skew - survey.spread)), _last(view, survey))
        due = max(due, before.due)  # what was shown stays so, whatever the clock does
        final = max(before.final, min(view.sealed_period(id_), due))
        after = SnapshotProgress(before.revision, final, due, counted)
        if after != before and due > before.final:
            yield survey, before, after


class _Fresh(NamedTuple):
    """The lots to show, and those that are shown already, of closings that are not final."""

    lots: dict[LotKey, Lot]
    shown: Collection[LotKey]


def _fresh(view: View, survey: Survey, before: SnapshotProgress, after: SnapshotProgress) -> _Fresh:
    counted = _by_closing(view.counted_lots(survey.id, survey.plan, before.final, after.due))
    shown = _by_closing(view.shown_lots(survey.id, after=before.final, until=after.due))
    fresh: dict[LotKey, Lot] = {}
    for period, lots in counted.items():
        chosen = batches_to_show(
            {key: lot.counts for key, lot in shown[period].items()},
            {key: lot.counts for key, lot in lots.items()},
            max(1, survey.minimum),
            sealed=period <= after.final,
        )
        fresh |= {key: lots[key] for key in lots.keys() & chosen}
    return _Fresh(fresh, [key for lots in shown.values() for key in lots])


def _show(
    writing: Transaction, survey: Survey, before: SnapshotProgress, after: SnapshotProgress, fresh: _Fresh
) -> None:
    if fresh.lots or after.final > before.final:
        after = replace(after, revision=before.revision + 1)
    writing.put_snapshots(survey.id, after.revision, fresh.lots, fresh.shown)
    writing.put_looked(survey.id, after)


def _by_closing(lots: dict[LotKey, Lot]) -> defaultdict[int, dict[LotKey, Lot]]:
    closings: defaultdict[int, dict[LotKey, Lot]] = defaultdict(dict)
    for key, lot in lots.items():
        closings[key[0]][key] = lot
    return closings
