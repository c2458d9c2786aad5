"""What is published of tallies: snapshots of closings, unions of strata, and editions, which anybody can check.

A batch is what the entries of one group and stratum say at one closing: how many were heard is one cell, and on each
node that ends there is another, of so many reports. A snapshot freezes a batch as it is, reports and attendance
together. Of a batch's snapshots each cell has as many as in the one before, or at least the survey's minimum more; so
no single report moves what is shown. Knows no clock: the caller says what is counted by now, and whether the closing is
sealed. docs/mathematics.md, "Snapshots".

Unions of strata are sums of whole numbers: they equal the tallies that would have been counted for the union directly.
Of each, every published part has enough reports. Attendance is of who takes part, which is public, and is given whole.

An edition holds tallies as signed columns. Whoever has a survey, an edition and its files can work every figure out
again, from the tallies alone, and see which of them are not what they should be. Signatures and hashes are
`changeling_protocol`'s.
"""

import csv
import io
import json
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from changeling_protocol import Breakdown, Edition, NodeNumber, StratumNumber, Survey, TrackNumber, count_strata
from numpy.typing import NDArray

from .estimate import Attendance, Counts, GroupClosing, NodeTally, PlanNode, Tallies
from .estimation.releases import releases
from .estimation.solution import Solution
from .randomizers.counterpart import counterpart_of
from .shown import HEARD, Plain, ShownAs, csv_shown, series_shown

Batch: TypeAlias = Hashable
"""Names a group and a stratum, at one closing."""
Cell: TypeAlias = PlanNode | None
"""A node, or None for those who were heard."""
CellCounts: TypeAlias = Mapping[Batch, Mapping[Cell, int]]
"""How many each cell of each batch of a closing has, reports or members; what has none may be left out."""

MINIMUMS = 10
"""A cell is shown before it is sealed only if it has so many times as much as may be left out of it, which is less than
the survey's minimum; so at most one report in as many is left out for good where that is missing as it is sealed."""


def batches_to_show(shown: CellCounts, counted: CellCounts, minimum: int, *, sealed: bool) -> frozenset[Batch]:
    """The batches of a closing of which a snapshot is to be taken now; all others stay as they are shown.

    shown: the batches that are shown, each as of its last snapshot.
    counted: all batches as they are counted by now; no cell has fewer than it is shown with.
    minimum: the survey's, at least 1.
    sealed: whether nothing more will be counted.
    A closing is first shown when each cell that has any has `enough`, or else when it is sealed. A batch that is heard
    of later waits for that, too, and has the minimum in each cell then or is never shown.
    """
    batches = {batch for batch, cells in counted.items() if any(cells.values())}
    if not shown:
        large = all(_moves({}, counted[batch], enough(minimum)) for batch in batches)
        return frozenset(batches if large or sealed else ())
    return frozenset(
        batch
        for batch in batches
        if (batch in shown or sealed)
        and counted[batch] != shown.get(batch)
        and _moves(shown.get(batch, {}), counted[batch], minimum)
    )


def enough(minimum: int) -> int:
    """How many a cell needs to be shown before it is sealed. minimum: the survey's, at least 1."""
    return max(minimum, MINIMUMS * (minimum - 1))


def _moves(before: Mapping[Cell, int], after: Mapping[Cell, int], least: int) -> bool:
    """True if each cell has as many as before, or at least so many more."""
    return all((more := count - before.get(cell, 0)) == 0 or more >= least for cell, count in after.items())


Flags: TypeAlias = NDArray[np.bool_]
NodeCell: TypeAlias = tuple[TrackNumber, NodeNumber, StratumNumber]
"""A node of a survey's plan, and the stratum of the entries that reported on it."""
ClosingCell: TypeAlias = tuple[int, int, StratumNumber]
"""A group, a period at which a node ends, and the stratum of the entries that were heard there."""


def select(breakdowns: Sequence[Breakdown], told: Mapping[str, Collection[str]]) -> list[StratumNumber]:
    """The strata that have one of the values told for each of the breakdowns told, rising.

    breakdowns: those that the survey declares.
    told: values by the name of their breakdown; a breakdown that is not named may have any value.
    Raises ValueError, which names what is not declared; and if no value is told for a name.

    >>> system, channel = Breakdown("system", ("linux", "mac")), Breakdown("channel", ("release", "beta"))
    >>> select([system, channel], {"channel": ["beta"]})
    [1, 3]
    """
    declared = {each.name: each.values for each in breakdowns}
    if unknown := sorted(told.keys() - declared):
        raise ValueError(f"the survey declares the breakdowns {sorted(declared)}, not {unknown}")
    for name, values in told.items():
        if not values or not set(values) <= set(declared[name]):
            raise ValueError(f"{name!r} is one or more of {list(declared[name])}, got {sorted(values)}")
    chosen = [
        [place for place, value in enumerate(each.values) if each.name not in told or value in told[each.name]]
        for each in breakdowns
    ]
    numbers = np.arange(count_strata(breakdowns)).reshape([len(each.values) for each in breakdowns] or [1])
    return [StratumNumber(number) for number in (numbers[np.ix_(*chosen)] if chosen else numbers).ravel().tolist()]


