"""Folding the kept log again, into a store that is thrown away, and comparing.

A node that is not sealed must have the tally that the log gives, and a closing its attendance: their envelopes are all
kept, and so are the keys to them. The copies of private keys are encrypted under a key that nobody keeps, as the file
they are in is deleted without being overwritten, or stays where the process is killed.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from changeling_protocol import NodeNumber, Survey, SurveyId, TrackNumber
from changeling_statistics import Tallies
from sqlalchemy import Connection, insert, select, update

from ..opening import Open, open_requests
from ..store import AtRest, Store
from ..store.at_rest import STORE_KEY_BYTES
from ..store.counted import sealed_period, tallies_of
from ..store.early_ends import published_ends
from ..store.log import folded_requests
from ..store.schema import cursors, early_ends, log, sealing_keys, streams, surveys
from ..store.surveys import published_surveys, readable
from .folding import fold_batch
from .seen import SeenIds

_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs. what: the node or the closing in words. stored, again: as stored, and as folded again."""

    survey: SurveyId
    what: str
    stored: str
    again: str


def check(store: Store, open_: Open = open_requests) -> list[Difference]:
    """Where folding the log again comes to something else than is stored. Changes nothing. Raises what a fold raises.

    open_: opens requests, here or in other processes.
    """
    with TemporaryDirectory() as folder, store.reading() as stored:
        scratch = Store.open(Path(folder) / "scratch.db", AtRest(os.urandom(STORE_KEY_BYTES)))
        try:
            _copy(stored, store.at_rest, scratch)
            seen = SeenIds()
            while fold_batch(scratch, open_=open_, seen=seen).requests:
                pass
            with scratch.reading() as again:
                known, ends = readable(published_surveys(stored)), published_ends(stored)
                return [
                    difference
                    for survey in known.values()
                    for difference in _differences(
                        survey,
                        sealed_period(stored, survey.id),
                        ends[survey.id].last if survey.id in ends else survey.calendar.periods,
                        tallies_of(stored, survey.id),
                        tallies_of(again, survey.id),
                    )
                ]
        finally:
            scratch.close()


def _copy(stored: Connection, at_rest: AtRest, scratch: Store) -> None:
    """Surveys, keys, and what is folded of the log: as a log without the gaps that pruning leaves.

    at_rest: what the stored keys are encrypted under; those in scratch are never stored in the clear.
    """
    with scratch.writing() as connection:
        for table in (surveys, early_ends):
            if kept := [dict(row) for row in stored.execute(select(table)).mappings()]:
                connection.execute(insert(table), kept)
        for row in stored.execute(select(sealing_keys).where(sealing_keys.c.private.is_not(None))).mappings():
            private = scratch.at_rest.kept(at_rest.taken(row["private"], row["id"]), row["id"])
            connection.execute(insert(sealing_keys).values({**row, "private": private}))
        for stream in stored.execute(select(cursors.c.stream)).scalars().all():
            connection.execute(insert(streams).values(id=stream, length=0))
            connection.execute(insert(cursors).values(stream=stream, position=0, pruned=0))
    lengths: Counter[int] = Counter()
    for rows in folded_requests(stored, _AT_ONCE):
        (stream,) = {row.stream for row in rows}
        numbered = enumerate(rows, lengths[stream] + 1)
        lengths[stream] += len(rows)
        with scratch.writing() as connection:
            again = [
                {"stream": stream, "position": position, "arrival": row.arrival, "envelope": row.body}
                for position, row in numbered
            ]
            connection.execute(insert(log), again)
            connection.execute(update(streams).where(streams.c.id == stream).values(length=lengths[stream]))


def _differences(survey: Survey, sealed: int, last: int, stored: Tallies, again: Tallies) -> Iterator[Difference]:
    """last: the last period that counts; of later ones some may have been counted before the survey was ended."""
    tracks = survey.plan.tracks
    for track, number in sorted({*stored, *again}):
        node = tracks[track].node(number)
        if not sealed < node.end <= last:
            continue
        shown = [_tally(tallies, (track, number)) for tallies in (stored, again)]
        if shown[0] != shown[1]:
            yield Difference(survey.id, f"track {track}, node ({node.start}, {node.end}]", *shown)
    for group, period in sorted({*stored.attendance, *again.attendance}):
        if not sealed < period <= last:
            continue
        here = [tallies.attendance.get((group, period)) for tallies in (stored, again)]
        if here[0] != here[1]:
            yield Difference(survey.id, f"group {group}, attendance at period {period}", *map(str, here))


def _tally(tallies: Tallies, key: tuple[TrackNumber, NodeNumber]) -> str:
    if key not in tallies:
        return "nothing"
    return f"{tallies[key].reports} reports, slots {tallies[key].slots.tolist()}"
