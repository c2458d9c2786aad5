"""What devices send, made straight from the protocol; and a store to fold it in without a server."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from changeling_aggregator.store import LoggedRequest, Store, Transaction
from changeling_protocol import Closing, Node, Report, SealingKey, Standing, Survey, encode, encode_upload, seal
from changeling_statistics import Tallies

from ..protocol.examples import AUTHORITY

FOREVER = 2**40


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


def body(*envelopes: object) -> bytes:
    """The bytes of an upload request, as any client may send them: more than fit, or none of them bytes."""
    return encode({"envelopes": list(envelopes)})


def publish_new_key(writing: Transaction, begins: int, expires: int) -> SealingKey:
    """A sealing key of the store, made, signed and published."""
    key = SealingKey(writing.make_key(), begins, expires)
    writing.publish_key(key, key.signed_by(AUTHORITY))
    return key


@dataclass(frozen=True)
class Log:
    """A store that holds one survey and its key, with a stream to append to."""

    store: Store
    survey: Survey
    key: SealingKey
    stream: int
    _streams: dict[bytes, int] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, survey: Survey, expires: int = FOREVER, begins: int = 0) -> "Log":
        with store.transaction() as writing:
            writing.add_survey(survey.id, survey.signed_by(AUTHORITY), public=True)
            key = publish_new_key(writing, begins, expires)
        stream = store.open_stream(survey.id)
        return cls(store, survey, key, stream, {survey.id: stream})

    def append(self, at: float, *envelopes: bytes, stream: int | None = None) -> None:
        """Append at this Unix time, in seconds: to this stream, or each to the one of its survey."""
        bodies: dict[int, list[bytes]] = {}
        for each in envelopes:
            bodies.setdefault(self._stream_of(each) if stream is None else stream, []).append(body(each))
        for number, some in sorted(bodies.items()):
            self.store.append(number, some, int(at * 1000))

    def _stream_of(self, sealed: bytes) -> int:
        survey = sealed[1:17] if len(sealed) > 48 else self.survey.id
        if survey not in self._streams:
            self._streams[survey] = self.store.open_stream(survey)
        return self._streams[survey]

    def append_reports(self, at: float, said: Sequence[Said], *, stream: int | None = None) -> None:
        self.append(at, envelope(self.survey, self.key, said), stream=stream)

    def tallies(self) -> dict[tuple[int, int], tuple[int, list[int]]]:
        """By track and node: how many reports, and the slots."""
        with self.store.view() as view:
            return shown(view.tallies(self.survey.id))

    def attendance(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """By group and period: how many were heard, and of these how many new, and how many missed before."""
        with self.store.view() as view:
            return present(view.tallies(self.survey.id))

    def refused(self) -> dict[str, int]:
        with self.store.view() as view:
            return {reason.value: count for reason, count in view.refusals(self.survey.id).items()}

    def kept(self) -> list[LoggedRequest]:
        """All requests that are not deleted, in the log's order."""
        with self.store.view() as view:
            return sorted(view.kept_requests())

    def sealed(self) -> int:
        """The last period that is sealed."""
        with self.store.view() as view:
            return view.sealed_period(self.survey.id)


def shown(tallies: Tallies) -> dict[tuple[int, int], tuple[int, list[int]]]:
    """By track and node: how many reports, and the slots."""
    return {key: (tally.reports, tally.slots.tolist()) for key, tally in tallies.items()}


def present(tallies: Tallies) -> dict[tuple[int, int], tuple[int, int, int]]:
    """By group and period: how many were heard, were new, and were missed before."""
    return {key: (here.heard, here.new, here.missed) for key, here in tallies.attendance.items()}
