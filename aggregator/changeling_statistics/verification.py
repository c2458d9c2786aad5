"""Editions: tallies as signed columns, the files of figures that are made of them, and checking such files.

Whoever has a survey, an edition and its files can work every figure out again, from the tallies alone, and see which of
them are not what they should be. Signatures and hashes are `changeling_protocol`'s.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from changeling_protocol import Edition, NodeNumber, Survey, TrackNumber

from .estimate import Attendance, GroupClosing, NodeTally, PlanNode, Tallies
from .estimation.releases import releases
from .estimation.solution import Solution
from .randomizers.counterpart import counterpart_of
from .shown import HEARD, Plain, ShownAs, csv_shown, series_shown

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
