"""From sealed envelopes to the columns of uploads.

This is the one place where uploads are opened. What does not open, or does not have the columns that the survey's plan
asks for, is refused, envelope by envelope; what the columns hold is not looked at here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from changeling_protocol import CannotOpen, MalformedBytes, Survey, open_envelope
from changeling_protocol.quantities import SurveyId
from changeling_protocol.refusal import Refusal
from changeling_protocol.sealing import head_of
from changeling_protocol.upload import UploadColumns, column_bytes, decode_upload
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..store import LoggedEnvelope
from ..store.counted import RefusalCounts


class OpenedUpload(NamedTuple):
    """An upload as it lies in the log, and its columns, which have the lengths that its group and span ask for."""

    logged: LoggedEnvelope
    columns: UploadColumns


@dataclass(slots=True)
class Opened:
    """Uploads by survey id, in the order of the log; and what was refused, by survey id and reason."""

    uploads: dict[SurveyId, list[OpenedUpload]] = field(default_factory=dict)
    refused: RefusalCounts = field(default_factory=Counter)


def open_envelopes(
    envelopes: Iterable[LoggedEnvelope],
    surveys: Mapping[SurveyId, Survey],
    keys: Mapping[bytes, X25519PrivateKey],
) -> Opened:
    """The uploads in these envelopes.

    surveys: by id. keys: the private keys that are not destroyed, by key id.
    """
    opened = Opened()
    shapes = _Shapes(surveys)
    for logged in envelopes:
        head = head_of(logged.envelope)
        private = keys.get(head.key)
        if head.survey not in surveys or private is None:
            opened.refused[head.survey, Refusal.UNOPENABLE] += 1
            continue
        try:
            columns = decode_upload(open_envelope(logged.envelope, private))
        except CannotOpen:
            opened.refused[head.survey, Refusal.UNOPENABLE] += 1
            continue
        except MalformedBytes:
            opened.refused[head.survey, Refusal.MALFORMED] += 1
            continue
        if shapes.fit(head.survey, columns):
            opened.uploads.setdefault(head.survey, []).append(OpenedUpload(logged, columns))
        else:
            opened.refused[head.survey, Refusal.MALFORMED] += 1
    return opened


class _Shapes:
    """How long the columns of uploads must be; each is worked out once, as many uploads are alike."""

    def __init__(self, surveys: Mapping[SurveyId, Survey]) -> None:
        self._surveys = surveys
        self._known: dict[tuple[SurveyId, int, int, int], tuple[int, ...]] = {}

    def fit(self, survey: SurveyId, upload: UploadColumns) -> bool:
        """Whether the upload's group is one of the plan's, and its columns are as long as they must be."""
        plan = self._surveys[survey].plan
        if not 0 <= upload.group < len(plan.groups):
            return False
        key = survey, upload.group, upload.span.start, upload.span.end
        if key not in self._known:
            self._known[key] = column_bytes(plan, upload.group, upload.span)
        return self._known[key] == (len(upload.closings), *map(len, upload.symbols))
