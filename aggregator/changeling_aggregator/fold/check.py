"""Folding the kept log again, into a store that is thrown away, and comparing.

A node that is not sealed must have the tally that the log gives, and a closing its attendance: their envelopes are all
kept, and so are the keys to them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from changeling_protocol import NodeNumber, Survey, SurveyId, TrackNumber, UnixMilliseconds, UnixSeconds
from changeling_statistics import Tallies

from ..opening import Open, open_requests
from ..store import KeptTime, Store
from .folding import fold

_AFTER_ALL = UnixSeconds(2.0**40)
"""A time that no arrival is ahead of."""


@dataclass(frozen=True, slots=True)
class TallyDifference:
    """A node or closing, in words, whose count differs. stored, again: as stored, and as folded again."""

    survey: SurveyId
    what: str
    stored: str
    again: str


def check(store: Store, open_: Open = open_requests) -> list[TallyDifference]:
    """Where folding the log again comes to something else than is stored. Changes nothing. Raises what a fold raises.

    open_: opens requests, here or in other processes.
    """
    with TemporaryDirectory() as folder, store.view() as stored:
        scratch = store.copy_of_counted(stored, Path(folder) / "scratch.db")
        try:
            with scratch.transaction() as writing:
                writing.keep_time(KeptTime(UnixMilliseconds(int(_AFTER_ALL * 1000)), False))  # so that it counts all
            fold(scratch, _AFTER_ALL, closing=False, open_=open_)
            ends = stored.early_ends()
            with scratch.view() as again:
                return [
                    difference
                    for survey in stored.surveys().values()
                    for difference in _differences(
                        survey,
                        stored.sealed_period(survey.id),
                        ends[survey.id].last if survey.id in ends else survey.calendar.periods,
                        stored.tallies(survey.id),
                        again.tallies(survey.id),
                    )
                ]
        finally:
            scratch.close()


def _differences(survey: Survey, sealed: int, last: int, stored: Tallies, again: Tallies) -> Iterator[TallyDifference]:
    """last: the last period that counts; of later ones some may have been counted before the survey was ended."""
    tracks = survey.plan.tracks
    for track, number in sorted({*stored, *again}):
        node = tracks[track].node(number)
        if not sealed < node.end <= last:
            continue
        shown = [_tally(tallies, (track, number)) for tallies in (stored, again)]
        if shown[0] != shown[1]:
            yield TallyDifference(survey.id, f"track {track}, node ({node.start}, {node.end}]", *shown)
    for group, period in sorted({*stored.attendance, *again.attendance}):
        if not sealed < period <= last:
            continue
        here = [tallies.attendance.get((group, period)) for tallies in (stored, again)]
        if here[0] != here[1]:
            yield TallyDifference(survey.id, f"group {group}, attendance at period {period}", *map(str, here))


def _tally(tallies: Tallies, key: tuple[TrackNumber, NodeNumber]) -> str:
    if key not in tallies:
        return "nothing"
    return f"{tallies[key].reports} reports, slots {tallies[key].slots.tolist()}"
