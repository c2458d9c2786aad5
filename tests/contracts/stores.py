"""Every store that there is, each opened as often as a test likes: as several processes would open it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from changeling_aggregator.store import IN_CLEAR, AtRest, Store
from changeling_aggregator.testing.services import PostgreSQL


@dataclass(frozen=True, slots=True)
class Place:
    """Where one store lies; whoever opens it gets connections of their own to the same contents.

    name: a path or a URL, as `--store` takes it.
    """

    name: str

    def open(self, at_rest: AtRest = IN_CLEAR) -> Store:
        """The store, made if there is none."""
        return Store.open(self.name, at_rest)


def _file(request: pytest.FixtureRequest) -> Place:
    folder: Path = request.getfixturevalue("tmp_path")
    return Place(str(folder / "store.db"))


def _schema(request: pytest.FixtureRequest) -> Place:
    server: PostgreSQL = request.getfixturevalue("postgresql")
    return Place(server.new())


PLACES: dict[str, Callable[[pytest.FixtureRequest], Place]] = {"sqlite": _file, "postgresql": _schema}
"""By name; a store of another kind is put to the whole contract by a line here."""
