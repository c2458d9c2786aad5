"""What a test sees of an upload: it opens what a real server only counts."""

from collections.abc import Iterator
from dataclasses import dataclass

from changeling_protocol import (
    CLOSING_ID_BYTES,
    MalformedBytes,
    Node,
    NodeNumber,
    Report,
    Survey,
    SurveyId,
    Track,
    TrackNumber,
    closings,
    column_bytes,
    decode_upload,
    symbol_bytes,
)

from ..wording import said


@dataclass(frozen=True, slots=True)
class ReceivedReport:
    """One report that a fake server was sent.

    survey: the survey's id. node: the periods (start, end] that it is about. closing: the id of the answer that it came
    with, 16 bytes: another for each entry and period, the same when it is sent again.
    track, symbol: as the protocol has them. says: what it says, in words, such as "from tea to coffee".
    """

    survey: SurveyId
    node: Node
    closing: bytes
    track: int
    symbol: int
    says: str


def received(survey: Survey, plaintext: bytes) -> list[ReceivedReport]:
    """The reports in an upload, in the order of their nodes' ends. Raises MalformedBytes."""
    upload = decode_upload(plaintext)
    if not 0 <= upload.group < len(survey.plan.groups):
        raise MalformedBytes("a group of another plan")
    if column_bytes(survey.plan, upload.group, upload.span) != (len(upload.closings), *map(len, upload.symbols)):
        raise MalformedBytes("columns of a wrong length")
    periods = closings(survey.plan, upload.span.start, upload.span.end)
    ids = {
        period: upload.closings[CLOSING_ID_BYTES * i : CLOSING_ID_BYTES * (i + 1)] for i, period in enumerate(periods)
    }
    reports = [
        ReceivedReport(
            survey.id, node, ids[node.end], number, symbol, said(survey, Report(TrackNumber(number), nth, symbol))
        )
        for (number, track), column in zip(survey.plan.numbered(upload.group), upload.symbols, strict=True)
        for nth, node, symbol in _symbols(track, upload.span, column)
    ]
    return sorted(reports, key=lambda report: (report.node.end, report.track))


def _symbols(track: Track, span: Node, column: bytes) -> Iterator[tuple[NodeNumber, Node, int]]:
    width, first = symbol_bytes(track.randomizer), max((span.start - track.first) // track.width + 1, 1)
    for at in range(0, len(column), width):
        if written := int.from_bytes(column[at : at + width]):
            number = NodeNumber(first + at // width)
            yield number, track.node(number), written - 1
