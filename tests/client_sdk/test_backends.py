"""The contract of stores, kept by a file of SQLite and by a real PostgreSQL."""

import shutil

import pytest
from changeling_aggregator.testing.postgres import PostgreSQL
from changeling_client.postgresql import _named_tables
from changeling_client.testing.store_contract import Pods, StoreContract

TABLES = _named_tables()


@pytest.fixture(scope="module")
def postgresql():
    with PostgreSQL() as running:
        yield running


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