def withheld(reports: Counts, minimum: int) -> Flags:
    """Mask of the cells of a node that may be shown only along with all the others, shape (cells,).

    reports: of each cell, shape (cells,).
    minimum: the fewest reports, at least 1, that anything published may be about.
    These are the cells with fewer reports than the minimum, but for those without any. If they have fewer all together,
    the smallest of the others is withheld with them: else the whole less all the others would show them.
    """
    small: Flags = (reports > 0) & (reports < minimum)
    others = np.flatnonzero(reports >= minimum)
    if len(others) and 0 < reports[small].sum() < minimum:
        small[others[np.argmin(reports[others])]] = True
    return small


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Whole numbers by cell; the cells of one node, or of one closing, lie side by side.

    keys: the nodes or closings, N of them.
    starts: where the cells of each begin, shape (N,).
    stratum: of each cell, shape (cells,).
    counts: of each cell, shape (cells, what is counted).
    """

    keys: tuple[tuple[int, int], ...]
    starts: NDArray[np.intp]
    stratum: NDArray[np.intp]
    counts: Counts

    def any_of(self, cells: Flags) -> Flags:
        """Mask of the nodes or closings that have one of these cells, shape (N,)."""
        return np.logical_or.reduceat(cells, self.starts)

    def sums(self, cells: Flags, keys: Flags) -> tuple[list[tuple[int, int]], Counts]:
        """The sums over these cells for these nodes or closings, each of which has one of the cells."""
        sizes = np.diff(self.starts, append=len(self.stratum))
        rows = np.flatnonzero(cells & np.repeat(keys, sizes))
        number = np.repeat(np.arange(len(self.keys)), sizes)[rows]
        begins = np.flatnonzero(np.diff(number, prepend=-1))
        total: Counts = np.add.reduceat(self.counts[rows], begins, axis=0) if len(rows) else self.counts[:0]
        return [self.keys[at] for at in np.flatnonzero(keys)], total


class StratifiedTallies:
    """All tallies of a survey by stratum.

    nodes: the tally of each cell that has reports.
    attendance: of each group, closing and stratum that somebody was heard of.
    minimum: the fewest reports that anything published may be about; 1 to publish everything.
    """

    def __init__(
        self, nodes: Mapping[NodeCell, NodeTally], attendance: Mapping[ClosingCell, Attendance], minimum: int
    ) -> None:
        self._minimum = max(1, minimum)
        self._attendance = _rows({key: [each.heard, each.new, each.missed] for key, each in attendance.items()})
        by_track = groupby(sorted(nodes), key=itemgetter(0))
        self._tracks = [
            _rows({cell: [nodes[cell].reports, *nodes[cell].slots.tolist()] for cell in cells}) for _, cells in by_track
        ]
        self._withheld = [_withheld(rows, self._minimum) for rows in self._tracks]

    def union(self, strata: Collection[StratumNumber]) -> Tallies:
        """The tallies of the entries of these strata, which may be published.

        A node is there if it has at least the minimum of reports, and none of its cells is withheld; or the union
        leaves out no cell with reports. So whatever is made of unions, by adding and subtracting them, is about at
        least so many reports, or none. docs/mathematics.md, "Unions of strata".
        """
        nodes: dict[tuple[TrackNumber, NodeNumber], NodeTally] = {}
        for rows, hidden in zip(self._tracks, self._withheld, strict=True):
            chosen = _chosen(rows, strata)
            shown = rows.any_of(chosen) & ~(rows.any_of(chosen & hidden) & rows.any_of(~chosen))
            keys, sums = rows.sums(chosen, shown)
            for (track, node), total in zip(keys, sums, strict=True):
                if (reports := int(total[0])) >= self._minimum:
                    nodes[TrackNumber(track), NodeNumber(node)] = NodeTally(reports, total[1:])
        chosen = _chosen(self._attendance, strata)
        closings, sums = self._attendance.sums(chosen, self._attendance.any_of(chosen))
        return Tallies(nodes, {key: Attendance(*row) for key, row in zip(closings, sums.tolist(), strict=True)})


def _rows(counts: Mapping[tuple[int, int, StratumNumber], Sequence[int]]) -> _Rows:
    cells = sorted(counts)
    keys = [cell[:2] for cell in cells]
    starts = [at for at, key in enumerate(keys) if at == 0 or key != keys[at - 1]]
    return _Rows(
        tuple(keys[at] for at in starts),
        np.array(starts, np.intp),
        np.array([cell[2] for cell in cells], np.intp),
        np.array([counts[cell] for cell in cells], np.int64).reshape(len(cells), -1 if cells else 0),
    )


def _withheld(rows: _Rows, minimum: int) -> Flags:
    nodes = np.split(rows.counts[:, 0], rows.starts[1:])
    return np.concatenate([withheld(reports, minimum) for reports in nodes])


def _chosen(rows: _Rows, strata: Collection[StratumNumber]) -> Flags:
    return np.isin(rows.stratum, np.array(sorted(strata), np.intp))


CONFIDENCE = 0.95
"""The level of the bands in an edition's files."""
SERIES = {"series": "online", "retrospective": "retrospective"}
"""The methods of an edition's series, by the name of their files."""
CLOSE = 1e-10
"""So much of the entries that a survey is about may two machines differ in the same figure."""


