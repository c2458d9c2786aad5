"""What a fleet's envelopes must come to: tallies, attendance, and refusals; and whether a server shows just that.

Until a closing is sealed, a server may show it with fewer reports than it has counted: it lacks less than the survey's
minimum in each stratum. What is sealed is exact.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from changeling_protocol import (
    Closing,
    MalformedBytes,
    NodeNumber,
    Refusal,
    Report,
    Standing,
    StratumNumber,
    Survey,
    TrackNumber,
)
from changeling_statistics import (
    Attendance,
    GroupClosing,
    Histogram,
    NodeTally,
    PlanNode,
    Tallies,
    counterpart_of,
    series,
)

TallyKey: TypeAlias = tuple[TrackNumber, NodeNumber, StratumNumber]
AttendanceKey: TypeAlias = tuple[int, int, StratumNumber]
"""A group, a period and a stratum."""


@dataclass(slots=True, eq=False)
class Truth:
    """The counts that a server must have once it has folded everything, if nobody else sent it anything.

    survey: its id, in hex. envelopes: how many are sent. told: of these, how many it refuses in its answer, by reason.
    refused: what it counts as refused of the survey, by reason: envelopes, closings or reports.
    tallies: by track, node and stratum. attendance: by group, period and stratum.
    """

    survey: str
    envelopes: int = 0
    told: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    tallies: dict[TallyKey, NodeTally] = field(default_factory=dict)
    attendance: dict[AttendanceKey, Attendance] = field(default_factory=dict)

    def __iadd__(self, other: "Truth") -> "Truth":
        """Add what other envelopes of the same survey must come to."""
        self.envelopes += other.envelopes
        self.told += other.told
        self.refused += other.refused
        for node, tally in other.tallies.items():
            self.tallies[node] = self.tallies[node] + tally if node in self.tallies else tally
        for closing, more in other.attendance.items():
            self.attendance[closing] = self.attendance.get(closing, Attendance()) + more
        return self

    def write(self, path: Path) -> None:
        """Write it as JSON. Raises OSError."""
        content = {
            "survey": self.survey,
            "envelopes": self.envelopes,
            "told": dict(sorted(self.told.items())),
            "refused": dict(sorted(self.refused.items())),
            "tallies": [[*key, each.reports, each.slots.tolist()] for key, each in sorted(self.tallies.items())],
            "attendance": [[*key, each.heard, each.new, each.missed] for key, each in sorted(self.attendance.items())],
        }
        path.write_text(json.dumps(content) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Truth":
        """The truth that `write` wrote. Raises OSError, or MalformedBytes, which names the file."""
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
            return cls(
                str(content["survey"]),
                int(content["envelopes"]),
                Counter(content["told"]),
                Counter(content["refused"]),
                {
                    (TrackNumber(track), NodeNumber(node), StratumNumber(stratum)): NodeTally(
                        reports, np.array(slots, np.int64)
                    )
                    for track, node, stratum, reports, slots in content["tallies"]
                },
                {
                    (group, period, StratumNumber(stratum)): Attendance(heard, new, missed)
                    for group, period, stratum, heard, new, missed in content["attendance"]
                },
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedBytes(f"{path} is no truth that `changeling-sim fleet` wrote") from error


class Adding:
    """Adds up what is accepted, report by report, to a truth that `done` gives."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._symbols: defaultdict[TallyKey, list[int]] = defaultdict(list)
        self.truth = Truth(survey.id.hex())

    def accept(self, group: int, closings: Sequence[Closing], reports: Sequence[Report]) -> None:
        """Count these closings of an entry, with those of the reports that end there."""
        strata = {closing.period: closing.stratum for closing in closings}
        attendance = self.truth.attendance
        for closing in closings:
            key = group, closing.period, closing.stratum
            new, missed = (int(closing.standing == each) for each in (Standing.NEW, Standing.MISSED))
            attendance[key] = attendance.get(key, Attendance()) + Attendance(1, new, missed)
        tracks = self._survey.plan.tracks
        for report in reports:
            if (stratum := strata.get(tracks[report.track].node(report.node).end)) is not None:
                self._symbols[report.track, report.node, stratum].append(report.symbol)

    def refuse(self, reason: Refusal, times: int = 1) -> None:
        """Count a refusal that the survey's status shows."""
        self.truth.refused[reason.value] += times

    def tell(self, reason: Refusal, *, counted: bool = False) -> None:
        """Count an envelope that is refused in the answer to it; and, where that is so, for the survey too."""
        self.truth.told[reason.value] += 1
        if counted:
            self.refuse(reason)

    def done(self) -> Truth:
        """All of it; nothing is added after."""
        tracks = self._survey.plan.tracks
        for key, symbols in self._symbols.items():
            counterpart = counterpart_of(tracks[key[0]].randomizer)
            self.truth.tallies[key] = counterpart.tally(np.array(symbols, np.uint64))
        return self.truth


_CLOSE = 1e-6
"""Two sums of the same figures may differ by so much, relative to the largest of them."""


@dataclass(frozen=True, slots=True)
class TruthRow:
    """A figure that is expected, and what is there."""

    what: str
    expected: float
    found: float
    agrees: bool


