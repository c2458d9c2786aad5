"""Several objects on their way to an object store at a time: whatever it does, each upload is kept once or refused."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from changeling_aggregator import Unwritable, segments
from changeling_aggregator.ingest import Committer, SegmentWriter
from changeling_aggregator.segments import place_at
from changeling_aggregator.store import LoggedRequest, Store
from changeling_aggregator.store.store import OLD_SECONDS
from changeling_aggregator.testing.services import WELL, Conduct, SmallBucket, small_bucket

from .devices import SURVEYS, content_of, upload

pytestmark = pytest.mark.timed  # by the second


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallBucket]:
    """It has a second to answer."""
    monkeypatch.setattr(segments, "SECONDS", 1)
    with small_bucket() as running:
        yield running


@contextmanager
def committing(store: Store, bucket: SmallBucket) -> Iterator[Committer]:
    committer = Committer(store, lambda: 5.0, segments=bucket.place)
    committer.start()
    try:
        yield committer
    finally:
        committer.close()


def logged(store: Store) -> list[LoggedRequest]:
    with store.view() as view:
        return view.unread(10**6, 2**40)


def bodies_in(store: Store) -> list[bytes]:
    return sorted(content for each in logged(store) for content in content_of(each.body))


async def sent(committer: Committer, bodies: Sequence[bytes]) -> list[BaseException | None]:
    """What each came to, where all are sent at once."""
    return await asyncio.gather(*(committer.append(upload(each), SURVEYS) for each in bodies), return_exceptions=True)


def numbered(count: int, begin: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(begin, begin + count)]


def test_many_uploads_share_few_objects_and_come_once_each(store: Store, bucket: SmallBucket) -> None:
    """A slow store; uploads that come all the time. Several objects are on their way at once, each for a stream of its
    own; arrivals never decrease in the order of positions."""
    bucket.conduct = lambda method, _: Conduct(after=0.1) if method == "PUT" else WELL

    async def keep_sending() -> list[BaseException | None]:
        waves = []
        for wave in range(20):
            waves.append(asyncio.create_task(sent(committer, numbered(50, 50 * wave))))
            await asyncio.sleep(0.01)
        return [each for wave in waves for each in await wave]

    with committing(store, bucket) as committer:
        assert asyncio.run(keep_sending()) == [None] * 1000
    log = logged(store)
    assert bodies_in(store) == numbered(1000)
    assert 1 < len({each.stream for each in log}) <= SegmentWriter.pace.at_once
    assert bucket.puts() <= 1 + 1000 // SegmentWriter.pace.enough
    for stream in {each.stream for each in log}:
        mine = [each for each in log if each.stream == stream]
        assert [each.position for each in mine] == [*range(1, len(mine) + 1)]
        assert [each.arrival for each in mine] == sorted(each.arrival for each in mine)


def test_an_object_that_hangs_holds_nobody_else_up(store: Store, bucket: SmallBucket) -> None:
    """Its uploads are refused after the time that a store has to answer; all others are acknowledged meanwhile."""

    def conduct(method: str, _: str) -> Conduct:
        first = method == "PUT" and bucket.puts() == 1
        return Conduct(does=False, after=60) if first else WELL

    bucket.conduct = conduct

    async def three() -> tuple[bool, list[BaseException | None]]:
        hanging = asyncio.create_task(sent(committer, [b"hanging"]))
        while not bucket.puts():
            await asyncio.sleep(0.01)
        assert await sent(committer, [b"one"]) == [None]
        assert await sent(committer, [b"two"]) == [None]
        meanwhile = hanging.done()
        return meanwhile, await hanging

    with committing(store, bucket) as committer:
        meanwhile, (refused,) = asyncio.run(three())
        assert not meanwhile
        assert isinstance(refused, Unwritable)
        assert asyncio.run(sent(committer, [b"three"])) == [None]
        assert committer.trouble is None
    assert bodies_in(store) == [b"one", b"three", b"two"]


def test_an_object_that_is_refused_refuses_its_uploads_alone(store: Store, bucket: SmallBucket) -> None:
    """Others that were on their way then are kept, and what comes after: there is no gap."""
    refused: set[str] = set()

    def conduct(method: str, name: str) -> Conduct:
        if method == "PUT" and (bucket.puts() == 2 or name in refused):  # tried again, it comes to the same
            refused.add(name)
            return Conduct(does=False, status=500)
        return Conduct(after=0.2)

    bucket.conduct = conduct

    async def apart() -> list[BaseException | None]:
        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(sent(committer, numbered(40, 40 * number))))
            while bucket.puts() <= number:
                await asyncio.sleep(0.01)
        return [each for task in tasks for each in await task]

    with committing(store, bucket) as committer:
        came_to = asyncio.run(apart())
        assert asyncio.run(sent(committer, [b"after"])) == [None]
    assert {type(each) for each in came_to} == {Unwritable, type(None)}
    kept = [body for body, error in zip(numbered(160), came_to, strict=True) if error is None]
    assert bodies_in(store) == [*kept, b"after"]
    assert len(refused) == 1


@pytest.mark.parametrize("conduct", [Conduct(status=None), Conduct(status=500)])
def test_an_object_that_is_kept_and_not_answered_for_is_kept_once(
    store: Store, bucket: SmallBucket, conduct: Conduct
) -> None:
    """It is sent again under its name, and then named once."""
    bucket.conduct = lambda _, __: conduct if bucket.puts() == 1 else WELL
    with committing(store, bucket) as committer:
        assert asyncio.run(sent(committer, [b"one"])) == [None]
    assert [name for method, name in bucket.asked if method == "PUT"] == [*bucket.objects] * 2
    assert bodies_in(store) == [b"one"]


def test_an_object_that_is_there_after_its_uploads_were_refused_is_read_by_nobody(
    store: Store, bucket: SmallBucket
) -> None:
    """The store kept it, and said so too late: the catalogue never names it, and it is swept once it is old."""
    bucket.conduct = lambda _, __: Conduct(after=10) if bucket.puts() == 1 else WELL
    with committing(store, bucket) as committer:
        (error,) = asyncio.run(sent(committer, [b"refused"]))
        assert isinstance(error, Unwritable)
        assert asyncio.run(sent(committer, [b"sent again"])) == [None]
    assert (bodies_in(store), len(bucket.objects)) == ([b"sent again"], 2)
    written = max(each.written for each in place_at(bucket.place).list(""))
    with store.turn_to_fold() as turn:
        assert turn.sweep(written + OLD_SECONDS - 1) == 0
        assert turn.sweep(written + OLD_SECONDS + 1) == 1
    assert bodies_in(store) == [b"sent again"]


def test_an_upload_arrives_when_the_catalogue_has_its_object(store: Store, bucket: SmallBucket) -> None:
    """What is sealed while a slow store takes the object stays sealed: the upload is kept, and has arrived since."""

    def conduct(method: str, _: str) -> Conduct:
        if method == "PUT":
            with store.transaction() as writing:
                writing.seal({}, 9000)
        return WELL

    bucket.conduct = conduct
    with committing(store, bucket) as committer:
        assert asyncio.run(sent(committer, [b"in the last second"])) == [None]
    ((arrival, *_, body),) = logged(store)
    assert (content_of(body), arrival) == ([b"in the last second"], 9000)
