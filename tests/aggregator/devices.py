"""What devices send, made straight from the protocol; and a store to fold it in without a server."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from changeling_aggregator.store import Store
from changeling_aggregator.store.counted import refusals_of, tallies_of
from changeling_aggregator.store.log import append, open_stream
from changeling_aggregator.store.sealing_keys import make_key, publish_key
from changeling_aggregator.store.surveys import add_survey
from changeling_protocol import Closing, Node, Report, SealingKey, Standing, Survey, encode, encode_upload, seal
from sqlalchemy import Connection

from ..protocol.examples import AUTHORITY
from .refolding import present, shown

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


def publish_new_key(connection: Connection, store: Store, begins: int, expires: int) -> SealingKey:
    """A sealing key of the store, made, signed and published."""
    key = SealingKey(make_key(connection, store.at_rest), begins, expires)
    publish_key(connection, key, key.signed_by(AUTHORITY))
    return key


@dataclass(frozen=True)
class Log:
    """A store that holds one survey and its key, with a stream to append to."""

    store: Store
    survey: Survey
    key: SealingKey
    stream: int

    @classmethod
    def of(cls, store: Store, survey: Survey, expires: int = FOREVER, begins: int = 0) -> "Log":
        with store.writing() as connection:
            add_survey(connection, survey.id, survey.signed_by(AUTHORITY), public=True)
            key = publish_new_key(connection, store, begins, expires)
            return cls(store, survey, key, open_stream(connection))

    def append(self, at: float, *envelopes: bytes, stream: int | None = None) -> None:
        """Append at this Unix time, in seconds."""
        with self.store.writing() as connection:
            append(connection, self.stream if stream is None else stream, list(map(body, envelopes)), int(at * 1000))

    def append_reports(self, at: float, said: Sequence[Said], *, stream: int | None = None) -> None:
        self.append(at, envelope(self.survey, self.key, said), stream=stream)

    def tallies(self) -> dict[tuple[int, int], tuple[int, list[int]]]:
        """By track and node: how many reports, and the slots."""
        with self.store.reading() as connection:
            found = tallies_of(connection, self.survey.id)
        return shown(found)

    def attendance(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """By group and period: how many were heard, and of these how many new, and how many missed before."""
        with self.store.reading() as connection:
            found = tallies_of(connection, self.survey.id)
        return present(found)

    def refused(self) -> dict[str, int]:
        with self.store.reading() as connection:
            return {reason.value: count for reason, count in refusals_of(connection, self.survey.id).items()}
