"""Figures as they are shown: plain numbers with names, for JSON and CSV, the same wherever they are worked out.

A standard error is None where its variance, itself an unbiased estimate, came out below zero; an interval never is. A
period that the nodes do not identify has no values, and the node that is missing.

Beside them stands a test of whether the tallies are possible at all, which honest devices fail once in a thousand
times, whatever they answer: each count among n reports lies between binomials of n and the least and the most that its
symbol's probability can be, and the smallest p-value is multiplied by how many were asked (Bonferroni). Tallies that
pass may be false all the same.

An edition holds tallies as signed columns, and such figures in files. Whoever has a survey, an edition and its files
can work every figure out again, from the tallies alone, and see which of them are not what they should be. Signatures
and hashes are `changeling_protocol`'s.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isnan
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from changeling_protocol import Edition, Node, NodeNumber, Randomizer, Survey, TrackNumber, format_instant

from .estimate import Attendance, Counts, Floats, GroupClosing, NodeTally, PlanNode, Tallies
from .estimation.figures import Figures, false_entries, histogram_figures
from .estimation.releases import Releases, UsedNode, releases
from .estimation.solution import Gap, Smoothing, Solution
from .randomizers.counted import CountedCounterpart
from .randomizers.counterpart import counterpart_of

FALSE_ALARMS = 1e-3
"""How often a survey of honest devices is flagged at most."""
FAR = 2.5
"""Counts that are off by fewer standard deviations have tails above the rate, so they are left out; at 3 some have not,
such as that of a symbol which was to come 8.8 times and never did."""
MOST_SYMBOLS = 4096
MOST_NAMED = 10


@lru_cache(maxsize=8)
def diagnosed(releases: Releases) -> Mapping[str, Any]:
    """The test of all nodes of a release graph, in plain values.

    The p-value says how likely honest devices make a count as strange as the strangest, at most. Nodes whose tallies
    are sums cannot be tested. The suspects are the strangest of the nodes that flag the survey, at most MOST_NAMED,
    each with the p-value of the whole survey if it were its only node.
    """
    strange: list[tuple[float, UsedNode]] = []
    asked = tested = 0
    for randomizer, edges in releases.by_randomizer:
        rates = _rates(randomizer)
        if rates is None:
            continue
        tallies = [releases.tallies[edge] for edge in edges.tolist()]
        counts = np.concatenate([tally.slots for tally in tallies]).reshape(len(tallies), -1)
        tails = _tails(counts, np.array([tally.reports for tally in tallies], np.int64), *rates)
        tested += len(edges)
        asked += 2 * counts.size
        flagged = np.flatnonzero(tails < FALSE_ALARMS)
        strange += [(float(tails[at]), releases.nodes[edges[at]]) for at in flagged.tolist()]
    strange.sort(key=lambda each: each[0])
    p_value = min(1.0, strange[0][0] * asked) if strange else 1.0
    return {
        "impossible": p_value < FALSE_ALARMS,
        "p_value": p_value,
        "false_alarm_rate": FALSE_ALARMS,
        "tested_nodes": tested,
        "untested_nodes": len(releases) - tested,
        "suspects": [
            {"track": used.track, "start": used.node.start, "end": used.node.end, "p_value": tail * asked}
            for tail, used in strange[:MOST_NAMED]
            if tail * asked < FALSE_ALARMS
        ],
    }


def _tails(counts: Counts, reports: Counts, least: Floats, most: Floats) -> Floats:
    """The smallest tail probability of each node, of its counts, shape (nodes,); 1 where none is far out.

    counts: shape (nodes, symbols). reports: shape (nodes,). least, most: q and p, shape (symbols,).
    """
    from scipy.special import bdtr, bdtrc

    tails = np.ones(len(counts))
    n = reports[:, None]
    far = FAR * np.sqrt(n)
    low = counts < n * least - far * np.sqrt(least * (1 - least))
    high = counts > n * most + far * np.sqrt(most * (1 - most))
    for outliers, rate, tail, shift in ((low, least, bdtr, 0), (high, most, bdtrc, 1)):
        node, symbol = np.nonzero(outliers)
        chances = tail(counts[node, symbol] - shift, reports[node], rate[symbol])
        np.minimum.at(tails, node, chances)
    return tails


@lru_cache(maxsize=256)
def _rates(randomizer: Randomizer) -> tuple[Floats, Floats] | None:
    """The least and the most that each symbol's probability can be, shape (symbols,); None where tallies are sums."""
    counterpart = counterpart_of(randomizer)
    if not isinstance(counterpart, CountedCounterpart) or randomizer.symbols > MOST_SYMBOLS:
        return None
    if counterpart.slots != randomizer.symbols:
        return None
    chances = counterpart.probabilities
    return chances.min(0), chances.max(0)