class WrongFigure(NamedTuple):
    """A figure that is not what the tallies give.

    file: its file. period: the end of the period it is about; None where it is about none.
    place: its name there, such as `values[2]`. stated, recomputed: what the file says, and what the tallies give.
    """

    file: str
    period: int | None
    place: str
    stated: object
    recomputed: object


def edition_columns(survey: Survey, tallies: Tallies) -> dict[str, tuple[tuple[bytes, ...], ...]]:
    """The columns of tallies as an edition has them: its `tracks` and its `groups`."""
    tracks = []
    for number in range(len(survey.plan.tracks)):
        nodes = sorted(node for track, node in tallies.nodes if track == number)
        here = [tallies.nodes[TrackNumber(number), node] for node in nodes]
        slots = np.concatenate([each.slots for each in here] or [np.zeros(0, np.int64)])
        tracks.append((_column(nodes), _column([each.reports for each in here]), _column(slots)))
    groups = []
    for group in range(len(survey.plan.groups)):
        periods = sorted(period for of, period in tallies.attendance if of == group)
        met = [tallies.attendance[group, period] for period in periods]
        counts = ([getattr(each, name) for each in met] for name in ("heard", "new", "missed"))
        groups.append((_column(periods), *map(_column, counts)))
    return {"tracks": tuple(tracks), "groups": tuple(groups)}


def tallies_in(survey: Survey, edition: Edition) -> Tallies:
    """The tallies in an edition. Raises ValueError where they are none of this survey's plan."""
    plan = survey.plan
    if len(edition.tracks) != len(plan.tracks) or len(edition.groups) != len(plan.groups):
        raise ValueError("the edition has other tracks and groups than the survey")
    nodes: dict[PlanNode, NodeTally] = {}
    for number, (track, columns) in enumerate(zip(plan.tracks, edition.tracks, strict=True)):
        numbers, reports, slots = map(_numbers, columns)
        sums = slots.reshape(len(numbers), counterpart_of(track.randomizer).slots)
        if not (len(reports) == len(numbers) and all(1 <= each <= track.count for each in numbers)):
            raise ValueError(f"track {number} has nodes that are none of its own")
        for node, count, total in zip(numbers.tolist(), reports.tolist(), sums, strict=True):
            nodes[TrackNumber(number), NodeNumber(node)] = NodeTally(count, total)
    attendance: dict[GroupClosing, Attendance] = {}
    for group, closings in enumerate(edition.groups):
        for period, *counts in zip(*(_numbers(each).tolist() for each in closings), strict=True):
            if not 1 <= period <= survey.calendar.periods:
                raise ValueError(f"group {group} has a closing that is none of the survey's: {period}")
            attendance[group, period] = Attendance(*counts)
    return Tallies(nodes, attendance)


def edition_files(survey: Survey, tallies: Tallies, *, revision: int, last: int, final: int) -> dict[str, bytes]:
    """The files of an edition by their names: figures of all periods that are shown, as JSON and as CSV.

    Of a survey with several questions each has files of its own: `series-0.json` is about the first.

    revision, last, final: as in `Edition`. A pure function of all of these, but for how machines round.
    """
    return {
        f"{name}.{form}": encode(answer).encode()
        for name, answer in _answers(survey, tallies, revision, last, final)
        for form, encode in (("json", _json), ("csv", csv_shown))
    }


