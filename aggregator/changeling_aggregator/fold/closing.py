"""What ends once the log is folded.

Closings are sealed when their grace is over, private keys destroyed a grace after they have expired, and the envelopes
deleted that no open closing needs. For keys the grace is the longest of the surveys that have something left to seal;
for envelopes it is their own survey's, or that one where it is shorter.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from math import ceil, floor
from typing import NamedTuple

from changeling_protocol import Survey, SurveyId, UnixMilliseconds, UnixSeconds
from changeling_statistics import lots_to_show
from sqlalchemy import Connection

from ..errors import SegmentLost, Unwritable
from ..store import ClosingKey, Store, Transactions
from ..store.catalogue import frontier_of_all
from ..store.compaction import tidy
from ..store.counted import seal_closings, sealed_period
from ..store.early_ends import published_ends
from ..store.log import (
    first_unfolded,
    folded,
    held_arrival,
    hold_arrivals,
    latest_arrival,
    set_back_arrivals,
    stop_appending,
    stop_folding,
)
from ..store.pruning import any_to_prune, prune
from ..store.recovery import recover
from ..store.sealing_keys import any_expired, destroy_expired
from ..store.snapshots import Looked, Lot, LotKey, counted_lots, looked_at, put_looked, put_snapshots, shown_lots
from ..store.surveys import published_surveys, readable
from ..store.thinning import spent_requests, thin

# MERGED fold.snapshots: Taking snapshots: after a fold, what is counted of the closings that are due is shown where that moves enough. A snapshot is taken by whoever folds, in a transaction in which nothing else is folded, and never by whoever reads: so all servers of a store show the same, a restart changes nothing, and asking more often makes no snapshot come earlier.


MOST_RETENTION_SECONDS = 90 * 86_400
"""No survey keeps expired keys and folded envelopes longer than that, whatever its grace."""
MOST_AHEAD_MS = 60_000
"""Arrivals this far ahead of a clock that is believed come of one that was wrong."""

_log = logging.getLogger("changeling")


def close_what_ended(store: Store, now: UnixSeconds) -> None:
    """Seal closings, destroy keys and prune the log, as of now; or of the first arrival that is not folded, if earlier.

    now: Unix seconds, of a clock that is believed. From then on no arrival is before that moment, so that whatever else
    comes for a sealed closing is late, and nothing that waits was sealed to a key that is gone.
    """
    store.forget_overwritten(changed=_close(store, now))
    store.give_back()


def recover_journals(store: Store, now: UnixSeconds) -> None:
    """Have the log go on with what servers that are gone had acknowledged. now: Unix seconds.

    Where that fails it is tried again next time, and nothing is sealed meanwhile.
    """
    try:
        recover(store, _ms(now))
    except (SegmentLost, Unwritable, OSError) as error:
        _log.warning("a journal cannot be recovered, so nothing is sealed", extra={"why": f"{error}"})


def tidy_segments(store: Store, writing: Transactions) -> None:
    """Write small segments anew as larger ones, and delete files of no use; where that fails, another time."""
    try:
        tidy(store, writing)
    except (SegmentLost, Unwritable) as error:
        _log.warning("segments cannot be put in order", extra={"why": f"{error}"})


def set_arrivals_right(store: Store, now: UnixSeconds) -> None:
    """Where arrivals were given out far ahead of now, by a clock that was wrong, set them back.

    now: Unix seconds, of a clock that is believed. What is not folded has then arrived now, and is not late for it.
    """
    if not arrivals_are_ahead(store, now):
        return
    with store.writing() as connection:
        stop_appending(connection)
        set_back_arrivals(connection, _ms(now))


def arrivals_are_ahead(store: Store, now: UnixSeconds) -> bool:
    """Whether arrivals were given out so far ahead of now that a clock was wrong. now: Unix seconds."""
    with store.reading() as connection:
        return latest_arrival(connection) > latest_right(connection, now)


def latest_right(connection: Connection, now: UnixSeconds) -> UnixMilliseconds:
    """After this moment, in Unix milliseconds, an arrival comes of a clock that was wrong. now: Unix seconds.

    Another server may give one out at any time, so a fold counts none that is later, until it is set back.
    """
    return UnixMilliseconds(max(_ms(now) + MOST_AHEAD_MS, held_arrival(connection)))


def _close(store: Store, now: UnixSeconds) -> bool:
    """Does it, in one transaction; returns whether a key was destroyed."""
    with store.reading() as connection:
        longest, looked = _retention(connection), _moment(connection, now)
        before = UnixSeconds(now - longest)
        graces, levels = _graces(connection, looked)
        spent = spent_requests(connection, graces, levels, 1000 * longest, _ms(looked))
        if not (
            spent
            or _to_seal(connection, now)
            or any_expired(connection, before)
            or any_to_prune(connection, _ms(before), _ms(now))
        ):
            return False
    with store.writing() as connection:
        stop_appending(connection)
        moment = _moment(connection, now)
        hold_arrivals(connection, UnixMilliseconds(ceil(moment * 1000)))
        for survey, period in _to_seal(connection, moment):
            seal_closings(connection, survey, period)
        if moment >= looked:  # all that was spent by then is sealed now
            thin(connection, spent)
        before = UnixSeconds(moment - _retention(connection))
        prune(connection, _ms(before), _ms(moment))
        return destroy_expired(connection, before) > 0


def _moment(connection: Connection, now: UnixSeconds) -> UnixSeconds:
    """Now, or the first arrival that is not folded, if that is earlier; or what a server's journal may still bring."""
    waiting = (first_unfolded(connection), frontier_of_all(connection))
    return min([now, *(UnixSeconds(each / 1000) for each in waiting if each is not None)])


