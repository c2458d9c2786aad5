"""What devices send, made straight from the protocol; a store to fold it in without a server; and its times.

Upload requests of `upload` say whose survey they are of, and nothing else that anybody could open.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from changeling_aggregator.ingest import LogRequest, by_survey
from changeling_aggregator.store import LoggedRequest
from changeling_aggregator.testing import publish_new_key, tallies_in
from changeling_aggregator.testing.serving import FOREVER, SurveyLog, body
from changeling_protocol import (
    HEAD_BYTES,
    SEAL_BYTES,
    VERSION,
    Closing,
    Node,
    Report,
    SealingKey,
    Standing,
    Survey,
    SurveyId,
    encode_upload,
    seal,
)
from changeling_protocol.wire import decode_upload_request, encode_upload_request

START, GRACE = 1_800_000_000, 600
END = START + 8 * 60


def closes(node: int) -> int:
    """When a period ends."""
    return START + node * 60


SURVEYS = SurveyId(b"survey of 16 by."), SurveyId(b"another survey..")


def upload(*contents: bytes) -> bytes:
    """A request with an envelope for each of these contents, of one survey after the other."""
    heads = [bytes([VERSION]) + survey + bytes(HEAD_BYTES - 17) for survey in SURVEYS]
    envelopes = [heads[at % 2] + bytes(SEAL_BYTES) + content for at, content in enumerate(contents)]
    return encode_upload_request(envelopes)


def split(*bodies: bytes) -> list[LogRequest]:
    """Such requests as a writer is given them."""
    return [each for body in bodies for each in by_survey(body, SURVEYS)]


def content_of(request: bytes) -> list[bytes]:
    """What is in the envelopes of a request."""
    return [each[HEAD_BYTES + SEAL_BYTES :] for each in decode_upload_request(request)]


__all__ = ["FOREVER", "Log", "Said", "body", "envelope", "publish_new_key", "report"]


@dataclass(frozen=True)
class Said:
    """A report, with what is said of the closing that it belongs to."""

    report: Report
    id: bytes
    standing: int
    stratum: int


def report(
    node: int,
    symbol: int = 0,
    *,
    track: int = 0,
    id_: bytes | None = None,
    standing: int = Standing.NEW,
    stratum: int = 0,
) -> Said:
    """A report at a closing with an id of its own."""
    return Said(Report(track, node, symbol), os.urandom(16) if id_ is None else id_, standing, stratum)


def envelope(survey: Survey, key: SealingKey, said: Iterable[Said], span: Node | None = None, group: int = 0) -> bytes:
    """A sealed upload over `span`, all periods unless told. Of reports at one closing the first says what it is."""
    span = span or Node(0, survey.calendar.periods)
    reports, closings = [], {}
    for each in said:
        reports.append(each.report)
        period = survey.plan.tracks[each.report.track].node(each.report.node).end
        closings.setdefault(period, Closing(period, each.id, each.standing, each.stratum))
    return seal(encode_upload(survey.plan, group, span, closings.values(), reports), survey.id, key)


class Log(SurveyLog):
    """A store that holds one survey and its key, with a stream to append to; and what the fold made of it."""

    def append_reports(self, at: float, said: Sequence[Said], *, stream: int | None = None) -> None:
        self.append(at, envelope(self.survey, self.key, said), stream=stream)

    def tallies(self) -> dict[tuple[int, int], tuple[int, list[int]]]:
        """By track and node: how many reports, and the slots."""
        with self.store.view() as view:
            counted = tallies_in(view, self.survey)
        return {key: (tally.reports, tally.slots.tolist()) for key, tally in counted.items()}

    def attendance(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """By group and period: how many were heard, and of these how many new, and how many missed before."""
        with self.store.view() as view:
            counted = tallies_in(view, self.survey).attendance
        return {key: (here.heard, here.new, here.missed) for key, here in counted.items()}

    def refused(self) -> dict[str, int]:
        with self.store.view() as view:
            return {reason.value: count for reason, count in view.refusals(self.survey.id).items()}

    def kept(self) -> list[LoggedRequest]:
        """All requests that are not deleted, in the log's order."""
        with self.store.view() as view:
            return sorted(view.kept_requests())

    def unfolded(self) -> int:
        with self.store.view() as view:
            return view.log_state().unfolded

    def sealed(self) -> int:
        """The last period that is sealed."""
        with self.store.view() as view:
            return view.surveys()[self.survey.id].sealed

    def private_keys(self) -> set[bytes]:
        """The ids of those that are not destroyed."""
        with self.store.view() as view:
            return set(view.private_keys())
