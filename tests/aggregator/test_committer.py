"""Group commit, in rows and in objects: who waits together shares a commit, and who is acknowledged is on disk.

Several objects are on their way to an object store at a time: whatever it does, each upload is kept once or refused.
"""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from changeling_aggregator import Overloaded, Unwritable, ingest, logs, segments
from changeling_aggregator.fold import fold
from changeling_aggregator.ingest import Committer, Pace, RowWriter, SegmentWriter
from changeling_aggregator.segments import place_at
from changeling_aggregator.store import LoggedRequest, Store, database
from changeling_aggregator.store.store import OLD_SECONDS
from changeling_aggregator.testing.services import WELL, Conduct, SmallBucket, small_bucket
from changeling_protocol import Refusal
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from ..protocol.examples import survey
from .devices import END, GRACE, SURVEYS, Log, content_of, upload
from .serving import eventually

Outcomes = list[BaseException | None]
timed = pytest.mark.timed  # by the second


@contextmanager
def committing(store: Store, *, started: bool = True, **settings: Any) -> Iterator[Committer]:
    """A committer, which commits what waits in the end."""
    committer = Committer(store, lambda: 5.0, **settings)
    if started:
        committer.start()
    try:
        yield committer
    finally:
        committer.close()


async def sent(committer: Committer, *bodies: bytes, start: bool = False) -> Outcomes:
    """What each came to, where all are sent at once. start: the committer, when all wait."""
    tasks = [asyncio.create_task(committer.append(upload(each), SURVEYS)) for each in bodies]
    await asyncio.sleep(0)
    if start:
        committer.start()
    return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)


def submit(committer: Committer, *bodies: bytes, start: bool = False) -> Outcomes:
    """As `sent`, from an event loop of its own."""
    return asyncio.run(sent(committer, *bodies, start=start))


def logged(store: Store) -> list[LoggedRequest]:
    with store.view() as view:
        return view.unread(10**6, 2**40)


def appended(store: Store) -> list[bytes]:
    """The contents of what is in the log, in order."""
    return [content for each in logged(store) for content in content_of(each.body)]


# In rows


def commits_of(store: Store) -> list[Connection]:
    """Grows with each commit of a writer from now on."""
    commits: list[Connection] = []

    def note(connection: Connection) -> None:
        if connection.get_execution_options().get("writer"):
            commits.append(connection)

    event.listen(store._database.engine, "commit", note)
    return commits


def test_uploads_that_wait_together_share_a_commit(store: Store) -> None:
    """A hundred of them, one transaction, one arrival, in the order of submission."""
    bodies, commits = [bytes([number]) for number in range(100)], commits_of(store)
    with committing(store, started=False) as waiting:
        assert submit(waiting, *bodies, start=True) == [None] * 100
        assert len(commits) == 2  # the first opens the survey's stream
    assert appended(store) == bodies


def test_uploads_that_come_one_after_the_other_share_a_commit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is committed at once; those that come right after it wait for one another, a moment."""
    monkeypatch.setattr(RowWriter, "pace", Pace(apart=1.5))
    commits = commits_of(store)

    async def in_turn() -> None:
        tasks = []
        for each in (b"second", b"third", b"fourth"):
            tasks.append(asyncio.create_task(sent(waiting, each)))
            await asyncio.sleep(0.01)
        assert await asyncio.gather(*tasks) == [[None]] * 3

    with committing(store) as waiting:
        assert submit(waiting, b"first") == [None]
        assert len(commits) == 2  # the first opens the survey's stream
        asyncio.run(in_turn())
        assert len(commits) == 3
    assert appended(store) == [b"first", b"second", b"third", b"fourth"]


def test_who_has_gone_keeps_nobody_else_from_hearing(store: Store) -> None:
    """What it sent is kept all the same."""

    async def all_wait() -> None:
        gone = asyncio.create_task(waiting.append(upload(b"gone"), SURVEYS))
        await asyncio.sleep(0)
        gone.cancel()
        assert await sent(waiting, b"other", start=True) == [None]

    with committing(store, started=False) as waiting:
        asyncio.run(all_wait())
    assert appended(store) == [b"gone", b"other"]


def test_nothing_is_acknowledged_when_the_database_fails(store: Store) -> None:
    """Everyone who waited hears it, nothing of theirs is kept, and the next upload goes through."""

    def fail(*_: object) -> None:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    with committing(store, started=False) as waiting:
        event.listen(store._database.engine, "before_cursor_execute", fail)
        heard = submit(waiting, b"lost", b"lost too", start=True)
        assert [type(error) for error in heard] == [OperationalError] * 2
        event.remove(store._database.engine, "before_cursor_execute", fail)
        assert submit(waiting, b"kept") == [None]
    assert appended(store) == [b"kept"]


def test_a_store_whose_file_is_gone_acknowledges_nothing(store: Store, tmp_path: Path) -> None:
    """SQLite would write on, into a file that has no name any more; when it is there again uploads are taken."""
    path = tmp_path / "server.db"
    with committing(store) as waiting:
        moved = path.rename(tmp_path / "moved.db")
        assert "is gone" in str(submit(waiting, b"lost"))
        assert waiting.trouble
        moved.rename(path)
        assert submit(waiting, b"kept") == [None]
        assert waiting.trouble is None
    assert appended(store) == [b"kept"]


def test_the_last_bytes_of_a_disk_are_left_to_sealing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads are turned away before it is full, so that keys are destroyed in time."""
    log = Log.of(store, survey(), expires=END)
    with committing(store) as waiting, monkeypatch.context() as full:
        full.setattr(database, "LEAST_FREE_BYTES", 2**60)
        (error,) = submit(waiting, b"too much")
        assert isinstance(error, Unwritable)
        assert "disk is full" in str(error)
        fold(store, END + GRACE + 1)
        assert log.private_keys() == set()


