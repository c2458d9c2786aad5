"""What devices send, made straight from the protocol; and a store to fold it in without a server."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from changeling_aggregator.store import Store
from changeling_aggregator.store.counted import refusals_of, tallies_of
from changeling_aggregator.store.log import append, open_stream
from changeling_aggregator.store.sealing_keys import make_key, publish_key
from changeling_aggregator.store.surveys import add_survey
from changeling_protocol import Node, Report, SealingKey, Survey, canonical, seal
from changeling_protocol.upload import encode_upload

from ..protocol.examples import AUTHORITY

FOREVER = 2**40


def report(node: int, symbol: int = 0, *, track: int = 0, id_: bytes | None = None) -> Report:
    """A report with an id of its own."""
    return Report(track, node, os.urandom(16) if id_ is None else id_, symbol)


def envelope(survey: Survey, key: SealingKey, reports: Iterable[Report], span: Node | None = None) -> bytes:
    """A sealed upload over `span`, all periods unless told."""
    span = span or Node(0, survey.calendar.periods)
    return seal(encode_upload(survey.plan, 0, span, reports), survey.id, key)


def row(node: int, symbol: int, id_: bytes) -> bytes:
    """The columns of one report on a track of small symbols, whatever they hold."""
    return node.to_bytes(4) + id_ + symbol.to_bytes(1)


def body(*envelopes: object) -> bytes:
    """The bytes of an upload request, as any client may send them: more than fit, or none of them bytes."""
    return canonical.encode({"envelopes": list(envelopes)})


@dataclass(frozen=True)
class Log:
    """A store that holds one survey and its key, with a stream to append to."""

    store: Store
    survey: Survey
    key: SealingKey
    stream: int

    @classmethod
    def of(cls, store: Store, survey: Survey, expires: int = FOREVER) -> "Log":
        with store.writing() as connection:
            add_survey(connection, survey.id, survey.signed_by(AUTHORITY))
            key = SealingKey(make_key(connection), 0, expires)
            publish_key(connection, key, key.signed_by(AUTHORITY))
            return cls(store, survey, key, open_stream(connection))

    def append(self, at: float, *envelopes: bytes, stream: int | None = None) -> None:
        """Append at this Unix time, in seconds."""
        with self.store.writing() as connection:
            append(connection, self.stream if stream is None else stream, envelopes, int(at * 1000))

    def append_reports(self, at: float, reports: Sequence[Report], *, stream: int | None = None) -> None:
        self.append(at, envelope(self.survey, self.key, reports), stream=stream)

    def tallies(self) -> dict[tuple[int, int], tuple[int, list[int]]]:
        """By track and node: how many reports, and the slots."""
        with self.store.reading() as connection:
            found = tallies_of(connection, self.survey.id)
        return {key: (tally.reports, tally.slots.tolist()) for key, tally in found.items()}

    def refused(self) -> dict[str, int]:
        with self.store.reading() as connection:
            return {reason.value: count for reason, count in refusals_of(connection, self.survey.id).items()}
