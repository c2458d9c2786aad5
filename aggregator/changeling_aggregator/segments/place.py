"""What is asked of a place that holds segments: `folder` and `bucket` answer it.

A file is there whole or not at all, and is never changed. Nothing here is secret: a place's name may be shown.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple


class Kept(NamedTuple):
    """A file at a place. written: Unix seconds. size: bytes."""

    name: str
    written: float
    size: int


class Place(ABC):
    """Where segments lie. name: as `--segments` names it, and as the catalogue keeps it."""

    name: str

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Keep a file, durable when this returns. Raises Unwritable: then the file may be there or not."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """A file's bytes. Raises SegmentLost where it is not there or cannot be read."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete a file, if it is there. Raises Unwritable."""

    @abstractmethod
    def kept(self, *prefixes: str) -> Iterator[Kept]:
        """The files whose names begin with one of these; the place is listed once. Raises Unwritable where it cannot be
        read."""

    @abstractmethod
    def trouble(self) -> str | None:
        """Why nothing can be kept here, as far as can be told at once; None where all is well."""
