"""Taking snapshots: after a fold, what is counted of the closings that are due is shown where that moves enough.

A snapshot is taken by whoever folds, in a transaction in which nothing else is folded, and never by whoever reads: so
all servers of a store show the same, a restart changes nothing, and asking more often makes no snapshot come earlier.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from changeling_protocol import Survey, UnixSeconds
from changeling_statistics import batches_to_show
from sqlalchemy import Connection

from ..store import Store
from ..store.counted import sealed_period
from ..store.early_ends import published_ends
from ..store.log import folded, stop_folding
from ..store.snapshots import (
    Looked,
    Lot,
    LotKey,
    counted_lots,
    looked_at,
    put_looked,
    put_snapshots,
    shown_lots,
)
from ..store.surveys import published_surveys, readable


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
        chosen = batches_to_show(
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
