"""The closings and reports in an upload's columns, one by one: what the server's fold reads as columns."""

from collections.abc import Iterator

from changeling_protocol import (
    CLOSING_ID_BYTES,
    Closing,
    MalformedBytes,
    Node,
    ReleasePlan,
    Report,
    Standing,
    Track,
    closings,
    column_bytes,
    decode_upload,
    symbol_bytes,
)


def read_upload(plan: ReleasePlan, plaintext: bytes) -> tuple[int, list[Closing], list[Report]]:
    """The group, the answered closings and the reports in a plaintext. Raises MalformedBytes."""
    upload = decode_upload(plaintext)
    if not 0 <= upload.group < len(plan.groups):
        raise MalformedBytes("a group of another plan")
    if column_bytes(plan, upload.group, upload.span) != (len(upload.closings), *map(len, upload.symbols)):
        raise MalformedBytes("columns of a wrong length")
    answered = list(_closings(closings(plan, upload.span.start, upload.span.end), upload.closings))
    reports = [
        Report(number, node, symbol)
        for (number, track), column in zip(plan.numbered(upload.group), upload.symbols, strict=True)
        for node, symbol in symbols_in(track, upload.span, column)
    ]
    return upload.group, answered, reports


def _closings(periods: list[int], column: bytes) -> Iterator[Closing]:
    n = len(periods)
    ids, standings, strata = column[: CLOSING_ID_BYTES * n], column[CLOSING_ID_BYTES * n : -2 * n], column[-2 * n :]
    for i, period in enumerate(periods):
        if standings[i]:
            id_ = ids[CLOSING_ID_BYTES * i : CLOSING_ID_BYTES * (i + 1)]
            yield Closing(period, id_, Standing(standings[i] - 1), int.from_bytes(strata[2 * i : 2 * i + 2]))


def symbols_in(track: Track, span: Node, column: bytes) -> Iterator[tuple[int, int]]:
    """Node and symbol of each report in a track's column."""
    width = symbol_bytes(track.randomizer)
    nodes = [number for number in track.node_numbers() if span.start < track.node(number).end <= span.end]
    for i, node in enumerate(nodes):
        if written := int.from_bytes(column[width * i : width * (i + 1)]):
            yield node, written - 1
