"""What a fleet's envelopes must come to: tallies, attendance, and refusals by reason; added up as they are made."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
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
from changeling_statistics import Attendance, NodeTally, counterpart_of

TallyKey: TypeAlias = tuple[TrackNumber, NodeNumber, StratumNumber]
AttendanceKey: TypeAlias = tuple[int, int, StratumNumber]
"""A group, a period and a stratum."""


@dataclass(slots=True, eq=False)
class Truth:
    """What a server must have counted once it has folded everything, if nobody else sent it anything.

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
        """What `write` wrote. Raises OSError, or MalformedBytes, which names the file."""
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

    def done(self) -> Truth:
        """All of it; nothing is added after."""
        tracks = self._survey.plan.tracks
        for key, symbols in self._symbols.items():
            counterpart = counterpart_of(tracks[key[0]].randomizer)
            self.truth.tallies[key] = counterpart.tally(np.array(symbols, np.uint64))
        return self.truth
