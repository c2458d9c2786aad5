"""What tasks hand on besides lots of closings: what opening found out, and what counting a bucket comes to.

Both pass as bytes of canonical MessagePack, through the shuffle to the driver, which adds them up.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from changeling_aggregator.fold.counting import Counted
from changeling_aggregator.store.id_files import IdFile
from changeling_protocol import (
    NodeNumber,
    Refusal,
    StratumNumber,
    SurveyId,
    TrackNumber,
    UnixMilliseconds,
    decode,
    encode,
)
from changeling_statistics import Attendance, NodeTally

At = tuple[int, int]
"""A request: its stream, and its position."""


@dataclass(slots=True)
class Part:
    """What one task found.

    counted: what it adds, without ids; its `refused` has the envelopes that could not be opened. uploads: how many were
    opened, by survey. failed: the surveys that it could not count. along: for requests that hold a closing from a fast
    clock, until when they are needed for all else that is in them, in Unix milliseconds. files: of ids, which it wrote.
    """

    counted: Counted = field(default_factory=lambda: Counted(Counter()))
    uploads: Counter[SurveyId] = field(default_factory=Counter)
    failed: set[SurveyId] = field(default_factory=set)
    along: dict[At, UnixMilliseconds] = field(default_factory=dict)
    files: list[IdFile] = field(default_factory=list)
    judged: Counter[tuple[SurveyId, Refusal]] = field(default_factory=Counter)
    """Closings and reports that were refused: nothing where their survey could not be counted."""

    def add(self, other: "Part") -> None:
        """Add what another task found."""
        mine, more = self.counted, other.counted
        mine.envelopes += more.envelopes
        mine.refused.update(more.refused)
        mine.rubbish += more.rubbish
        for key, tally in more.tallies.items():
            mine.tallies[key] = mine.tallies[key] + tally if key in mine.tallies else tally
        for place, here in more.attendance.items():
            mine.attendance[place] = mine.attendance.get(place, Attendance(0, 0, 0)) + here
        for at, until in more.held.items():
            mine.held[at] = max(until, mine.held.get(at, until))
        for at, until in other.along.items():
            self.along[at] = max(until, self.along.get(at, until))
        self.uploads.update(other.uploads)
        self.judged.update(other.judged)
        self.failed |= other.failed
        self.files += other.files

    def whole(self) -> Counted:
        """What all parts come to, once they are added: without surveys that could not be counted in one of them."""
        counted = self.counted
        for survey in self.failed:
            counted.uncounted[survey] = self.uploads[survey]
        counted.refused.update({key: count for key, count in self.judged.items() if key[0] not in self.failed})
        counted.tallies = {key: tally for key, tally in counted.tallies.items() if key[0] not in self.failed}
        counted.attendance = {key: here for key, here in counted.attendance.items() if key[0] not in self.failed}
        counted.held = {at: max(until, self.along.get(at, until)) for at, until in counted.held.items()}
        return counted

    def packed(self) -> bytes:
        """Its bytes."""
        counted = self.counted
        return encode(
            [
                counted.envelopes,
                [list(at) for at in counted.rubbish],
                [[survey, reason.value, count] for (survey, reason), count in counted.refused.items()],
                [[survey, reason.value, count] for (survey, reason), count in self.judged.items()],
                [[*key, each.reports, each.slots.astype("<i8").tobytes()] for key, each in counted.tallies.items()],
                [[*key, each.heard, each.new, each.missed] for key, each in counted.attendance.items()],
                [[*at, until] for at, until in counted.held.items()],
                [[*at, until] for at, until in self.along.items()],
                [[survey, count] for survey, count in self.uploads.items()],
                sorted(self.failed),
                [list(each) for each in self.files],
            ]
        )

    @classmethod
    def unpacked(cls, packed: bytes) -> "Part":
        """The part in such bytes. Raises MalformedBytes."""
        envelopes, rubbish, refused, judged, tallies, attendance, held, along, uploads, failed, files = decode(packed)
        counted = Counted(
            Counter({(survey, Refusal(reason)): count for survey, reason, count in refused}),
            {
                (survey, TrackNumber(track), NodeNumber(node), StratumNumber(stratum)): NodeTally(
                    reports, np.frombuffer(slots, "<i8").astype(np.int64)
                )
                for survey, track, node, stratum, reports, slots in tallies
            },
            {
                (survey, group, period, StratumNumber(stratum)): Attendance(*counts)
                for survey, group, period, stratum, *counts in attendance
            },
            held={(stream, position): until for stream, position, until in held},
            envelopes=envelopes,
            rubbish=[(stream, position) for stream, position in rubbish],
        )
        return cls(
            counted,
            Counter(dict(uploads)),
            set(failed),
            {(stream, position): until for stream, position, until in along},
            [IdFile(*each) for each in files],
            Counter({(survey, Refusal(reason)): count for survey, reason, count in judged}),
        )
