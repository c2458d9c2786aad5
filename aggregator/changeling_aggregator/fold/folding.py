"""Driving the fold over a store: batch by batch to the log's end, each batch one transaction.

Tallies, attendance, ids, refusals and cursors are written together, the cursors by compare-and-set: whatever crashes,
and however many fold at once, each closing counts exactly once.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from changeling_protocol.quantities import SurveyId, UnixSeconds
from changeling_protocol.refusal import Refusal

from ..errors import Overtaken
from ..store import Store
from ..store.counted import add_attendance, add_refusals, add_tallies
from ..store.early_ends import published_ends
from ..store.log import advance_cursors, cursors_after, unfolded, unread
from ..store.pruning import hold
from ..store.runs import chunks_near
from ..store.sealing_keys import private_keys
from ..store.surveys import published_surveys, readable
from .closing import arrivals_are_ahead, close_what_ended, set_arrivals_right
from .counting import count
from .runs import add_run
from .snapshots import take_snapshots

BATCH_ENVELOPES = 20_000
BATCH_BYTES = 64 * 2**20


@dataclass(slots=True)
class FoldReport:
    """What a fold did: envelopes read, reports counted, and how much was refused for which reason.

    uncounted: envelopes of surveys that cannot be counted, by survey. They stay in the log for as long as it keeps any.
    """

    envelopes: int = 0
    reports: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)
    uncounted: Counter[SurveyId] = field(default_factory=Counter)


def fold(store: Store, now: UnixSeconds, batch: int = BATCH_ENVELOPES, *, closing: bool = True) -> FoldReport:
    """Fold what the log holds by now, then seal what is over, destroy keys, and take snapshots of what may be shown.

    now: Unix seconds. batch: the most envelopes of one transaction. closing: False where `now` may be wrong, so that
    nothing is sealed or destroyed, nor folded where arrivals are ahead of it: what is folded as late is late for good.
    What is appended meanwhile may wait for the next time, so that uploads which never stop keep nothing from being
    sealed.
    """
    total = FoldReport()
    if closing:
        set_arrivals_right(store, now)
    elif arrivals_are_ahead(store, now):
        return total
    with store.reading() as connection:
        waiting = unfolded(connection)
    while total.envelopes < waiting:
        try:
            done = fold_batch(store, batch)
        except Overtaken:
            continue
        if done.envelopes == 0:
            break
        total.envelopes += done.envelopes
        total.reports += done.reports
        total.refused += done.refused
        total.uncounted += done.uncounted
    if closing:
        close_what_ended(store, now)
        take_snapshots(store, now)
    return total


def fold_batch(store: Store, most: int = BATCH_ENVELOPES) -> FoldReport:
    """Fold the next envelopes, if there are any.

    Raises Overtaken where another folder counted some of them meanwhile; then this has changed nothing.
    """
    with store.reading() as connection:
        envelopes = unread(connection, most, BATCH_BYTES)
        if not envelopes:
            return FoldReport()
        surveys = readable(published_surveys(connection))
        keys = private_keys(connection, store.at_rest)
        seen = partial(chunks_near, connection)
        counted = count(envelopes, surveys, keys, seen, published_ends(connection))
    with store.writing() as connection:
        advance_cursors(connection, cursors_after(envelopes))
        add_tallies(connection, counted.tallies)
        add_attendance(connection, counted.attendance)
        add_refusals(connection, counted.refused)
        hold(connection, counted.held)
        for key, ids in counted.ids.items():
            add_run(connection, key, ids)
    refused: Counter[Refusal] = Counter()
    for (_, reason), times in counted.refused.items():
        refused[reason] += times
    reports = sum(tally.reports for tally in counted.tallies.values())
    return FoldReport(len(envelopes), reports, refused, counted.uncounted)