def compared(
    truth: Truth, survey: Survey, status: Mapping[str, Any], shown: Mapping[str, Mapping[str, Any]]
) -> list[TruthRow]:
    """Row by row: reports on nodes, entries heard, refusals, and the histograms of each question.

    status: what the server says of the survey; with the refusals where an operator asked. shown: the series of
    questions, by their names; of those that have none yet nothing.
    """
    tallies = _everybody(truth)
    rows = [_of_nodes(tallies, survey, status), _of_closings(tallies, survey, status)]
    if "refused" in status:
        rows += told(truth.refused, Counter(status["refused"]), "refused")
    if all(row.agrees and row.expected == row.found for row in rows[:2]):
        rows += [_of_histograms(tallies, survey, name, status, each) for name, each in shown.items()]
    return rows


def told(expected: Mapping[str, int], found: Mapping[str, int], where: str) -> list[TruthRow]:
    """Refusals by reason. where: begins what each row is about."""
    reasons = sorted(expected.keys() | found.keys())
    counts = [(reason, expected.get(reason, 0), found.get(reason, 0)) for reason in reasons]
    return [
        TruthRow(f"{where}: {reason}", there, here, there == here) for reason, there, here in counts if there or here
    ]


def _everybody(truth: Truth) -> Tallies:
    nodes: dict[PlanNode, NodeTally] = {}
    closings: dict[GroupClosing, Attendance] = {}
    for (track, node, _), tally in truth.tallies.items():
        nodes[track, node] = nodes[track, node] + tally if (track, node) in nodes else tally
    for (group, period, _), here in truth.attendance.items():
        closings[group, period] = closings.get((group, period), Attendance()) + here
    return Tallies(nodes, closings)


def _of_nodes(tallies: Tallies, survey: Survey, status: Mapping[str, Any]) -> TruthRow:
    expected: dict[tuple[int, int], int] = {}
    for (track, number), tally in tallies.items():
        if tally.reports >= survey.minimum:
            expected[track, survey.plan.tracks[track].node(number).end] = tally.reports
    found = {(each["track"], each["end"]): each["reports"] for each in status["nodes"]}
    return _row("reports on nodes", expected, found, survey, status["final_periods"])


def _of_closings(tallies: Tallies, survey: Survey, status: Mapping[str, Any]) -> TruthRow:
    expected: Counter[tuple[int, int]] = Counter()
    for (_, period), here in tallies.attendance.items():
        expected[0, period] += here.heard
    found = {(0, each["period"]): each["heard"] for each in status["closings"]}
    return _row("entries heard at closings", expected, found, survey, status["final_periods"])


def _row(
    what: str,
    expected: Mapping[tuple[int, int], int],
    found: Mapping[tuple[int, int], int],
    survey: Survey,
    final: int,
) -> TruthRow:
    """Compares all that is shown, and all that has to be as it is sealed.

    expected, found: counts by keys, whose second number is the period of a closing. final: the last sealed period.
    """
    there = {key for key in expected if key[1] <= final} | found.keys()
    wrong = False
    for key in there:
        missing = expected.get(key, 0) - found.get(key, 0)
        most = 0 if key[1] <= final else (survey.minimum - 1) * survey.strata * len(survey.plan.groups)
        wrong |= not 0 <= missing <= most
    wanted, counted = (sum(counts.get(key, 0) for key in there) for counts in (expected, found))
    return TruthRow(f"{what}, {len(there)} shown", wanted, counted, agrees=not wrong)


def _of_histograms(
    tallies: Tallies, survey: Survey, name: str, status: Mapping[str, Any], shown: Mapping[str, Any]
) -> TruthRow:
    """The largest difference of a value from that of the same estimate, made here from what is expected.

    name: of the question.
    """
    ends = {(each["track"], each["end"]) for each in status["nodes"]}
    tracks = survey.plan.tracks
    published = {key: tally for key, tally in tallies.items() if (key[0], tracks[key[0]].node(key[1]).end) in ends}
    heard = {each["period"] for each in status["closings"]}
    until = max(1, status["shown_periods"])
    attendance = {key: here for key, here in tallies.attendance.items() if key[1] in heard}
    place = survey.place_of(name)
    about = Tallies(published, attendance).about(survey.plan, place)
    values = {
        each.period: each.estimate.values
        for each in series(survey.about(place), about, until)
        if isinstance(each, Histogram)
    }
    found = {each["period"]: each["values"] for each in shown["series"] if each["values"] is not None}
    most, largest = 0.0, 1.0
    for period in values.keys() | found.keys():
        here = values.get(period, np.full(len(survey.questions[place].answers), np.nan))
        there = np.array(found.get(period, []), float)
        difference = np.abs(here - there).max() if len(there) == len(here) else np.inf
        most, largest = max(most, float(difference)), max(largest, float(np.abs(here).max()))
    of = f" of {name}" if len(survey.questions) > 1 else ""
    return TruthRow(f"histograms{of}, {len(found)} shown: largest difference", 0.0, most, most <= _CLOSE * largest)
