"""From sealed envelopes to the columns of each track.

This is the one place where uploads are opened. What does not open or cannot be read is refused, envelope by envelope
and track by track; what the columns hold is not looked at here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from changeling_protocol import CannotOpen, MalformedBytes, Survey, open_envelope
from changeling_protocol.quantities import SurveyId, TrackNumber
from changeling_protocol.refusal import Refusal
from changeling_protocol.sealing import head_of
from changeling_protocol.upload import decode_upload, row_bytes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..store import LoggedEnvelope
from ..store.counted import RefusalCounts


class Piece(NamedTuple):
    """The columns of one track in one upload. logged: the upload, as it lies in the log."""

    logged: LoggedEnvelope
    columns: bytes


@dataclass(slots=True)
class Opened:
    """Pieces by survey id and track, in the order of the log; and what was refused, by survey id and reason."""

    pieces: dict[tuple[SurveyId, TrackNumber], list[Piece]] = field(default_factory=dict)
    refused: RefusalCounts = field(default_factory=Counter)


def open_envelopes(
    envelopes: Iterable[LoggedEnvelope],
    surveys: Mapping[SurveyId, Survey],
    keys: Mapping[bytes, X25519PrivateKey],
) -> Opened:
    """The columns in these envelopes.

    surveys: by id. keys: the private keys that are not destroyed, by key id.
    """
    opened = Opened()
    for logged in envelopes:
        head = head_of(logged.envelope)
        survey, private = surveys.get(head.survey), keys.get(head.key)
        if survey is None or private is None:
            opened.refused[head.survey, Refusal.UNOPENABLE] += 1
            continue
        try:
            tracks = decode_upload(open_envelope(logged.envelope, private))
        except CannotOpen:
            opened.refused[head.survey, Refusal.UNOPENABLE] += 1
        except MalformedBytes:
            opened.refused[head.survey, Refusal.MALFORMED] += 1
        else:
            _add(opened, head.survey, survey, logged, tracks)
    return opened


def _add(
    opened: Opened, id_: SurveyId, survey: Survey, logged: LoggedEnvelope, tracks: Iterable[tuple[TrackNumber, bytes]]
) -> None:
    seen = set()
    for number, columns in tracks:
        if not 0 <= number < len(survey.plan.tracks):
            opened.refused[id_, Refusal.UNKNOWN_NODE] += 1
        elif number in seen or len(columns) % row_bytes(survey.plan.tracks[number]):
            opened.refused[id_, Refusal.MALFORMED] += 1
        else:
            opened.pieces.setdefault((id_, number), []).append(Piece(logged, columns))
        seen.add(number)
