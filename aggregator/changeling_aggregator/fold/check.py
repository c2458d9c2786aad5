"""Counting the kept log again, in memory, and comparing.

A node that is not sealed must have the tally that the log gives, and a closing its attendance: their envelopes are all
kept, and so are the keys to them.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from changeling_protocol import NodeNumber, SurveyId, TrackNumber
from changeling_statistics import Attendance, NodeTally, PlanNode, Tallies

from ..opening import Open, open_requests
from ..store import ClosingKey, Store, StoredSurvey, View, readable
from .counting import count
from .ids import merged_ids

_REQUESTS_AT_ONCE = 500
_MOST_PIECES = 16
"""The ids of a closing are kept in so many pieces, which then become one."""
_K = TypeVar("_K")
_V = TypeVar("_V", NodeTally, Attendance)


@dataclass(frozen=True, slots=True)
class TallyDifference:
    """A node or closing, in words, whose count differs. stored, again: as stored, and as counted again."""

    survey: SurveyId
    what: str
    stored: str
    again: str


def check(store: Store, open_: Open = open_requests) -> list[TallyDifference]:
    """Where counting the log again comes to something else than is stored. Writes nothing. Raises what a fold raises.

    open_: opens requests, here or in other processes.
    """
    with store.view() as view:
        stored = readable(view.surveys())
        again = _counted_again(view, open_, stored)
        return [
            difference
            for id_, each in stored.items()
            for difference in _differences(each, view.tallies(id_), again[id_])
        ]


def _counted_again(view: View, open_: Open, stored: Mapping[SurveyId, StoredSurvey]) -> dict[SurveyId, Tallies]:
    """The tallies of each survey, of all that is kept of what the fold has counted."""
    surveys, keys = {id_: each.survey for id_, each in stored.items()}, view.private_keys()
    nodes: dict[SurveyId, dict[PlanNode, NodeTally]] = {id_: {} for id_ in surveys}
    closings: dict[SurveyId, dict[tuple[int, int], Attendance]] = {id_: {} for id_ in surveys}
    seen: dict[ClosingKey, list[bytes]] = {}

    def before(wanted: Mapping[ClosingKey, bytes]) -> Iterable[tuple[ClosingKey, bytes]]:
        return ((key, piece) for key in wanted for piece in seen.get(key, ()))

    requests = view.kept_requests(counted=True)
    while some := [*islice(requests, _REQUESTS_AT_ONCE)]:
        counted = count(some, open_([each.body for each in some], surveys, keys), stored, before)
        for (survey, track, node, _), tally in counted.tallies.items():
            _add(nodes[survey], (track, node), tally)
        for (survey, group, period, _), here in counted.attendance.items():
            _add(closings[survey], (group, period), here)
        for key, ids in counted.ids.items():
            pieces = seen.setdefault(key, [])
            pieces.append(ids)
            if len(pieces) > _MOST_PIECES:
                seen[key] = [merged_ids(pieces)]
    return {id_: Tallies(nodes[id_], closings[id_]) for id_ in surveys}


def _add(sums: MutableMapping[_K, _V], key: _K, more: _V) -> None:
    sums[key] = sums[key] + more if key in sums else more


def _differences(of: StoredSurvey, stored: Tallies, again: Tallies) -> Iterator[TallyDifference]:
    """Of periods after the last that counts some may have been counted before the survey was ended: they are left."""
    survey, sealed, last = of.survey, of.sealed, of.last
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
