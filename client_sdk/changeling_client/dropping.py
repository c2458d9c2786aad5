"""Taking closings out of the outbox that nobody would count, or that there is no room for; each is counted."""

import sqlite3
from collections.abc import Iterable

from . import drops, entries, outbox
from .drops import Drop
from .entries import Entry
from .wrapping import Wrapping


def without(db: sqlite3.Connection, entry: Entry, periods: Iterable[int]) -> Entry:
    """Takes closings of these periods out, as far as they still wait. Returns the entry as it then is."""
    taken = list(periods)
    standings = outbox.standings(db, entry, taken)
    if not standings:
        return entry
    outbox.remove(db, entry.survey, entry.number, taken)
    return entry.dropping(*standings)


def make_room(db: sqlite3.Connection, wrapping: Wrapping) -> int:
    """Drops the oldest of what waits if it is too much. Returns how many closings."""
    excess = outbox.size(db) - outbox.MOST_WAITING
    if excess <= 0:
        return 0
    for survey, number, period in outbox.oldest(db, excess):
        entries.update(db, wrapping, without(db, entries.load(db, wrapping, survey, number), [period]))
    drops.count(db, Drop.NO_ROOM, excess)
    return excess
