"""A store on PostgreSQL: how it is named and guarded, what is lost with a connection, several servers, restarts."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from re import findall

import pytest
from changeling_aggregator import Overtaken, StoreError
from changeling_aggregator.ingest import RowWriter
from changeling_aggregator.store import Store, Turn, View
from changeling_aggregator.store import postgresql as room
from changeling_aggregator.testing import sql
from changeling_aggregator.testing.services import GUARDED, PASSWORD, PostgreSQL
from changeling_commands import main as run
from changeling_protocol import Calendar, Refusal
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from ..protocol.examples import survey
from .devices import START, Log, body, envelope, report, split, upload
from .serving import ADMIN, Cli, ServerProcess, eventually


@pytest.fixture
def store(postgresql_store: Store) -> Store:
    return postgresql_store


# Appending


def test_much_is_appended_as_little_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order and without gaps, by either way; a connection that is lost is told, and the next is another."""
    stream = store.open_stream()
    bodies = [bytes([number]) * 10 for number in range(4)]
    for number, each in enumerate(bodies):
        monkeypatch.setattr(room, "MUCH_BYTES", 0 if number % 2 else 2**20)
        store.append({stream: [each, each]}, 1000 + number)
    monkeypatch.setattr(room, "MUCH_BYTES", 0)

    def lose() -> None:
        with store.transaction() as writing:
            mine = writing._connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            assert sql(store, f"SELECT pg_terminate_backend({mine}, 60000)")
            writing._append(stream, [b"lost"], 1500)

    with pytest.raises(DBAPIError):
        lose()
    store.append({stream: [b"last"]}, 2000)
    with store.view() as view:
        logged = [(each.position, each.body, each.arrival) for each in view.kept_requests()]
    arrived = [(body, 1000 + number) for number, body in enumerate(bodies) for _ in range(2)]
    assert logged == [(at, *each) for at, each in enumerate([*arrived, (b"last", 2000)], 1)]


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
    writer.write(split(upload(b"first")), Counter(), 0)  # which opens a stream
    with overheard(store, tmp_path / "spoken") as asked:
        writer.write(split(upload(b"some")) * 3, Counter(), 1)
        assert asked() == 1
        writer.write(split(upload(b"more")), Counter({(bytes(16), Refusal.CLOSED): 1}), 2)
        assert asked() > 4
    with closing(Store.open(store.place)) as opened, opened.view() as view:
        assert [each.position for each in view.unread(9, 9999)] == [1, 2, 3, 4, 5]


def setting(opened: AbstractContextManager[View], name: str) -> object:
    """Of a transaction."""
    with opened as view:
        return view._connection.exec_driver_sql(f"SHOW {name}").scalar_one()


