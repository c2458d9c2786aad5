"""Whether a server has counted what a fleet's envelopes must come to: what is expected beside what it shows.

Until a closing is sealed, a server may show it with fewer reports than it has counted: it lacks less than the survey's
minimum in each stratum. What is sealed is exact.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from changeling_protocol import Survey
from changeling_statistics import Attendance, GroupClosing, Histogram, NodeTally, PlanNode, Tallies, series

from .truth import Truth

_CLOSE = 1e-6
"""Two sums of the same figures may differ by so much, relative to the largest of them."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure that is expected, and what is there."""

    what: str
    expected: float
    found: float
    agrees: bool


def compared(truth: Truth, survey: Survey, status: Mapping[str, Any], shown: Mapping[str, Any] | None) -> list[Row]:
    """Row by row: reports on nodes, entries heard, refusals, and histograms.

    status: what the server says of the survey; with the refusals where an operator asked. shown: its series, or None.
    """
    tallies = _everybody(truth)
    rows = [*_of_nodes(tallies, survey, status), *_of_closings(tallies, survey, status)]
    if "refused" in status:
        rows += told(truth.refused, Counter(status["refused"]), "refused")
    if shown is not None and all(row.agrees and row.expected == row.found for row in rows[:2]):
        rows.append(_of_histograms(tallies, survey, status, shown))
    return rows


def told(expected: Mapping[str, int], found: Mapping[str, int], where: str) -> list[Row]:
    """Refusals by reason. where: begins what each row is about."""
    reasons = sorted(expected.keys() | found.keys())
    counts = [(reason, expected.get(reason, 0), found.get(reason, 0)) for reason in reasons]
    return [Row(f"{where}: {reason}", there, here, there == here) for reason, there, here in counts if there or here]


def _everybody(truth: Truth) -> Tallies:
    nodes: dict[PlanNode, NodeTally] = {}
    closings: dict[GroupClosing, Attendance] = {}
    for (track, node, _), tally in truth.tallies.items():
        nodes[track, node] = nodes[track, node] + tally if (track, node) in nodes else tally
    for (group, period, _), here in truth.attendance.items():
        closings[group, period] = closings.get((group, period), Attendance()) + here
    return Tallies(nodes, closings)


def _of_nodes(tallies: Tallies, survey: Survey, status: Mapping[str, Any]) -> Iterator[Row]:
    expected: dict[tuple[int, int], int] = {}
    for (track, number), tally in tallies.items():
        if tally.reports >= survey.minimum:
            expected[track, survey.plan.tracks[track].node(number).end] = tally.reports
    found = {(each["track"], each["end"]): each["reports"] for each in status["nodes"]}
    yield _row("reports on nodes", expected, found, survey, status["final_periods"])


def _of_closings(tallies: Tallies, survey: Survey, status: Mapping[str, Any]) -> Iterator[Row]:
    expected: Counter[tuple[int, int]] = Counter()
    for (_, period), here in tallies.attendance.items():
        expected[0, period] += here.heard
    found = {(0, each["period"]): each["heard"] for each in status["closings"]}
    yield _row("entries heard at closings", expected, found, survey, status["final_periods"])


def _row(
    what: str,
    expected: Mapping[tuple[int, int], int],
    found: Mapping[tuple[int, int], int],
    survey: Survey,
    final: int,
) -> Row:
    """Of all that is shown, and all that has to be as it is sealed.

    expected, found: counts by keys, whose second number is the period of a closing. final: the last sealed period.
    """
    there = {key for key in expected if key[1] <= final} | found.keys()
    wrong = False
    for key in there:
        missing = expected.get(key, 0) - found.get(key, 0)
        most = 0 if key[1] <= final else (survey.minimum - 1) * survey.strata * len(survey.plan.groups)
        wrong |= not 0 <= missing <= most
    wanted, counted = (sum(counts.get(key, 0) for key in there) for counts in (expected, found))
    return Row(f"{what}, {len(there)} shown", wanted, counted, agrees=not wrong)


def _of_histograms(tallies: Tallies, survey: Survey, status: Mapping[str, Any], shown: Mapping[str, Any]) -> Row:
    """The largest difference of a value from that of the same estimate, made here from what is expected."""
    ends = {(each["track"], each["end"]) for each in status["nodes"]}
    tracks = survey.plan.tracks
    published = {key: tally for key, tally in tallies.items() if (key[0], tracks[key[0]].node(key[1]).end) in ends}
    heard = {each["period"] for each in status["closings"]}
    until = max(1, status["shown_periods"])
    attendance = {key: here for key, here in tallies.attendance.items() if key[1] in heard}
    values = {
        each.period: each.estimate.values
        for each in series(survey, Tallies(published, attendance), until)
        if isinstance(each, Histogram)
    }
    found = {each["period"]: each["values"] for each in shown["series"] if each["values"] is not None}
    most, largest = 0.0, 1.0
    for period in values.keys() | found.keys():
        here = values.get(period, np.full(len(survey.answers), np.nan))
        there = np.array(found.get(period, []), float)
        difference = np.abs(here - there).max() if len(there) == len(here) else np.inf
        most, largest = max(most, float(difference)), max(largest, float(np.abs(here).max()))
    return Row(f"histograms, {len(found)} shown: largest difference", 0.0, most, most <= _CLOSE * largest)
