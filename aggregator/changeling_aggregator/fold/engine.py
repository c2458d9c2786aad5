"""What folds for whoever decides when: a process of this machine, or a cluster."""

from typing import Protocol

from changeling_protocol import UnixSeconds

from .folding import FoldReport


class FoldEngine(Protocol):
    """Folds a store from outside the process that asks for it, one fold at a time."""

    def await_start(self) -> None:
        """Be ready to fold: the time that `fold` is told must not be an old one when it hears it."""

    def fold(self, now: UnixSeconds, *, closing: bool) -> FoldReport:
        """As `folding.fold`, or some of it. Call `await_start` before. Raises what the fold raised."""
        ...

    def close(self) -> None:
        """End, with what is in hand where that does not take long."""