def verify_files(survey: Survey, edition: Edition, files: Mapping[str, bytes]) -> list[WrongFigure]:
    """Figures in an edition's files that are not what its tallies give; none where all is well.

    files: by their names. One that the edition has and that is not here is a difference, and so is one too many.
    Raises ValueError where the tallies are none of this survey's.
    """
    tallies = tallies_in(survey, edition)
    close = CLOSE * max(1, *(each.heard for each in tallies.attendance.values()), 1)
    known, found = dict(files), list[WrongFigure]()
    for name, answer in _answers(survey, tallies, edition.revision, edition.last, edition.final):
        found += _in_file(f"{name}.json", answer, known, close)
        found += _in_file(f"{name}.csv", answer, known, close)
    return found + [WrongFigure(name, None, "the file", "is there", "is none of an edition") for name in known]


def _answers(survey: Survey, tallies: Tallies, revision: int, last: int, final: int) -> Iterator[tuple[str, Plain]]:
    shown = max((period for _, period in tallies.attendance), default=0)
    graphs = [releases(survey.about(at), tallies.about(survey.plan, at)) for at in range(len(survey.questions))]
    for question, (graph, other) in enumerate(zip(graphs, survey.freezing, strict=True)):
        named = f"-{question}" if len(survey.questions) > 1 else ""
        for name, method in SERIES.items():
            showing, later = ShownAs(method, HEARD, CONFIDENCE, last, revision, final), method == "retrospective"
            frozen = None if other is None else Solution(graphs[other], later)
            yield f"{name}{named}", series_shown(Solution(graph, later), shown, showing, frozen=frozen)


def _json(answer: Plain) -> str:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _in_file(name: str, answer: Plain, files: dict[str, bytes], close: float) -> Iterator[WrongFigure]:
    stated = files.pop(name, None)
    if stated is None:
        yield WrongFigure(name, None, "the file", "is missing", "belongs to the edition")
        return
    try:
        text = stated.decode()
        if name.endswith(".csv"):
            yield from _in_rows(name, csv_shown(answer), text, close)
        else:
            yield from _in_answer(name, answer, json.loads(text), close)
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        yield WrongFigure(name, None, "the file", f"cannot be read: {error}", "can be")


def _in_answer(name: str, answer: Plain, stated: Plain, close: float) -> Iterator[WrongFigure]:
    rows, others = answer["series"], stated["series"]
    head, stated_head = ({key: each for key, each in of.items() if key != "series"} for of in (answer, stated))
    for place, one, other in _unlike(head, stated_head, close):
        yield WrongFigure(name, None, place, other, one)
    if len(rows) != len(others):
        yield WrongFigure(name, None, "series", f"{len(others)} periods", f"{len(rows)} periods")
    for row, stated_row in zip(rows, others, strict=False):
        for place, one, other in _unlike(row, stated_row, close):
            yield WrongFigure(name, row["period"], place, other, one)


def _in_rows(name: str, text: str, stated: str, close: float) -> Iterator[WrongFigure]:
    rows, others = (list(csv.DictReader(io.StringIO(each))) for each in (text, stated))
    if len(rows) != len(others):
        yield WrongFigure(name, None, "rows", len(others), len(rows))
    for row, stated_row in zip(rows, others, strict=False):
        cells, stated_cells = ({key: _cell(each) for key, each in of.items()} for of in (row, stated_row))
        for place, one, other in _unlike(cells, stated_cells, close):
            yield WrongFigure(name, int(row["period"]), f"{place} of {row['answer']}", other, one)


def _cell(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _unlike(one: Any, other: Any, close: float, place: str = "") -> Iterator[tuple[str, object, object]]:
    """The places at which two values differ, with both; numbers that are as close as that do not."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            at = f"{place}.{key}" if place else str(key)
            yield from _unlike(one.get(key), other.get(key), close, at)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (this, that) in enumerate(zip(one, other, strict=True)):
            yield from _unlike(this, that, close, f"{place}[{number}]")
    elif _is_number(one) and _is_number(other):
        if not abs(one - other) <= close:
            yield place, one, other
    elif one != other or type(one) is not type(other):
        yield place, one, other


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _column(numbers: Any) -> bytes:
    return np.asarray(numbers, "<i8").tobytes()


def _numbers(column: bytes) -> Any:
    return np.frombuffer(column, "<i8").astype(np.int64)
