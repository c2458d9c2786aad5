"""What ends once the log is folded.

Closings are sealed when their grace is over, private keys destroyed a grace after they have expired, and the envelopes
deleted that no open closing needs.
"""

from math import ceil, floor

from changeling_protocol.quantities import UnixMilliseconds, UnixSeconds
from sqlalchemy import Connection

from ..store import ClosingKey, Store
from ..store.counted import seal_closings, sealed_period
from ..store.log import first_unfolded, hold_arrivals, stop_appending
from ..store.pruning import any_to_prune, prune
from ..store.sealing_keys import any_expired, destroy_expired
from ..store.surveys import published_surveys, survey_in


def close_what_ended(store: Store, now: UnixSeconds) -> None:
    """Seal closings, destroy keys and prune the log, as of now; or of the first arrival that is not folded, if earlier.

    now: Unix seconds. From then on no arrival is before that moment, so that whatever else comes for a sealed closing
    is late, and nothing that waits was sealed to a key that is gone.
    """
    store.forget_overwritten(changed=_close(store, now))


def _close(store: Store, now: UnixSeconds) -> bool:
    """Does it, in one transaction; returns whether a key was destroyed."""
    with store.reading() as connection:
        before = UnixSeconds(now - _longest_grace(connection))
        if not (
            _to_seal(connection, now)
            or any_expired(connection, before)
            or any_to_prune(connection, _ms(before), _ms(now))
        ):
            return False
    with store.writing() as connection:
        stop_appending(connection)
        waiting = first_unfolded(connection)
        moment = now if waiting is None else min(now, UnixSeconds(waiting / 1000))
        hold_arrivals(connection, UnixMilliseconds(ceil(moment * 1000)))
        for survey, period in _to_seal(connection, moment):
            seal_closings(connection, survey, period)
        before = UnixSeconds(moment - _longest_grace(connection))
        prune(connection, _ms(before), _ms(moment))
        return destroy_expired(connection, before) > 0


def _ms(time: UnixSeconds) -> UnixMilliseconds:
    return UnixMilliseconds(floor(time * 1000))


def _to_seal(connection: Connection, now: UnixSeconds) -> list[ClosingKey]:
    """Up to which period the closings of a survey can be sealed, of those where that is more than is sealed already."""
    ended = (
        (id_, survey_in(signed).calendar.closed(UnixSeconds(now - survey_in(signed).grace)))
        for id_, signed in published_surveys(connection).items()
    )
    return [(id_, period) for id_, period in ended if period > sealed_period(connection, id_)]


def _longest_grace(connection: Connection) -> int:
    return max((survey_in(signed).grace for signed in published_surveys(connection).values()), default=0)