def test_a_statement_by_itself_waits_for_others_whatever_the_database_says(url: str) -> None:
    """Where transactions are serializable by default, the second of two who append at once would else fail."""
    serializable = url.replace("&options=", "&options=-c%20default_transaction_isolation%3Dserializable%20")
    with closing(Store.open(serializable)) as store:
        assert setting(store.transaction(once=True), "transaction_isolation") == "read committed"


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
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As every program of PostgreSQL reads it; a wrong one is not shown when it is refused."""
    url = url.replace("//changeling@", f"//{GUARDED}@")
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
        with closing(Store.open(url)) as store:
            return store.open_stream()

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(opened, range(6))) == [1, 2, 3, 4, 5, 6]


def test_every_commit_is_on_disk_before_it_returns(postgresql: PostgreSQL, url: str) -> None:
    """Though the database or the user says that it need not be; and readers write nothing."""
    with closing(Store.open(url + "%20-csynchronous_commit%3Doff")) as store:
        assert setting(store.transaction(), "synchronous_commit") == "on"
        assert setting(store.transaction(), "transaction_isolation") == "read committed"
        assert setting(store.view(), "transaction_isolation") == "repeatable read"
        assert setting(store.view(), "transaction_read_only") == "on"
    assert postgresql.sql("SHOW fsync") == [("on",)]


# What is lost with a connection


def test_a_turn_ends_with_its_connection_and_nothing_more_of_it_is_kept(
    postgresql: PostgreSQL, url: str, store: Store
) -> None:
    """Neither what is in hand nor what is begun after; another process has the turn meanwhile."""

    def cut_off(turn: Turn) -> None:
        with turn.transaction() as writing:
            writing.add_survey(bytes(16), b"lost")
            (pid,) = postgresql.sql(
                "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) "
                "WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND application_name = 'turn'"
            )
            assert postgresql.sql(f"SELECT pg_terminate_backend({pid[0]}, 60000)") == [(True,)]

    with closing(Store.open(url + "&application_name=turn")) as folder:
        with folder.turn_to_fold() as turn:
            assert turn
            with pytest.raises(DBAPIError):
                cut_off(turn)
            with store.turn_to_fold() as other:
                assert other
                with pytest.raises(Overtaken, match="turn to fold was lost"), turn.transaction() as writing:
                    writing.add_survey(bytes(16), b"lost too")
                with other.transaction() as writing:
                    writing.add_survey(bytes(16), b"kept")
        with store.view() as view:
            assert [each.signed for each in view.surveys().values()] == [b"kept"]
        with folder.turn_to_fold() as turn:
            assert turn


# Several servers, and a database that goes and comes


@pytest.mark.heavy
def test_a_restart_of_the_database_is_told_and_over_by_itself(
    postgresql: PostgreSQL, tmp_path: Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Meanwhile 503 with Retry-After, and a health that says why; the log says so in lines, without tracebacks. Under
    load `test_killed_at_each_write` restarts it."""
    with ServerProcess(tmp_path, "--movable-clock", store=url) as server:
        server.move_clock(START)
        key, asked = server.key, server.new_survey()
        server.move_clock(asked.calendar.time(1) + 16)
        sealed = [body(envelope(asked, key, [report(1)])) for _ in range(2)]

        def sent(upload: bytes) -> tuple[int, bool]:
            answer = server.http.post("/v1/uploads", content=upload)
            return answer.status_code, "retry-after" in answer.headers

        assert sent(sealed[0]) == (200, False)
        postgresql.stop()
        try:
            assert eventually(lambda: sent(sealed[1]), (503, True))
            troubles = server.http.get("/readyz").json()["troubles"]
            assert any("PostgreSQL cannot be reached" in each["detail"] for each in troubles)
        finally:
            postgresql.start()
        assert eventually(lambda: server.http.get("/readyz").status_code, 200)
        assert eventually(lambda: sent(sealed[1]), (200, False))
        assert eventually(lambda: server.http.post("/v1/fold", headers=ADMIN).status_code, 200)
        assert server.reports(asked) == {(0, 1): 2}
    assert "Traceback" not in capfd.readouterr().err


# What operators type


@pytest.mark.heavy
def test_every_command_for_a_store_works_on_postgresql(
    postgresql: PostgreSQL, tmp_path: Path, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    """keys, fold, fold --check, doctor, backup and restore, token and store, one after the other."""
    url, other, keyed = postgresql.new(), postgresql.new(), " --store-key-file store.key"

    def says(words: str, sentence: str, store: str = url) -> None:
        assert sentence in cli(*words.split(), "--store", store)

    (tmp_path / "store.key").write_text("ab" * 32)
    now = int(time.time())
    log = Log.of(Store.open(url), survey(calendar=Calendar(now - 90, 60, 8)))
    for _ in range(2):
        log.append_reports(now, [report(1, 2)])
    log.store.close()
    says("keys new -o key.request", "key.request")
    says("keys list", "in the clear")
    says("keys reencrypt --new-store-key-file store.key", "2 private keys")
    says("keys list", "encrypted")
    assert run(["fold", "--store", url]) == 1
    assert "encrypted" in capsys.readouterr().err
    says("fold" + keyed, "2 envelopes, 2 reports; refused: none")
    says("fold --check" + keyed, "comes to the same")
    says("token new --name me --scope read", "changeling_")
    says("token list", " me ")
    run(["doctor", "--store", url, *keyed.split()])
    found = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ok") and "store: schema version" in line for line in found)
    assert not [line for line in found if "store-key" in line]
    says("backup -o kept.backup", "0 uploads")
    says("restore kept.backup", "is what the store was at", other)
    says("store version", "schema version", other)
    restored = replace(log, store=Store.open(other))
    assert restored.tallies()[0, 1][0] == 2
    restored.store.close()
