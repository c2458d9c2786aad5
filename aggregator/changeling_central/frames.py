"""What a frame of pandas or polars is to this package: columns by their names. Imports neither library."""

from collections.abc import Iterable
from typing import Protocol


class Frame(Protocol):
    """A frame of pandas or polars."""

    @property
    def columns(self) -> Iterable[str]:
        """The names of the columns."""
        ...

    def __getitem__(self, name: str, /) -> object:
        """The column of this name."""
        ...
