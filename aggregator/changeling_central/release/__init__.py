"""A release as a curator runs it: from a changelog, period by period, to rows on disk and a picture."""

from .output import Output
from .run import Release, run
from .wish import Wish

__all__ = [
    "Output",
    "Release",
    "Wish",
    "run",
]
