"""Results that a server shows of its surveys, as arrays and data frames, for notebooks and scripts.

from changeling_reader import Reader

with Reader("https://surveys.example.org") as reader:
    series = reader.series("0a1b…", method="retrospective")
    series.frame()
    series.plot()

`ServerClient` is what commands and fleets ask a server with; where the server answers an error it raises
`ServerAnswered`, and httpx's own errors where it cannot be reached.
"""

from typing import TYPE_CHECKING

from .client import ServerAnswered, ServerClient

if TYPE_CHECKING:
    from .reader import Differences, Estimates, Numbers, Reader

__all__ = ["Differences", "Estimates", "Numbers", "Reader", "ServerAnswered", "ServerClient"]


def __getattr__(name: str) -> object:
    """The names that need numpy are imported where they are asked for: commands do without."""
    if name in ("Differences", "Estimates", "Numbers", "Reader"):
        from . import reader

        return getattr(reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
