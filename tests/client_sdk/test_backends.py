"""The contract of stores, kept by a file of SQLite and by a real PostgreSQL."""

import shutil
from contextlib import suppress

import pytest
from changeling_client import StoreBusy
from changeling_client.postgresql import _Connection, _named_tables

from .store_contract import Pods, StoreContract

TABLES = _named_tables()


class TestSQLite(StoreContract):
    @pytest.fixture
    def pods(self, tmp_path):
        return Pods(path=tmp_path / "store" / "store.db")

    @pytest.fixture
    def kept(self, tmp_path):
        return lambda: b"".join(file.read_bytes() for file in (tmp_path / "store").iterdir())

    @pytest.fixture
    def backup(self, tmp_path):
        def copy():
            shutil.copytree(tmp_path / "store", tmp_path / "copy")
            return lambda: (shutil.rmtree(tmp_path / "store"), shutil.copytree(tmp_path / "copy", tmp_path / "store"))

        return copy


class TestPostgreSQL(StoreContract):
    @pytest.fixture
    def pods(self, postgresql):
        return Pods(database=postgresql.new())

    @pytest.fixture
    def kept(self, postgresql):
        def files():
            postgresql.sql("CHECKPOINT")
            return b"".join(path.read_bytes() for path in (postgresql.data / "base").rglob("*") if path.is_file())

        return files

    @pytest.fixture
    def backup(self, postgresql, pods):
        schema = pods.options["database"].rpartition("%3D")[2]

        def copy():
            postgresql.sql(f"CREATE SCHEMA {schema}_copy")
            for table in TABLES:
                postgresql.sql(f"CREATE TABLE {schema}_copy.{table} AS SELECT * FROM {schema}.{table}")
            return put_back

        def put_back():
            postgresql.sql(f"TRUNCATE {', '.join(f'{schema}.{table}' for table in TABLES)}")
            for table in TABLES:
                postgresql.sql(f"INSERT INTO {schema}.{table} SELECT * FROM {schema}_copy.{table}")

        return copy


def lived(postgresql, lose_at):
    """A flush of two entries, whose connection the database ends at one of its statements, and then as many as it
    takes. Returns how many statements there were at least, and the reports."""
    pods, count, connection_execute = Pods(database=postgresql.new()), 0, _Connection.execute
    with pods.client() as client:
        pods.join(client, entries=2).record("tea", 1)
        pods.clock.advance(days=1)

        def execute(self, statement, values=()):
            nonlocal count
            count += 1
            if count == lose_at:
                postgresql.sql(f"SELECT pg_terminate_backend({self.opened.info.backend_pid}, 5000)")
            return connection_execute(self, statement, values)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_Connection, "execute", execute)
            for _ in range(5):
                with suppress(StoreBusy):
                    client.flush()
        assert client._device.store.interrupts() is False
    return count, pods.server.reports


@pytest.mark.heavy
def test_a_connection_that_is_lost_anywhere_answers_nothing_twice(postgresql):
    """At every seventh statement of a flush: what was begun is undone, and in the end each entry has answered once."""
    count, _ = lived(postgresql, 0)
    assert count > 40
    for lose_at in range(1, count, 7):
        _, reports = lived(postgresql, lose_at)
        assert len({report.closing for report in reports}) == 2, lose_at
        assert sorted(report.says for report in reports) == ["from no answer to tea", "no change"], lose_at
