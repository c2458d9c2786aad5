"""What a query counts at the end of every period, in truth: for the curator's eyes, never for publication."""

import numpy as np
from changeling_protocol import Calendar
from changeling_statistics import Changelog, Counts

from ..changes.linear_query import LinearQuery


def true_levels(changelog: Changelog, query: LinearQuery, calendar: Calendar) -> Counts:
    """The query at the ends of the periods, shape (periods, w), in units."""
    mutations = changelog.mutations()
    period = mutations.period_of(calendar.start, calendar.period)
    inside = period <= calendar.periods
    moved = query.cells[mutations.new[inside]] - query.cells[mutations.old[inside]]
    changes = np.zeros((calendar.periods, query.width), np.int64)
    np.add.at(changes, period[inside] - 1, moved)
    levels: Counts = np.cumsum(changes, axis=0)
    return levels
