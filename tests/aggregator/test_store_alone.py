"""What has to have a store to itself gets it, or says who has it open; and nobody opens it meanwhile."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from changeling_aggregator.errors import StoreError
from changeling_aggregator.server.responses import answer_to
from changeling_aggregator.store import Store
from changeling_aggregator.store.log import open_stream
from changeling_aggregator.store.schema import VERSION, versions
from changeling_commands.__main__ import main as run
from sqlalchemy import update
from sqlalchemy.exc import DBAPIError

from ..contracts.stores import PLACES, Place
from ..postgres import PostgreSQL
from .serving import eventually

ALONE = {
    "reencrypt": ("keys", "reencrypt", "--new-store-key-file", "new.key"),
    "upgrade": ("store", "upgrade"),
    "downgrade": ("store", "downgrade", "--to", VERSION),
}
LOSE = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'changeling'"
"""Ends every connection to a store, and waits until it has ended."""
HOLD = "import sys; from changeling_aggregator.store import Store; held = Store.open(sys.argv[1]); print(); input()"


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Where a store lies, in a folder that has a store key."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.key").write_text("ab" * 32)
    return PLACES[request.param](request)


@pytest.mark.parametrize("words", ALONE.values(), ids=ALONE)
def test_what_must_be_alone_is_refused_beside_others_and_names_them(
    place: Place, words: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With nothing changed; once the last has closed it, it is done."""
    first, second = place.open(), place.open()
    command = [*words, "--store", place.name]
    for held in (first, second):
        assert run(command) == 1
        said = capsys.readouterr().err
        assert "in use by " in said
        assert "stop every server" in said
        who = "changeling at the database's own machine" if "://" in place.name else f"process {os.getpid()}"
        assert who in said
        held.close()
    assert run(command) == 0


def test_nobody_opens_a_store_that_one_has_alone(place: Place) -> None:
    """Nor has a second it alone; together with others it is open to all."""
    alone = Store.open(place.name, alone=True)
    with pytest.raises(StoreError, match="is in use by "):
        Store.open(place.name, alone=True)
    with pytest.raises(StoreError, match="is being changed by "):
        place.open()
    alone.close()
    together = [place.open() for _ in range(2)]
    for each in together:
        each.close()


def test_what_a_killed_process_held_is_free(place: Place) -> None:
    """Its end is enough; nobody has to clear anything away."""
    place.open().close()
    process = subprocess.Popen([sys.executable, "-c", HOLD, place.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    with pytest.raises(StoreError, match="is in use by "):
        Store.open(place.name, alone=True)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    def free() -> bool:
        with suppress(StoreError), closing(Store.open(place.name, alone=True)):
            return True
        return False

    assert eventually(free, True)  # PostgreSQL has to notice


def test_a_store_is_held_again_once_its_connections_were_lost(postgresql: PostgreSQL) -> None:
    """On whichever connection is made next, before anything is done on it."""
    url = postgresql.new()
    store = Store.open(url)
    postgresql.sql(LOSE)
    with pytest.raises(Exception, match=r"(?i)terminat|closed"), store.reading() as connection:
        connection.exec_driver_sql("SELECT 1")
    with store.reading() as connection:
        connection.exec_driver_sql("SELECT 1")
    with pytest.raises(StoreError, match="is in use by "):
        Store.open(url, alone=True)
    store.close()


def test_who_lost_its_connections_uses_no_tables_that_were_changed_meanwhile(postgresql: PostgreSQL) -> None:
    """A server that was cut off while its store was upgraded writes nothing to it, as by an older program."""
    url = postgresql.new()
    store = Store.open(url)
    postgresql.sql(LOSE)
    with closing(Store.open(url, alone=True)) as alone, alone.writing() as connection:
        connection.execute(update(versions).values(version_num="9999"))
    for _ in range(3):
        with pytest.raises((DBAPIError, StoreError)) as raised, store.writing() as connection:
            open_stream(connection)
    assert "changed meanwhile" in str(raised.value)
    store.close()


def test_a_request_that_finds_the_store_held_alone_is_told_to_come_again(postgresql: PostgreSQL) -> None:
    """It is no defect of the server, which lost its connections; and the next request finds the store again."""
    url = postgresql.new()
    store = Store.open(url)
    postgresql.sql(LOSE)
    with closing(Store.open(url, alone=True)):
        for _ in range(3):
            with pytest.raises((DBAPIError, StoreError)) as raised, store.reading() as connection:
                connection.exec_driver_sql("SELECT 1")
            assert answer_to(raised.value).status_code == 503
    with store.reading() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    store.close()