Plain: TypeAlias = dict[str, Any]
"""Names, and under each what JSON holds."""
HEARD = "heard"
YES = 1
"""The place of "yes", that an entry is frozen, among the answers of a freezing question."""


@dataclass(frozen=True, slots=True)
class ShownAs:
    """The circumstances that figures are shown in.

    method: online, retrospective or smoothed. population: `heard` at the last closing, or all who ever `enrolled`.
    confidence: the level of intervals; None for none.
    last: the last period that counts. revision: how often what is shown has changed.
    final: the period up to which all is shown for good.
    freezing: of `freezing_shown`, where the survey asks the freezing question.
    """

    method: str
    population: str
    confidence: float | None
    last: int
    revision: int
    final: int
    freezing: Mapping[int, Plain] | None = None


def head_shown(solution: Solution, nodes: Sequence[UsedNode], showing: ShownAs) -> Plain:
    """The head of every answer: what was asked, of whom, at what loss, and the nodes behind the figures."""
    survey = solution.releases.survey
    drift = {"drift": solution.drifts.tolist()} if isinstance(solution, Smoothing) else {}
    return {
        "survey": survey.id.hex(),
        "question": survey.question,
        "answers": list(survey.answers),
        "epsilon": float(survey.epsilon),
        "last_period": showing.last,
        "revision": showing.revision,
        "method": showing.method,
        "population": showing.population,
        "biased": isinstance(solution, Smoothing),
        "confidence": showing.confidence,
        "diagnostics": dict(diagnosed(solution.releases)),
        "nodes": [
            {
                "track": used.track,
                "start": used.node.start,
                "end": used.node.end,
                "reports": used.reports,
                "sealed": used.node.end <= showing.final,
            }
            for used in nodes
        ],
        **drift,
    }


def freezing_shown(figures: Figures, showing: ShownAs) -> Mapping[int, Plain]:
    """The entries that have made a change which is not counted, which is how far freezing moves any count at most.

    It moves a change since any earlier time by no more, as these entries stand still from then on.

    figures: of the freezing question's histograms.
    Returns, by period and in entries, an unbiased estimate and, if intervals are wanted, the upper end of its interval,
    by which the question's own noise is taken into account. docs/mathematics.md, "The freezing question".
    """
    if showing.population == HEARD:
        figures = figures.of_heard()
    values = figures.values[:, YES]
    ends = None if showing.confidence is None else figures.intervals(showing.confidence)[:, YES, 1]
    return {
        span.end: {"entries": float(values[at]), "bound": None if ends is None else float(ends[at])}
        for at, span in enumerate(figures.spans)
    }


def series_shown(solution: Solution, until: int, showing: ShownAs, *, frozen: Solution | None = None) -> Plain:
    """The histograms of the periods 1 to `until`, with their head.

    frozen: of the freezing question about this one, if it is asked.
    Raises ValueError outside the calendar.
    """
    figures, gaps = histogram_figures(solution, until)
    if frozen is not None:
        showing = replace(showing, freezing=freezing_shown(histogram_figures(frozen, until)[0], showing))
    return many_shown(solution, until, figures, gaps, showing)


def many_shown(
    solution: Solution,
    until: int,
    figures: Figures,
    gaps: Sequence[Gap],
    showing: ShownAs,
    *,
    windows: bool = False,
    covariance: bool = False,
) -> Plain:
    """Figures of many spans that end by `until`, with their head; arguments as for `rows_shown`."""
    rows = rows_shown(solution, figures, showing, windows=windows, covariance=covariance)
    rows += [_gap(solution.releases.survey, each, windows) for each in gaps]
    rows.sort(key=lambda row: row.get("until") or row.get("period") or 0)
    nodes = list(solution.releases.nodes) if rows else []
    if not solution.retrospective:
        nodes = [used for used in nodes if used.node.end <= until]
    return {**head_shown(solution, nodes, showing), "series": rows}


