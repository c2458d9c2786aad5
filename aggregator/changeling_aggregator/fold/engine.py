"""Fold engines: what folds for whoever decides when. One is a process of this machine; packages bring others.

The process is told through a pipe which store to fold, the store key, and when to fold; nothing of that is in its
arguments, its environment or a file. It opens envelopes on all processors, and gives way to whoever else wants them.
It ends when whoever started it has ended, and may be killed at any time: what is not counted is counted later.

A package names its engine in the group `changeling.fold_engines` of entry points; `changeling fold --engine NAME` then
finds it. Every engine is held to the contract in `changeling_aggregator.testing`.
"""

import gc
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Protocol, cast

from changeling_protocol import UnixSeconds

from ..errors import FoldDied
from ..logs import log_in_json
from ..opening import OpeningProcesses
from ..store import AtRest, Store
from .folding import FoldReport, fold
from .ids import SeenIds

GROUP = "changeling.fold_engines"
SLICE_SECONDS = 5.0
"""After so long a fold answers, at the log's end or not, so that whoever asked can do what else is due."""
STOP_SECONDS = 2.0
"""A process that is told to end, and has not after so long, is killed."""
NICENESS = 10


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

    master: URL of the cluster. shared: a folder or URL that this machine and all executors reach. executor_memory: of
    each executor, such as 1g. conf: further settings of the cluster's own, each as NAME=VALUE.
    """

    master: str
    shared: str
    executor_memory: str = "1g"
    conf: tuple[str, ...] = ()


class EnginePlugin(Protocol):
    """The object that an entry point of the group names."""

    def missing(self) -> str | None:
        """The name of what the engine lacks on this machine, and how to get it; None where nothing is missing."""

    def start(self, store: Store, options: EngineOptions) -> FoldEngine:
        """An engine that folds this store. Raises AggregatorError or ValueError where it cannot."""
        ...


def engine_plugin(name: str) -> EnginePlugin:
    """The installed engine of this name. Raises ValueError, with the names that there are."""
    for found in entry_points(group=GROUP, name=name):
        plugin: EnginePlugin = found.load()
        return plugin
    names = ", ".join(["embedded", *sorted(entry_points(group=GROUP).names)])
    raise ValueError(f"there is no fold engine {name!r}, but {names}")


class FoldProcess:
    """Folds a store in a process that is started again where it has died.

    place: as `Store.open` takes it. at_rest: what private keys lie under.
    """

    def __init__(self, place: Path | str, at_rest: AtRest) -> None:
        self._place, self._at_rest = place, at_rest
        self._lock = Lock()
        self._process: SpawnProcess | None = None
        self._pipe: Connection[object, object] | None = None
        self._closed = self._listens = False

    def start(self) -> None:
        """Start the process, without waiting until it listens; where that is left out, the first fold does."""
        with self._lock:
            self._start()

    def await_start(self) -> None:
        """Start the process where there is none, and wait until it listens. Raises FoldDied, or why it cannot.

        A time that it is told must not be an old one when it hears it: what arrived after would look ahead of it.
        """
        with self._lock:
            if self._closed:
                raise FoldDied("the fold has ended")
            pipe = self._pipe or self._start()
        if not self._listens:
            self._heard(pipe)
            self._listens = True

    def fold(self, now: UnixSeconds, *, closing: bool) -> FoldReport:
        """As `folding.fold`, for about SLICE_SECONDS. One caller at a time, after `await_start`.

        Raises FoldDied where the process died, or what the fold raised there.
        """
        pipe = self._pipe
        if pipe is None:
            raise FoldDied("the fold has ended")
        with suppress(OSError, ValueError):  # what keeps it from hearing this keeps it from answering
            pipe.send((now, closing))
        answer = self._heard(pipe)
        if not isinstance(answer, FoldReport):
            raise FoldDied("the process that folds says what it should not")
        return answer

    def _heard(self, pipe: "Connection[object, object]") -> object:
        try:
            answer = pipe.recv()
        except (OSError, EOFError, ValueError, TypeError) as error:
            with self._lock:
                self._end(0.0)
            raise FoldDied("the process that folds has died, and is started again") from error
        if isinstance(answer, Exception):
            if not self._listens:  # it could not open its store, and has ended
                with self._lock:
                    self._end(0.0)
            raise answer
        return answer

    def close(self) -> None:
        """Let it finish the batch in hand, for STOP_SECONDS at most."""
        with self._lock:
            self._closed = True
            self._end(STOP_SECONDS)

    def _start(self) -> "Connection[object, object]":
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="fold")
        self._process.start()
        theirs.close()
        ours.send((self._place, self._at_rest.secret))
        self._pipe, self._listens = ours, False
        return ours

    def _end(self, seconds: float) -> None:
        if self._process is None or self._pipe is None:
            return
        with suppress(OSError):
            self._pipe.send(None)
        self._process.join(seconds)
        self._process.kill()
        self._process.join()
        self._pipe.close()
        self._process = self._pipe = None


def _serve(pipe: "Connection[object, object]") -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # a signal to all: whoever started it ends it
    os.nice(NICENESS)
    log_in_json()
    open_, seen = OpeningProcesses(), SeenIds()
    with suppress(EOFError, OSError):
        place, secret = cast(Any, pipe.recv())
        try:
            store = Store.open(place, AtRest(secret))
        except Exception as error:
            pipe.send(error)
            return
        pipe.send(None)
        gc.freeze()
        while asked := cast(Any, pipe.recv()):
            now, closing = asked
            end = monotonic() + SLICE_SECONDS
            try:
                answer: object = fold(
                    store, now, closing=closing, open_=open_, seen=seen, stop=partial(_over, pipe, end)
                )
            except EOFError:
                raise
            except Exception as error:
                answer, seen = error, SeenIds()  # the database may have lost what was read, as a replica that took over
            pipe.send(answer)
    for opening in active_children():  # whatever they have in hand: to wait for that might take for ever
        opening.kill()
    open_.close()
    os._exit(0)


def _over(pipe: "Connection[object, object]", end: float) -> bool:
    """Tell whether it is time to answer, or to end: nothing else comes through the pipe while it folds."""
    return monotonic() >= end or pipe.poll()
