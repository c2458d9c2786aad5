# mypy: disable-error-code="list-item, arg-type, dict-item, index, comparison-overlap, return-value"
"""Stores for tests: what contracts of stores begin with, tables as they are, and a store whose log lies in segments."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeAlias

import numpy as np
import pytest
from changeling_protocol import MalformedBytes, RefusalCounts, SealingKey, Survey, SurveyId, UnixMilliseconds, head_of
from changeling_protocol.wire import decode_upload_request
from changeling_statistics import NodeTally, Tallies
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import text

from ..segments import Folder, place_at
from ..store import LoggedRequest, Store, Transaction, View, cursors_after, everybody, segment_name, written_segment

Opener: TypeAlias = Callable[..., Store]
"""Opens one store, as another process would each time; takes what `Store.open` does behind the place."""

SURVEY, OTHER = SurveyId(b"survey of 16 by."), SurveyId(b"another survey..")
NODE, CLOSING = (SURVEY, 0, 1, 0), (SURVEY, 1)
AUTHORITY = Ed25519PrivateKey.from_private_bytes(b"authority of the tests, 32 bytes")


def put(store: Store, stream: int, *envelopes: bytes, now: int = 0) -> None:
    """Append as a server does."""
    store.append({stream: envelopes}, UnixMilliseconds(now))


def fold_next(store: Store, most: int = 100) -> list[LoggedRequest]:
    """Move the cursors over the next requests, as a fold does, and count them on a node. Raises Overtaken."""
    with store.view() as view:
        requests = view.unread(most, 2**20)
    with store.transaction() as writing:
        writing.add(cursors_after(requests), tallies={NODE: tally(len(requests), 0)})
    return requests


def whole_log(view: View) -> list[LoggedRequest]:
    """All that is kept, in the log's order."""
    return sorted(view.kept_requests())


def logged(store: Store) -> list[bytes]:
    """The bodies of all that is kept, in the log's order."""
    with store.view() as view:
        return [each.body for each in whole_log(view)]


def tallies_in(view: View, survey: Survey) -> Tallies:
    """All that is counted of a survey, of open nodes too."""
    return everybody(view.counted_strata(survey.id, survey.plan))


def tally(*slots: int) -> NodeTally:
    """A tally with these slots."""
    return NodeTally(sum(slots), np.array(slots, np.int64))


def publish(writing: Transaction, key: SealingKey) -> bool:
    """Publish a key as the authority signs it."""
    return writing.publish_key(key, key.signed_by(AUTHORITY))


def publish_new_key(writing: Transaction, begins: int, expires: int) -> SealingKey:
    """A sealing key of the store, made, signed and published."""
    key = SealingKey(writing.make_key(), begins, expires)
    assert publish(writing, key)
    return key


def publish_surveys(writing: Transaction) -> None:
    """Publish both surveys."""
    for survey in (SURVEY, OTHER):
        writing.add_survey(survey, b"signed")


@contextmanager
def lost(begun: AbstractContextManager[Transaction]) -> Iterator[Transaction]:
    """A transaction that raises in the end, so that nothing of it may be kept."""
    with suppress(KeyError), begun as writing:
        yield writing
        raise KeyError


class OpenedStore:
    """The fixtures of a contract of stores; `open_store`, which a subclass has, opens one new store at each call."""

    @pytest.fixture
    def store(self, open_store: Opener) -> Iterator[Store]:
        """An open store."""
        with closing(open_store()) as opened:
            yield opened

    @pytest.fixture
    def beside(self, open_store: Opener, store: Store) -> Iterator[Store]:  # noqa: ARG002
        """The same store, opened by another process, as it were."""
        with closing(open_store()) as opened:
            yield opened


COUNTED = ("tallies", "refusals")
"""The tables with what a fold counts; the same on every store and by every engine."""


def sql(store: Store, statement: str, **values: object) -> list[tuple[Any, ...]]:
    """The rows that a statement gives, if it gives any, in a transaction of its own. values: of its `:names`."""
    with store.transaction() as writing:
        found = writing._connection.execute(text(statement), values)
        return [tuple(row) for row in found] if found.returns_rows else []


def counted_rows(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """The counts, to the byte: the rows of each such table, in order."""
    return {table: sorted(sql(store, f"SELECT * FROM {table}")) for table in COUNTED}


def append_segments(store: Store, requests: Mapping[int, Sequence[bytes]], now: UnixMilliseconds) -> None:
    """Put requests, by stream, into a segment at the end of each, which lies in segments. now: Unix milliseconds."""
    with store.transaction() as writing:
        for number, bodies in sorted(requests.items()):
            stream = writing.streams()[number]
            assert stream.place
            assert stream.prefix
            first = stream.length + 1
            rows = [LoggedRequest(now, number, position, body) for position, body in enumerate(bodies, first)]
            name = segment_name(stream.prefix, first)
            assert writing.add_segment(written_segment(place_at(stream.place), name, rows, _surveys_in(bodies)))


def _surveys_in(bodies: Sequence[bytes]) -> set[SurveyId]:
    """The surveys that these requests are of; none where one of them is no upload."""
    try:
        return {head_of(envelope).survey for body in bodies for envelope in decode_upload_request(body)}
    except MalformedBytes:
        return set()


class SegmentedStore(Store):
    """A store in a file whose streams lie in segments, in a folder beside it, each append in one."""

    def open_stream(self, survey: SurveyId | None = None, place: str | None = None, prefix: str | None = None) -> int:
        """As a store's, in segments."""
        del survey, place, prefix
        folder = Folder(Path(self.place).absolute().parent / "segments", make=True)
        return super().open_stream(None, folder.name, token_hex(8))

    def append(
        self, requests: Mapping[int, Sequence[bytes]], now: UnixMilliseconds, refused: RefusalCounts | None = None
    ) -> None:
        """As a store's, in segments."""
        assert not refused
        append_segments(self, requests, now)
