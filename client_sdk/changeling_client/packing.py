"""How waiting closings are packed into uploads, and uploads into request bodies.

An upload is one entry's, a body holds many uploads. Their sizes depend on the calendar and on when the app ran,
never on what is reported.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from changeling_protocol import Node, Survey
from changeling_protocol.quantities import EntryNumber, SurveyId
from changeling_protocol.sealing import HEAD_BYTES, SEAL_BYTES
from changeling_protocol.upload import MOST_SPANNED_PERIODS, encode_upload
from changeling_protocol.wire import MOST_BODY_BYTES, MOST_ENVELOPES

from . import outbox
from .entries import Entry

_BODY_HEAD_BYTES = 32
"""Covers the map, its key and the array's head."""
_ENVELOPE_BYTES = HEAD_BYTES + SEAL_BYTES + 5
"""What sealing and the bytes' own head add to a plaintext."""


@dataclass(frozen=True, slots=True)
class Upload:
    """One entry's closings, ready to be sealed.

    survey: the survey's id.
    entry: the entry's number.
    periods: those of the closings, rising.
    plaintext: what is sealed.
    """

    survey: SurveyId
    entry: EntryNumber
    periods: tuple[int, ...]
    plaintext: bytes = field(repr=False)


def uploads(db: sqlite3.Connection, survey: Survey, entry: Entry) -> Iterator[Upload]:
    """Everything of an entry that waits, in as few uploads as may be."""
    for periods in runs(outbox.waiting(db, survey.id, entry.number)):
        closings = outbox.closings(db, survey.id, entry.number, periods)
        reports = outbox.reports(db, survey.id, entry.number, periods)
        plaintext = encode_upload(survey.plan, entry.group, _span(periods), closings, reports)
        yield Upload(survey.id, entry.number, tuple(periods), plaintext)


def runs(periods: Iterable[int]) -> list[list[int]]:
    """Cuts rising periods into runs, each of which one upload may span. It then fits into a body, whatever the plan."""
    cut: list[list[int]] = []
    for period in periods:
        if cut and _span([*cut[-1], period]).width <= MOST_SPANNED_PERIODS:
            cut[-1].append(period)
        else:
            cut.append([period])
    return cut


def bodies(waiting: Iterable[Upload]) -> Iterator[list[Upload]]:
    """Puts uploads together in order, as many in a body as one request may carry."""
    body: list[Upload] = []
    size = _BODY_HEAD_BYTES
    for upload in waiting:
        more = len(upload.plaintext) + _ENVELOPE_BYTES
        if body and (len(body) == MOST_ENVELOPES or size + more > MOST_BODY_BYTES):
            yield body
            body, size = [], _BODY_HEAD_BYTES
        body.append(upload)
        size += more
    if body:
        yield body


def _span(periods: Sequence[int]) -> Node:
    return Node(periods[0] - 1, periods[-1])