def test_what_waits_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound an upload is turned away at once; who waits is not affected."""
    monkeypatch.setattr(ingest, "MOST_WAITING_BYTES", len(upload(b"12345678")) + 2)
    with committing(store, started=False) as waiting:
        kept, refused = submit(waiting, b"12345678", b"123", start=True)
    assert kept is None
    assert isinstance(refused, Overloaded)


def test_closing_commits_what_waits_and_the_counts_of_refusals(store: Store) -> None:
    """A graceful end loses nothing."""

    async def close_while_it_waits() -> None:
        last = asyncio.create_task(waiting.append(upload(b"last"), SURVEYS))
        await asyncio.sleep(0)
        waiting.close()
        await asyncio.wait_for(last, 60)

    with committing(store) as waiting:
        waiting.count_refused({(bytes(16), Refusal.CLOSED): 3})
        asyncio.run(close_while_it_waits())
    assert appended(store) == [b"last"]
    with store.view() as view:
        assert view.refusals(bytes(16)) == {Refusal.CLOSED: 3}
    (error,) = submit(waiting, b"too late")
    assert isinstance(error, Overloaded)


def test_a_full_store_takes_no_uploads_until_there_is_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with Retry-After, and health says why; by itself it takes them again."""
    monkeypatch.setattr(ingest, "LOOK_SECONDS", 0.0)

    def is_turned_away(words: str) -> None:
        (error,) = submit(taking, b"upload")
        assert isinstance(error, Overloaded)
        assert words in (taking.trouble or "")

    with committing(store, most_unfolded=2) as taking:
        assert [submit(taking, b"upload") for _ in range(3)] == [[None]] * 3
        is_turned_away("wait to be counted")
        taking.most_unfolded = 10
        assert eventually(lambda: taking.trouble, None)
        taking.most_store_bytes = 1
        is_turned_away("due to go")


