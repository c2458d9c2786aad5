"""The log's next requests, batch by batch: each is read and opened while the one before it is counted."""

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from changeling_protocol import Survey
from changeling_protocol.ending import EarlyEnd
from changeling_protocol.quantities import SurveyId

from ..store import LoggedRequest, Store
from ..store.early_ends import published_ends
from ..store.log import positions_after, unread
from ..store.sealing_keys import private_keys
from ..store.surveys import published_surveys, readable
from .opening import Open, Opened

BATCH_REQUESTS = 20_000
BATCH_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests in the log's order, none at its end, with what is in them; and the surveys as they were read."""

    requests: Sequence[LoggedRequest]
    opened: Opened
    surveys: Mapping[SurveyId, Survey]
    ends: Mapping[SurveyId, EarlyEnd]


def next_batch(store: Store, most: int, open_: Open, after: Mapping[int, int]) -> Batch:
    """The next requests that are not counted, opened.

    most: so many at most. after: the positions by stream of what is being counted, which is left out.
    """
    with store.reading() as connection:
        requests = unread(connection, most, BATCH_BYTES, after)
        surveys = readable(published_surveys(connection))
        ends = published_ends(connection)
        keys = private_keys(connection, store.at_rest) if requests else {}
    return Batch(requests, open_([each.body for each in requests], surveys, keys), surveys, ends)


def batches(
    store: Store, most: int, open_: Open, waiting: int, stop: Callable[[], bool]
) -> Generator[Batch, None, None]:
    """Batches up to the log's end, or until so many requests were read.

    most: the most requests of one. waiting: how many requests to read, about. stop: asked before each but the first
    whether to leave the rest.
    """
    after: dict[int, int] = {}
    with ThreadPoolExecutor(1, "opening") as pool:
        coming: Future[Batch] | None = pool.submit(next_batch, store, most, open_, after)
        while coming is not None and (batch := coming.result()).requests:
            waiting -= len(batch.requests)
            after = after | positions_after(batch.requests)
            ahead = waiting > 0 and not stop()
            coming = pool.submit(next_batch, store, most, open_, after) if ahead else None
            yield batch
