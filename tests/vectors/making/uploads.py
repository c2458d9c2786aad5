"""The plaintext of uploads, byte by byte, and their lengths."""

from collections.abc import Iterator
from itertools import pairwise

from changeling_protocol import (
    Closing,
    Node,
    NodeNumber,
    Report,
    Standing,
    StratumNumber,
    TrackNumber,
    closings,
    encode_upload,
    upload_bytes,
)

from ...protocol.examples import AUTHORITY, PINNED
from .examples import SURVEYS
from .notation import Case


def cases() -> list[Case]:
    """Uploads of every group of some surveys, then lengths over many spans."""
    return [*_uploads(), *_lengths()]


def _uploads() -> Iterator[Case]:
    for name in ("mixed", "joint", "closed", "states", "strata", "time-bounded"):
        survey = SURVEYS[name]
        last = survey.calendar.periods
        for group, span in enumerate(
            [Node(0, min(last, 64)), Node(2, 6), Node(last - 1, last)][: len(survey.plan.groups)]
        ):
            answered = closings(survey.plan, span.start, span.end)
            answered = answered[::2] if len(answered) > 1 else answered  # some are not answered
            rows = [
                Closing(period, bytes(range(i, i + 16)), Standing(i % 3), StratumNumber(257 * i))
                for i, period in enumerate(answered)
            ]
            reports = [
                Report(track, node, (7 * i + 1) % each.randomizer.symbols)
                for track, each in survey.plan.numbered(group)
                for i, node in enumerate(map(NodeNumber, range(1, each.count + 1)))
                if each.node(node).end in answered and (each.reported is None or i % 2)
            ]
            yield {
                "kind": "upload",
                "survey": survey.signed_by(AUTHORITY).hex(),
                "authority": [key.hex() for key in PINNED],
                "group": group,
                "span": [span.start, span.end],
                "closings": [
                    {"period": c.period, "id": c.id.hex(), "standing": c.standing.name.lower(), "stratum": c.stratum}
                    for c in rows
                ],
                "reports": [[TrackNumber(r.track), r.node, str(r.symbol)] for r in reports],
                "plaintext": encode_upload(survey.plan, group, span, rows, reports).hex(),
            }


def _lengths() -> Iterator[Case]:
    for name in ("hierarchy", "mixed", "joint", "closed", "time-bounded"):
        survey = SURVEYS[name]
        last = survey.calendar.periods
        spans = [Node(0, last), *(Node(*each) for each in pairwise(sorted({0, 1, 3, last - 2, last})))]
        yield {
            "kind": "lengths",
            "survey": survey.signed_by(AUTHORITY).hex(),
            "authority": [key.hex() for key in PINNED],
            "lengths": [[span.start, span.end, upload_bytes(survey.plan, span)] for span in spans],
        }
