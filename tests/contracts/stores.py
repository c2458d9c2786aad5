"""Every store that there is, each opened as often as a test likes: as several processes would open it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from changeling_aggregator.store import Store


class Place(ABC):
    """Where one store lies; whoever opens it gets connections of their own to the same contents."""

    @abstractmethod
    def open(self) -> Store:
        """The store, made if there is none."""


class SQLitePlace(Place):
    """A file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "store.db"

    def open(self) -> Store:
        return Store.open(self._path)


PLACES: dict[str, Callable[[Path], Place]] = {"sqlite": SQLitePlace}
"""By name; a store of another kind is put to the whole contract by a line here."""