def test_the_log_says_when_uploads_begin_to_be_turned_away_and_when_they_are_taken_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A line each, however many are turned away: of a store that is full by its limit, and of a disk that is."""
    monkeypatch.setattr(ingest, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(ingest, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(logs, "OUTAGE_SECONDS", 0.5)
    with committing(store, most_unfolded=0) as taking:
        submit(taking, b"upload")
        for _ in range(3):
            submit(taking, b"upload")
        taking.most_unfolded = 10
        assert eventually(lambda: caplog.messages[1:], ["uploads are taken again"])
        assert caplog.messages[0].startswith("uploads are turned away: more uploads wait to be counted")
        caplog.clear()
        with monkeypatch.context() as full:
            full.setattr(database, "LEAST_FREE_BYTES", 2**60)
            for _ in range(3):
                submit(taking, b"upload")
        assert eventually(lambda: caplog.messages[1:], ["uploads are taken again"])
        assert "free" in caplog.messages[0]


def test_a_store_takes_what_its_disk_has_room_for_unless_it_is_told(store: Store, tmp_path: Path) -> None:
    """Nine tenths of what is free, and a request for each KiB of that; a setting counts before the disk."""
    for place in (None, str(tmp_path / "segments")):
        by_itself = Committer(store, lambda: 5.0, segments=place)
        free = shutil.disk_usage(tmp_path).free
        assert abs(by_itself.most_store_bytes - 0.9 * free) < 0.01 * free
        assert by_itself.most_unfolded == by_itself.most_store_bytes // 1024
        assert abs((by_itself.free_bytes() or 0) - free) < 0.01 * free
    told = Committer(store, lambda: 5.0, 2**40, 10**7)
    assert (told.most_store_bytes, told.most_unfolded) == (2**40, 10**7)


# In objects


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallBucket]:
    """It has a second to answer."""
    monkeypatch.setattr(segments, "SECONDS", 1)
    with small_bucket() as running:
        yield running


def numbered(count: int, begin: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(begin, begin + count)]


@timed
def test_many_uploads_share_few_objects_and_come_once_each(store: Store, bucket: SmallBucket) -> None:
    """A slow store; uploads that come all the time. Several objects are on their way at once, each for a stream of its
    own; arrivals never decrease in the order of positions."""
    bucket.conduct = lambda method, _: Conduct(after=0.1) if method == "PUT" else WELL

    async def keep_sending() -> Outcomes:
        waves = []
        for wave in range(20):
            waves.append(asyncio.create_task(sent(committer, *numbered(50, 50 * wave))))
            await asyncio.sleep(0.01)
        return [each for wave in waves for each in await wave]

    with committing(store, segments=bucket.place) as committer:
        assert asyncio.run(keep_sending()) == [None] * 1000
    log = logged(store)
    assert sorted(appended(store)) == numbered(1000)
    assert 1 < len({each.stream for each in log}) <= SegmentWriter.pace.at_once
    assert bucket.puts() <= 1 + 1000 // SegmentWriter.pace.enough
    for stream in {each.stream for each in log}:
        mine = [each for each in log if each.stream == stream]
        assert [each.position for each in mine] == [*range(1, len(mine) + 1)]
        assert [each.arrival for each in mine] == sorted(each.arrival for each in mine)


@timed
def test_an_object_that_hangs_holds_nobody_else_up(store: Store, bucket: SmallBucket) -> None:
    """Its uploads are refused after the time that a store has to answer; all others are acknowledged meanwhile."""
    hangs = Conduct(does=False, after=60)
    bucket.conduct = lambda method, _: hangs if method == "PUT" and bucket.puts() == 1 else WELL

    async def three() -> tuple[bool, Outcomes]:
        hanging = asyncio.create_task(sent(committer, b"hanging"))
        while not bucket.puts():
            await asyncio.sleep(0.01)
        assert [await sent(committer, each) for each in (b"one", b"two")] == [[None], [None]]
        return hanging.done(), await hanging

    with committing(store, segments=bucket.place) as committer:
        ended_before_them, (refused,) = asyncio.run(three())
        assert (ended_before_them, type(refused)) == (False, Unwritable)
        assert submit(committer, b"three") == [None]
        assert committer.trouble is None
    assert sorted(appended(store)) == [b"one", b"three", b"two"]


@timed
def test_an_object_that_is_refused_refuses_its_uploads_alone(store: Store, bucket: SmallBucket) -> None:
    """Others that were on their way then are kept, and what comes after: there is no gap."""
    refused: set[str] = set()

    def conduct(method: str, name: str) -> Conduct:
        if method == "PUT" and (bucket.puts() == 2 or name in refused):  # tried again, it comes to the same
            refused.add(name)
            return Conduct(does=False, status=500)
        return Conduct(after=0.2)

    bucket.conduct = conduct

    async def apart() -> Outcomes:
        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(sent(committer, *numbered(40, 40 * number))))
            while bucket.puts() <= number:
                await asyncio.sleep(0.01)
        return [each for task in tasks for each in await task]

    with committing(store, segments=bucket.place) as committer:
        came_to = asyncio.run(apart())
        assert submit(committer, b"after") == [None]
    assert {type(each) for each in came_to} == {Unwritable, type(None)}
    kept = [body for body, error in zip(numbered(160), came_to, strict=True) if error is None]
    assert sorted(appended(store)) == [*kept, b"after"]
    assert len(refused) == 1


@timed
@pytest.mark.parametrize("conduct", [Conduct(status=None), Conduct(status=500)])
def test_an_object_that_is_kept_and_not_answered_for_is_kept_once(
    store: Store, bucket: SmallBucket, conduct: Conduct
) -> None:
    """It is sent again under its name, and then named once."""
    bucket.conduct = lambda _, __: conduct if bucket.puts() == 1 else WELL
    with committing(store, segments=bucket.place) as committer:
        assert submit(committer, b"one") == [None]
    assert [name for method, name in bucket.asked if method == "PUT"] == [*bucket.objects] * 2
    assert sorted(appended(store)) == [b"one"]


@timed
def test_an_object_that_is_there_after_its_uploads_were_refused_is_read_by_nobody(
    store: Store, bucket: SmallBucket
) -> None:
    """The store kept it, and said so too late: the catalogue never names it, and it is swept once it is old."""
    bucket.conduct = lambda _, __: Conduct(after=10) if bucket.puts() == 1 else WELL
    with committing(store, segments=bucket.place) as committer:
        (error,) = submit(committer, b"refused")
        assert isinstance(error, Unwritable)
        assert submit(committer, b"sent again") == [None]
    assert (sorted(appended(store)), len(bucket.objects)) == ([b"sent again"], 2)
    written = max(each.written for each in place_at(bucket.place).list(""))
    with store.turn_to_fold() as turn:
        assert turn.sweep(written + OLD_SECONDS - 1) == 0
        assert turn.sweep(written + OLD_SECONDS + 1) == 1
    assert sorted(appended(store)) == [b"sent again"]


@timed
def test_an_upload_arrives_when_the_catalogue_has_its_object(store: Store, bucket: SmallBucket) -> None:
    """What is sealed while a slow store takes the object stays sealed: the upload is kept, and has arrived since."""

    def conduct(method: str, _: str) -> Conduct:
        if method == "PUT":
            with store.transaction() as writing:
                writing.seal({}, 9000)
        return WELL

    bucket.conduct = conduct
    with committing(store, segments=bucket.place) as committer:
        assert submit(committer, b"in the last second") == [None]
    ((arrival, *_, body),) = logged(store)
    assert (content_of(body), arrival) == ([b"in the last second"], 9000)
