"""Fold engines: the process of this machine, and those that other packages bring, found by their entry point.

A package names its engine in the group `changeling.fold_engines`; `changeling fold --engine NAME` then finds it. An
engine is held to the contract in `changeling_aggregator.testing`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol

from changeling_protocol import UnixSeconds

from ..store import Store
from .folding import FoldReport

EMBEDDED = "embedded"
GROUP = "changeling.fold_engines"


class FoldEngine(Protocol):
    """Folds a store from outside the process that asks for it, one fold at a time."""

    def await_start(self) -> None:
        """Be ready to fold: the time that `fold` is told must not be an old one when it hears it."""

    def fold(self, now: UnixSeconds, *, closing: bool) -> FoldReport:
        """As `folding.fold`, or some of it. Call `await_start` before. Raises what the fold raised."""
        ...

    def close(self) -> None:
        """End, with what is in hand where that does not take long."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of an engine beyond one machine, as `changeling fold` takes them.

    master: URL of the cluster. shared: a folder or URL that this machine and all executors reach. checkpoint: where a
    query that follows the log keeps its progress; None to fold once. executor_memory: of each executor, such as 1g.
    """

    master: str
    shared: str
    checkpoint: str | None = None
    executor_memory: str = "1g"


class EnginePlugin(Protocol):
    """The object that an entry point of the group names."""

    def missing(self) -> str | None:
        """What the engine lacks on this machine, and how to get it; None where nothing is missing."""

    def start(self, store: Store, options: EngineOptions) -> FoldEngine:
        """An engine that folds this store. Raises AggregatorError or ValueError where it cannot."""
        ...


def engine_plugin(name: str) -> EnginePlugin:
    """The installed engine of this name. Raises ValueError, with the names that there are."""
    for found in entry_points(group=GROUP, name=name):
        plugin: EnginePlugin = found.load()
        return plugin
    raise ValueError(f"there is no fold engine {name!r}, but {', '.join(engine_names())}")


def engine_names() -> Sequence[str]:
    """The names of the engines that are installed."""
    return [EMBEDDED, *sorted(entry_points(group=GROUP).names)]
