"""Where the committer puts uploads is a `LogWriter`: rows of the store, or segments."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from changeling_protocol import RefusalCounts, UnixMilliseconds

from .gathering import Pace


class LogWriter(ABC):
    """Writes to streams of its own. pace: how many threads may write at the same time, and how often."""

    pace: ClassVar[Pace] = Pace()

    @abstractmethod
    def write(self, bodies: Sequence[bytes], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        """Append requests, which are durable when this returns, and count refusals. Raises what keeps it from that.

        now: Unix milliseconds. Where both are empty it tries whether it could write.
        """

    def trouble(self) -> str | None:
        """Why nothing should be written, as far as can be told at once; None where all is well."""
        return None

    @abstractmethod
    def flush(self) -> None:
        """Let the fold find all that was written. Raises what keeps it from that."""

    @abstractmethod
    def close(self) -> None:
        """End, once the fold can find all that was written."""
