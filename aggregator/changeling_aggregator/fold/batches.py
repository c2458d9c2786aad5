"""The log's next requests, batch by batch: each is opened while the one before it is counted, and read before that."""

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from changeling_protocol import EarlyEnd, Survey, SurveyId, UnixMilliseconds
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..opening import Open, Opened
from ..store import LoggedRequest, Store
from ..store.early_ends import published_ends
from ..store.log import positions_after, unread
from ..store.sealing_keys import private_keys
from ..store.surveys import published_surveys, readable

BATCH_REQUESTS = 5000
BATCH_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests in the log's order, with what is in them, and the surveys as they were read; none at the log's end."""

    requests: Sequence[LoggedRequest]
    opened: Opened
    surveys: Mapping[SurveyId, Survey]
    ends: Mapping[SurveyId, EarlyEnd]


@dataclass(frozen=True, slots=True)
class _Sealed:
    """What a batch is made of, before its requests are opened."""

    requests: Sequence[LoggedRequest]
    surveys: Mapping[SurveyId, Survey]
    ends: Mapping[SurveyId, EarlyEnd]
    keys: Mapping[bytes, X25519PrivateKey]

    def opened(self, open_: Open) -> Batch:
        opened = open_([each.body for each in self.requests], self.surveys, self.keys)
        return Batch(self.requests, opened, self.surveys, self.ends)


def next_batch(store: Store, most: int, open_: Open, after: Mapping[int, int]) -> Batch:
    """The next requests that are not counted, opened.

    most: so many at most. after: the positions by stream of what is being counted, which is left out.
    """
    return _next_sealed(store, most, after, None).opened(open_)


def _next_sealed(store: Store, most: int, after: Mapping[int, int], until: UnixMilliseconds | None) -> _Sealed:
    """until: what arrived later is left out, in Unix milliseconds; None for nothing."""
    with store.reading() as connection:
        requests = unread(connection, most, BATCH_BYTES, after, until)
        surveys = readable(published_surveys(connection))
        ends = published_ends(connection)
        keys = private_keys(connection, store.at_rest) if requests else {}
    return _Sealed(requests, surveys, ends, keys)


def batches(
    store: Store, most: int, open_: Open, waiting: int, until: UnixMilliseconds, stop: Callable[[], bool]
) -> Generator[Batch, None, None]:
    """Batches up to the log's end, or until so many requests were read.

    most: the most requests of one. waiting: how many requests to read, about. until: what arrived later is left out, in
    Unix milliseconds. stop: asked before each but the first whether to leave the rest.
    While one is counted the next is opened, and the one after that is read: so those that open never wait for it.
    """
    after: dict[int, int] = {}
    opening: Future[Batch] | None = None
    with ThreadPoolExecutor(1, "reading") as reader, ThreadPoolExecutor(1, "opening") as opener:
        reading: Future[_Sealed] | None = reader.submit(_next_sealed, store, most, after, until)
        while reading is not None and (sealed := reading.result()).requests:
            waiting -= len(sealed.requests)
            after = after | positions_after(sealed.requests)
            before, opening = opening, opener.submit(sealed.opened, open_)
            ahead = waiting > 0 and not stop()
            reading = reader.submit(_next_sealed, store, most, after, until) if ahead else None
            if before is not None:
                yield before.result()
        if opening is not None:
            yield opening.result()
