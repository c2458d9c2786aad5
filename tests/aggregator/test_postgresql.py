"""A store on PostgreSQL: how it is named and guarded, what is lost with a connection, several servers, restarts."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from re import findall

import httpx
import pytest
from changeling_aggregator.errors import Overtaken, StoreError
from changeling_aggregator.ingest import Committer
from changeling_aggregator.ingest.committer import RowWriter
from changeling_aggregator.store import Store, Turn, View
from changeling_aggregator.store import postgresql as room
from changeling_aggregator.testing import sql
from changeling_aggregator.testing.postgres import GUARDED, PASSWORD, PostgreSQL
from changeling_commands.__main__ import main as run
from changeling_protocol import Refusal, SealingKey, Survey, decode
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from .devices import body, envelope, report
from .serving import ADMIN, ServerProcess, eventually
from .uploads import upload

START = 1_800_000_000


@pytest.fixture
def store(postgresql_store: Store) -> Store:
    return postgresql_store


# Appending


def test_much_is_appended_as_little_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order and without gaps, by either way; a connection that is lost is told, and the next is another."""
    stream = store.open_stream(None)
    bodies = [bytes([number]) * 10 for number in range(4)]
    for number, each in enumerate(bodies):
        monkeypatch.setattr(room, "MUCH_BYTES", 0 if number % 2 else 2**20)
        with store.transaction() as writing:
            writing.append(stream, [each, each], 1000 + number)
    monkeypatch.setattr(room, "MUCH_BYTES", 0)

    def lose() -> None:
        with store.transaction() as writing:
            mine = writing._connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            assert sql(store, f"SELECT pg_terminate_backend({mine}, 60000)")
            writing.append(stream, [b"lost"], 1500)

    with pytest.raises(DBAPIError):
        lose()
    store.append(stream, [b"last"], 2000)
    with store.view() as view:
        logged = [*view.kept_requests()]
    assert [each.position for each in logged] == [*range(1, 10)]
    assert [each.body for each in logged] == [each for each in bodies for _ in range(2)] + [b"last"]
    assert [each.arrival for each in logged] == [1000, 1000, 1001, 1001, 1002, 1002, 1003, 1003, 2000]


@contextmanager
def overheard(store: Store, file: Path) -> Iterator[Callable[[], int]]:
    """Gives how often a connection of the store has asked the database for something; closes the store at the end."""
    with file.open("w") as spoken:
        event.listen(store._database.engine, "checkout", lambda driver, *_: driver.pgconn.trace(spoken.fileno()))
        yield lambda: len(findall(r"\t(Sync|Query)\b", file.read_text()))
        store.close()


def test_the_commit_of_a_few_uploads_is_one_way_to_the_database_and_back(store: Store, tmp_path: Path) -> None:
    """So that they wait for a processor, there and here, once; counts of refusals go along in a transaction of more."""
    writer = RowWriter(store)
    writer.write([upload(b"first")], Counter(), 0)  # which opens a stream
    with overheard(store, tmp_path / "spoken") as asked:
        writer.write([upload(b"some")] * 3, Counter(), 1)
        assert asked() == 1
        writer.write([upload(b"more")], Counter({(bytes(16), Refusal.CLOSED): 1}), 2)
        assert asked() > 4
    opened = Store.open(store.place)
    with opened.view() as view:
        assert [each.position for each in view.unread(9, 9999)] == [1, 2, 3, 4, 5]
    opened.close()


def test_looking_whether_the_store_is_full_is_a_way_for_each_figure(store: Store, tmp_path: Path) -> None:
    """What waits for the fold, what the tables take, and what segments do: the uploads of a second wait for it."""
    looking = Committer(store, lambda: 5.0)
    with overheard(store, tmp_path / "spoken") as asked:
        assert looking._fullness() is None
        assert asked() == 3


def test_a_statement_by_itself_waits_for_others_whatever_the_database_says(url: str) -> None:
    """Where transactions are serializable by default, the second of two who append at once would else fail."""
    store = Store.open(url.replace("&options=", "&options=-c%20default_transaction_isolation%3Dserializable%20"))
    with store._writing(once=True) as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"
    store.close()