def rows_shown(
    solution: Solution, figures: Figures, showing: ShownAs, *, windows: bool = False, covariance: bool = False
) -> list[Plain]:
    """A row for each span of the figures. windows: whether they are changes."""
    of_heard, summed = showing.population == HEARD, figures.summed
    if of_heard:
        figures = figures.of_heard()
    ends: dict[str, Any] = {}
    if showing.confidence is not None:
        ends["intervals"] = figures.intervals(showing.confidence).tolist()
        ends["simultaneous"] = figures.intervals(showing.confidence, together=True).tolist()
    needed = false_entries(figures.influence, figures.entries)
    values, errors, bounds = (_known(each) for each in (figures.values, figures.standard_errors, figures.bounds))
    rows = []
    for at, span in enumerate(figures.spans):
        enrolled, heard = int(figures.enrolled[at]), int(figures.heard[at])
        row = {
            **_when(solution.releases.survey, span, windows),
            "values": values[at],
            "standard_errors": errors[at],
            "upper_bound": bool(figures.upper_bound[at]),
            "provisional": bool(figures.known_until[at] > showing.final),
            "entries": int(figures.entries[at]),
            "enrolled": enrolled,
            "heard": heard,
            "response_rate": heard / enrolled if enrolled else 1.0,
            "bounds": bounds[at],
            "false_entries": int(needed[at]),
            **{name: each[at] for name, each in ends.items()},
            **({} if showing.freezing is None else {"freezing": showing.freezing.get(span.end)}),
        }
        if covariance:
            factor = float(figures.heard[at] / summed[at]) if of_heard else 1.0
            row["covariance"] = (solution.estimate(span.end, span.start).covariance * factor**2).tolist()
        rows.append(row)
    return rows


def _gap(survey: Survey, gap: Gap, windows: bool) -> Plain:
    missing = gap.missing and {"track": gap.missing.track, "start": gap.missing.node.start, "end": gap.missing.node.end}
    return {**_when(survey, gap.span, windows), "values": None, "missing": missing}


def _when(survey: Survey, span: Node, windows: bool) -> Plain:
    if windows:
        return {"after": span.start, "until": span.end}
    return {"period": span.end, "time": format_instant(survey.calendar.time(span.end))}


def _known(figures: Any) -> Any:
    """Nested lists, with None for nan."""
    return _nones(figures.tolist()) if np.isnan(figures).any() else figures.tolist()


def _nones(nested: Any) -> Any:
    if isinstance(nested, list):
        return [_nones(each) for each in nested]
    return None if isnan(nested) else nested


_COLUMNS = ("upper_bound", "provisional", "entries", "enrolled", "heard", "false_entries")


def csv_shown(answer: Mapping[str, Any]) -> str:
    """An answer as CSV: a row for each estimate and answer, without the nodes and covariances."""
    estimates = answer.get("series", [answer])
    when = ("after", "until") if any("after" in each for each in estimates) else ("period", "time")
    ends = [name for name in ("intervals", "simultaneous", "bounds") if any(name in each for each in estimates)]
    frozen = ("entries", "bound") if any("freezing" in each for each in estimates) else ()
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(
        [*when, "answer", "population", "estimate", "standard_error"]
        + [f"{name}_{side}" for name in ends for side in ("low", "high")]
        + [*_COLUMNS, "epsilon", *(f"freezing_{name}" for name in frozen)]
    )
    for each in estimates:
        for at, name in enumerate(answer["answers"]):
            figures = [each["values"] and each["values"][at], (each.get("standard_errors") or {at: None})[at]]
            sides = [side for end in ends for side in (each[end][at] if end in each else (None, None))]
            rest = [each.get(column) for column in _COLUMNS]
            times = [each[column] for column in when]
            told = [(each.get("freezing") or {}).get(name) for name in frozen]
            writer.writerow([*times, name, answer["population"], *figures, *sides, *rest, answer["epsilon"], *told])
    return written.getvalue()


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
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError, csv.Error) as error:
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
