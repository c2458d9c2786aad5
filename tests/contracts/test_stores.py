"""Every store that there is keeps the contract of stores."""

from pathlib import Path

import pytest
from changeling_aggregator.store import IN_CLEAR, AtRest, Store
from changeling_aggregator.testing import Opener, StoreContract

from ..postgres import PostgreSQL


class TestSQLite(StoreContract):
    """A store in a file."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Opener:
        return lambda at_rest=IN_CLEAR: Store.open(tmp_path / "store.db", at_rest)


class TestPostgreSQL(StoreContract):
    """A store in a schema of a database."""

    @pytest.fixture
    def open_store(self, postgresql: PostgreSQL) -> Opener:
        place = postgresql.new()

        def opened(at_rest: AtRest = IN_CLEAR) -> Store:
            return Store.open(place, at_rest)

        return opened
