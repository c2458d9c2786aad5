"""A new kind of store, in this file alone: it keeps the whole contract of stores, at a URL of its own scheme.

The toy is a SQLite file again, said as shortly as a database can be: whoever adds a store writes what stands between
the two lines.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from weakref import finalize

import pytest
from changeling_aggregator import StoreError
from changeling_aggregator.store import Database, Store, Transactions, in_use, register_database
from changeling_aggregator.testing import StoreContract
from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, NullPool, create_engine, event

# ----------------------------------------------------------------------------------------------------------------------


class ToyDatabase(Database):
    """A file at toy://PATH. Readers see one state, as SQLite's log of writes is on; writers wait for each other."""

    def __init__(self, url: str, alone: bool) -> None:
        self.name, self._path = url, Path(url.removeprefix("toy://"))
        held = os.open(self._path.with_suffix(".held"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(held, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            raise StoreError(in_use(url, "another process", alone)) from None
        self._let_go = finalize(self, os.close, held)
        place = URL.create("sqlite", database=str(self._path))
        self.engine = create_engine(place, poolclass=NullPool, connect_args={"timeout": 60, "isolation_level": None})
        event.listen(self.engine, "connect", lambda connection, _: connection.execute("PRAGMA journal_mode = WAL"))
        event.listen(self.engine, "begin", self._begin)

    def reader(self) -> Connection:
        return self.engine.connect()

    def writer(self, once: bool = False) -> Connection:  # noqa: ARG002
        return self.engine.connect().execution_options(writer=True)

    @contextmanager
    def turn(self) -> Iterator[Transactions | None]:
        lock = FileLock(self._path.with_suffix(".fold"), thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield None
            return
        try:
            yield self.writing
        finally:
            lock.release()

    def forget_overwritten(self) -> bool:
        with self.engine.connect() as connection:
            (busy, *_) = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
            return not busy

    def bytes_kept(self) -> int:
        return self._path.stat().st_size

    def close(self) -> None:
        super().close()
        self._let_go()

    @staticmethod
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writer", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


register_database("toy", ToyDatabase)

# ----------------------------------------------------------------------------------------------------------------------


class TestToyStore(StoreContract):
    """The contract, which asks for nothing that the toy has not."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[..., Store]:
        return partial(Store.open, f"toy://{tmp_path}/toy.db")