def _ms(time: UnixSeconds) -> UnixMilliseconds:
    return UnixMilliseconds(floor(time * 1000))


def _to_seal(connection: Connection, now: UnixSeconds) -> list[ClosingKey]:
    """Up to which period the closings of a survey can be sealed, of those where that is more than is sealed already."""
    ended = (
        (id_, survey.calendar.closed(UnixSeconds(now - survey.grace)))
        for id_, survey in readable(published_surveys(connection)).items()
    )
    return [(id_, period) for id_, period in ended if period > sealed_period(connection, id_)]


def _graces(connection: Connection, now: UnixSeconds) -> tuple[dict[SurveyId, int], set[int]]:
    """The grace of each survey in milliseconds, and those of surveys of which the log may still hold something."""
    graces, levels = {}, set()
    for id_, survey in readable(published_surveys(connection)).items():
        graces[id_] = 1000 * min(survey.grace, MOST_RETENTION_SECONDS)
        if now <= survey.calendar.time(survey.calendar.periods) + 2 * survey.grace:
            levels.add(graces[id_])
    return graces, levels


def _retention(connection: Connection) -> int:
    """For how many seconds what could still be folded again is kept: the longest grace with something left to seal."""
    ends, signed = published_ends(connection), published_surveys(connection)
    surveys = readable(signed)
    if len(surveys) < len(signed):  # another version, perhaps on another server, may need as much for those
        return MOST_RETENTION_SECONDS
    graces = (
        survey.grace
        for id_, survey in surveys.items()
        if sealed_period(connection, id_) < (ends[id_].last if id_ in ends else survey.calendar.periods)
    )
    return min(max(graces, default=0), MOST_RETENTION_SECONDS)


def take_snapshots(store: Store, now: UnixSeconds) -> None:
    """Show what may be shown by now, in Unix seconds, of what is counted.

    What that is is found out before the transaction that writes it, which uploads may have to wait for.
    """
    with store.reading() as connection:
        found = {
            (survey.id, before, after): _fresh(connection, survey, before, after)
            for survey, before, after in _to_look_at(connection, now)
        }
    if not found:
        return
    with store.writing() as connection:
        stop_folding(connection)
        for survey, before, after in list(_to_look_at(connection, now)):
            known = found.get((survey.id, before, after))  # None where something was folded or sealed since
            _show(connection, survey, before, after, known or _fresh(connection, survey, before, after))


def _to_look_at(connection: Connection, now: UnixSeconds) -> Iterator[tuple[Survey, Looked, Looked]]:
    """The surveys of which anything was folded, closed or sealed since they were looked at; how far before, and now."""
    known, ends, counted = looked_at(connection), published_ends(connection), folded(connection)
    for id_, survey in readable(published_surveys(connection)).items():
        before = known.get(id_, Looked())
        last = ends[id_].last if id_ in ends else survey.calendar.periods
        due = min(survey.calendar.closed(UnixSeconds(now - survey.skew - survey.spread)), last)
        due = max(due, before.due)  # what was shown stays so, whatever the clock does
        final = max(before.final, min(sealed_period(connection, id_), due))
        after = Looked(before.revision, final, due, counted)
        if after != before and due > before.final:
            yield survey, before, after


class _Fresh(NamedTuple):
    """The lots to show, and those that are shown already, of closings that are not final."""

    lots: dict[LotKey, Lot]
    shown: Collection[LotKey]


def _fresh(connection: Connection, survey: Survey, before: Looked, after: Looked) -> _Fresh:
    span = before.final, after.due
    counted = _by_closing(counted_lots(connection, survey.id, survey.plan, *span))
    shown = _by_closing(shown_lots(connection, survey.id, after=span[0], until=span[1]))
    fresh: dict[LotKey, Lot] = {}
    for period, lots in counted.items():
        chosen = lots_to_show(
            {key: lot.counts for key, lot in shown[period].items()},
            {key: lot.counts for key, lot in lots.items()},
            max(1, survey.minimum),
            sealed=period <= after.final,
        )
        fresh |= {key: lots[key] for key in lots.keys() & chosen}
    return _Fresh(fresh, [key for lots in shown.values() for key in lots])


def _show(connection: Connection, survey: Survey, before: Looked, after: Looked, fresh: _Fresh) -> None:
    if fresh.lots or after.final > before.final:
        after = replace(after, revision=before.revision + 1)
    put_snapshots(connection, survey.id, after.revision, fresh.lots, fresh.shown)
    put_looked(connection, survey.id, after)


def _by_closing(lots: dict[LotKey, Lot]) -> defaultdict[int, dict[LotKey, Lot]]:
    closings: defaultdict[int, dict[LotKey, Lot]] = defaultdict(dict)
    for key, lot in lots.items():
        closings[key[0]][key] = lot
    return closings
