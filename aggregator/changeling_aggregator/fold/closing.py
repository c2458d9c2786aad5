"""What ends once the log is folded.

Nodes are sealed when their grace is over, private keys destroyed a grace after they have expired, and the envelopes
deleted that no open node needs.
"""

from math import ceil, floor

from changeling_protocol import Survey, Track
from changeling_protocol.quantities import NodeNumber, TrackNumber, UnixMilliseconds, UnixSeconds
from sqlalchemy import Connection

from ..store import NodeKey, Store
from ..store.counted import seal_nodes, sealed_nodes
from ..store.log import first_unfolded, hold_arrivals, stop_appending
from ..store.pruning import any_to_prune, prune
from ..store.sealing_keys import any_expired, destroy_expired
from ..store.surveys import published_surveys, survey_in


def last_ended(survey: Survey, track: Track, time: UnixSeconds) -> NodeNumber:
    """The number of the track's last node that had closed by this Unix time; 0 for none."""
    return NodeNumber(min(max((survey.calendar.closed(time) - track.first) // track.width, 0), track.count))


def close_what_ended(store: Store, now: UnixSeconds) -> None:
    """Seal nodes, destroy keys and prune the log, as of now; or of the first arrival that is not folded, if earlier.

    now: Unix seconds. From then on no arrival is before that moment, so that whatever else comes for a sealed node is
    late, and nothing that waits was sealed to a key that is gone.
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
        for survey, track, node in _to_seal(connection, moment):
            seal_nodes(connection, survey, track, node)
        before = UnixSeconds(moment - _longest_grace(connection))
        prune(connection, _ms(before), _ms(moment))
        return destroy_expired(connection, before) > 0


def _ms(time: UnixSeconds) -> UnixMilliseconds:
    return UnixMilliseconds(floor(time * 1000))


def _to_seal(connection: Connection, now: UnixSeconds) -> list[NodeKey]:
    ended: list[NodeKey] = []
    for id_, signed in published_surveys(connection).items():
        survey, done = survey_in(signed), sealed_nodes(connection, id_)
        for number, track in enumerate(survey.plan.tracks):
            node = last_ended(survey, track, UnixSeconds(now - survey.grace))
            if node > done.get(TrackNumber(number), 0):
                ended.append((id_, TrackNumber(number), node))
    return ended


def _longest_grace(connection: Connection) -> int:
    return max((survey_in(signed).grace for signed in published_surveys(connection).values()), default=0)
