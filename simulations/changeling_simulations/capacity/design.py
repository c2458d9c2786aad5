"""Where a log lies and who folds it, and which of these a demand needs: the simplest that has room for it."""

from collections.abc import Mapping
from enum import StrEnum


class Design(StrEnum):
    """How a server's work is divided; each divides more than the one before, and takes more to run."""

    STORE = "store"
    """One database has log, ids and tallies; one server accepts, and one machine folds."""
    SEGMENTS = "segments"
    """The log lies in an object store: several servers accept, and no disk limits it. One machine folds."""
    SPARK = "spark"
    """The same, and a Spark cluster folds, whose ids lie in the object store as well."""


ACCEPTING, DISK = "one process to accept", "one disk"
OPENING, COUNTING = "one machine to open", "one process to count"
IDS = "a day's ids in the memory of one fold"

_DIVIDED = {Design.STORE: frozenset[str](), Design.SEGMENTS: frozenset({ACCEPTING, DISK})}
"""By design, the limits of one server with one store that it does away with; SPARK does away with all."""


def needed(limits: Mapping[str, float]) -> Design:
    """The first design that does away with every limit which is exceeded.

    limits: of one server with one store, how many times over each is asked for.
    """
    over = {name for name, times in limits.items() if times > 1}
    return next((design for design, divided in _DIVIDED.items() if over <= divided), Design.SPARK)