# How it is named


@pytest.mark.parametrize(
    "place", ["user:{0}@host/x", "host/x?password={0}", "host/x?sslpassword={0}", "user:{0}@host:port/x", "/x?{0}=1"]
)
def test_a_password_in_the_url_is_refused_and_never_shown(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor is what cannot be read as a URL: one line says where a password belongs, or what a URL looks like."""
    url = "postgresql://" + place.format("0pen5esame")
    for words in (["keys", "list"], ["store", "version"]):
        assert run([*words, "--store", url]) == 1
        printed = capsys.readouterr()
        assert "0pen5esame" not in printed.out + printed.err
        assert "$PGPASSWORD" in printed.err or "postgresql://USER@HOST" in printed.err
        assert len(printed.err.splitlines()) == 1


def test_the_password_comes_from_the_environment_or_a_file(
    postgresql: PostgreSQL,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As every program of PostgreSQL reads it; a wrong one is not shown when it is refused."""
    postgresql.new()
    url = postgresql.url("public", GUARDED)
    monkeypatch.setenv("PGPASSWORD", "wr0ngwr0ng")
    assert run(["store", "version", "--store", url]) == 1
    refused = capsys.readouterr().err
    assert "password authentication failed" in refused
    assert "wr0ng" not in refused
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert run(["store", "version", "--store", url]) == 0
    monkeypatch.delenv("PGPASSWORD")
    file = tmp_path / "passwords"
    file.write_text(f"*:*:*:{GUARDED}:{PASSWORD}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    assert run(["store", "version", "--store", url]) == 0
    assert PASSWORD not in capsys.readouterr().out


def test_what_cannot_be_a_store_is_named_at_the_start(postgresql: PostgreSQL, url: str) -> None:
    """Another program's tables, which stay as they are; a database that is not there; one that nobody may write to."""
    schema = url.rpartition("%3D")[2]
    postgresql.sql(f"CREATE TABLE {schema}.theirs (x int)")
    with pytest.raises(StoreError, match="belongs to another program"):
        Store.open(url)
    assert postgresql.sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'") == [("theirs",)]
    with pytest.raises(StoreError, match='database "nowhere" does not exist'):
        Store.open(url.replace("/postgres?", "/nowhere?"))
    with pytest.raises(StoreError, match="session is read-only"):
        Store.open(url.replace("%3D" + schema, f"%3D{schema}%20-cdefault_transaction_read_only%3Don"))


def test_many_processes_make_one_store(url: str) -> None:
    """Of servers that start at once on an empty database one makes the tables, and the others wait for it."""
    barrier = threading.Barrier(6)

    def opened(_: int) -> int:
        barrier.wait(100)
        store = Store.open(url)
        stream = store.open_stream(None)
        store.close()
        return stream

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(opened, range(6))) == [1, 2, 3, 4, 5, 6]


def test_every_commit_is_on_disk_before_it_returns(postgresql: PostgreSQL, url: str) -> None:
    """Though the database or the user says that it need not be; and readers write nothing."""
    store = Store.open(url + "%20-csynchronous_commit%3Doff")

    def shown(opened: AbstractContextManager[View], name: str) -> object:
        with opened as view:
            return view._connection.exec_driver_sql(f"SHOW {name}").scalar_one()

    assert shown(store.transaction(), "synchronous_commit") == "on"
    assert shown(store.transaction(), "transaction_isolation") == "read committed"
    assert shown(store.view(), "transaction_isolation") == "repeatable read"
    assert shown(store.view(), "transaction_read_only") == "on"
    store.close()
    assert postgresql.sql("SHOW fsync") == [("on",)]


# What is lost with a connection


def test_a_turn_ends_with_its_connection_and_nothing_more_of_it_is_kept(
    postgresql: PostgreSQL, url: str, store: Store
) -> None:
    """Neither what is in hand nor what is begun after; another process has the turn meanwhile."""
    folder = Store.open(url + "&application_name=turn")
    stream = store.open_stream(None)

    def cut_off(turn: Turn) -> None:
        with turn.transaction() as writing:
            writing.append(stream, [b"lost"], 0)
            (pid,) = postgresql.sql(
                "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) "
                "WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND application_name = 'turn'"
            )
            assert postgresql.sql(f"SELECT pg_terminate_backend({pid[0]}, 60000)") == [(True,)]

    with folder.turn_to_fold() as turn:
        assert turn
        with pytest.raises(DBAPIError):
            cut_off(turn)
        with store.turn_to_fold() as other:
            assert other
            with pytest.raises(Overtaken, match="turn to fold was lost"), turn.transaction() as writing:
                writing.append(stream, [b"lost too"], 0)
            with other.transaction() as writing:
                writing.append(stream, [b"kept"], 0)
    with store.view() as view:
        assert view.unfolded() == 1
    with folder.turn_to_fold() as turn:
        assert turn
    folder.close()


# Several servers, and a database that goes and comes


class Load:
    """Uploads of one report each, by several threads, until it is told to stop; each is sent once.

    answers: to each upload the status, 0 for no answer, and whether it says when to come again.
    """

    def __init__(self, survey: Survey, key: SealingKey, *urls: str) -> None:
        self.answers: list[tuple[bytes, int, bool]] = []
        self._make = lambda: envelope(survey, key, [report(1)])
        self._urls = urls
        self._stop = threading.Event()

    @property
    def acknowledged(self) -> int:
        return sum(status == 200 for _, status, _ in self.answers)

    @property
    def doubtful(self) -> list[bytes]:
        return [sealed for sealed, status, _ in self.answers if status != 200]

    @contextmanager
    def running(self, threads: int = 4) -> Iterator[None]:
        with ThreadPoolExecutor(threads) as pool:
            sending = [pool.submit(self._send, number) for number in range(threads)]
            try:
                yield
            finally:
                self._stop.set()
            for each in sending:
                each.result()

    def _send(self, number: int) -> None:
        random = Random(number)
        while not self._stop.is_set():
            sealed = self._make()
            try:
                answer = httpx.post(random.choice(self._urls) + "/v1/uploads", content=body(sealed), timeout=100)
            except httpx.HTTPError:
                self.answers.append((sealed, 0, False))
                continue
            if answer.status_code == 200:
                assert decode(answer.content) == {"refused": []}
            self.answers.append((sealed, answer.status_code, "retry-after" in answer.headers))


def sent_again(server: ServerProcess, uploads: list[bytes]) -> None:
    for at in range(0, len(uploads), 50):
        assert server.upload(*uploads[at : at + 50]) == []


@contextmanager
def two_servers(folder: Path, url: str) -> Iterator[tuple[ServerProcess, ServerProcess, Survey, SealingKey]]:
    """Two servers on one store, in the first period's wake."""
    for name in "ab":
        (folder / name).mkdir()
    with (
        ServerProcess(folder / "a", "--movable-clock", store=url) as first,
        ServerProcess(folder / "b", "--movable-clock", store=url) as second,
    ):
        first.move_clock(START)
        key, survey = first.new_key(), first.new_survey()
        for server in (first, second):
            server.move_clock(survey.calendar.time(1) + 16)
            server.fold()  # which reads what is published, too
        yield first, second, survey, key


def test_the_same_envelopes_to_two_servers_at_once_count_once(tmp_path: Path, url: str) -> None:
    """Each in a transaction of either server, while both fold; and sealed anew with the same id, too."""
    closings, rounds = 20, 12
    with two_servers(tmp_path, url) as (first, second, survey, key):
        at_once = threading.Barrier(4)

        def send(number: int) -> None:
            server, random = (first, second)[number % 2], Random(number)
            with httpx.Client(base_url=server.url, timeout=100) as http:
                for each in rounds_of_uploads:
                    mine = [*each[number // 2]]
                    random.shuffle(mine)
                    at_once.wait(100)
                    http.post("/v1/uploads", content=body(*mine)).raise_for_status()
                    if number % 2:
                        server.fold()

        rounds_of_uploads = []
        for _ in range(rounds):
            ids = [os.urandom(16) for _ in range(closings)]
            rounds_of_uploads.append([[envelope(survey, key, [report(1, id_=id_)]) for id_ in ids] for _ in range(2)])
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(send, range(4)))
        for server in (first, second):
            assert server.reports(survey) == {(0, 1): closings * rounds}
            assert server.status(survey)["refused"] == {"duplicate": 3 * closings * rounds}
            assert server.http.get("/readyz").json()["status"] == "ok"


@pytest.mark.parametrize("mode", ["fast", pytest.param("immediate", marks=pytest.mark.heavy)])
def test_a_restart_of_the_database_under_load_loses_nothing(
    postgresql: PostgreSQL, tmp_path: Path, url: str, mode: str
) -> None:
    """Shut down or crashed: meanwhile 503 with Retry-After and a health that says why; then on by itself.

    Whatever was acknowledged is counted, once; what was not may be sent again.
    """
    with two_servers(tmp_path, url) as (first, second, survey, key):
        load = Load(survey, key, first.url, second.url)
        with load.running():
            assert eventually(lambda: load.acknowledged > 20, True)
            postgresql.stop(mode)
            try:
                assert eventually(lambda: status_and_troubles(first) == (503, True), True)
                assert eventually(lambda: status_and_troubles(second) == (503, True), True)
            finally:
                postgresql.start()
            acknowledged = load.acknowledged
            assert eventually(lambda: first.http.get("/readyz").status_code, 200)
            assert eventually(lambda: second.http.get("/readyz").status_code, 200)
            assert eventually(lambda: load.acknowledged > acknowledged + 20, True)
        assert {answer[1:] for answer in load.answers} == {(200, False), (503, True)}
        for server in (first, second):  # whose fold may have connections of before, the first use of which says 503
            assert eventually(lambda: server.http.post("/v1/fold", headers=ADMIN).status_code, 200)  # noqa: B023
        sent_again(second, load.doubtful)
        for server in (first, second):
            assert server.reports(survey) == {(0, 1): len(load.answers)}


def status_and_troubles(server: ServerProcess) -> tuple[int, bool]:
    answer = server.http.get("/readyz")
    return answer.status_code, any(
        each["name"] == "store" and "PostgreSQL cannot be reached" in each["detail"]
        for each in answer.json()["troubles"]
    )


@pytest.mark.heavy
def test_servers_killed_under_load_lose_nothing_of_what_they_acknowledged(tmp_path: Path, url: str) -> None:
    """SIGKILL to one of two servers, four times, while both append and fold; the other goes on."""
    with two_servers(tmp_path, url) as (first, _, survey, key):
        sent = 0
        for number in range(4):
            (tmp_path / str(number)).mkdir()
            with ServerProcess(tmp_path / str(number), "--movable-clock", store=url) as third:
                third.put_clock(survey.calendar.time(1) + 16)  # where it is not later already
                third.fold()
                load = Load(survey, key, first.url, third.url)
                with load.running():
                    assert eventually(lambda: load.acknowledged > 20, True)  # noqa: B023
                    time.sleep(0.02 * number)
                    third.kill()
                    acknowledged = load.acknowledged
                    assert eventually(lambda: bool(load.doubtful), True)  # noqa: B023
                    assert eventually(lambda: load.acknowledged > acknowledged + 5, True)  # noqa: B023
            assert {answer[1:] for answer in load.answers} == {(200, False), (0, False)}
            sent_again(first, load.doubtful)
            sent += len(load.answers)
            assert first.reports(survey) == {(0, 1): sent}


def test_a_store_knows_by_itself_that_its_database_is_back(postgresql: PostgreSQL, store: Store) -> None:
    """Though nobody asks it for anything meanwhile; and the next transaction is as any other."""
    postgresql.stop()
    try:
        with pytest.raises(DBAPIError):
            store.open_stream(None)
        assert store.trouble() == "PostgreSQL cannot be reached: uploads are turned away until it is back"
    finally:
        postgresql.start()
    assert eventually(store.trouble, None)
    assert store.open_stream(None) == 1
