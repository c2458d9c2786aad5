"""One serving process: its store, its threads and what it remembers. Knows no HTTP."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic
from typing import TypeAlias

from ..fold import FoldProcess
from ..ingest import MOST_STORE_BYTES, Committer, Registry
from ..store import Store
from .clock import Clock, GuardedClock, MovableClock
from .fold_loop import FoldLoop
from .front_door import Traffic
from .limits import Bodies, Rates
from .sessions import Sessions
from .shown import Estimating, Showing

Admission: TypeAlias = Callable[[Mapping[str, str], bytes], Awaitable[str | None]]
"""An operator's own rule for uploads, such as the attestation of an app, or a blind token: it is given a request's
headers, in lower case, and its body, and returns None, or a sentence that says why it is not admitted. It is given no
address, nor a header in which a proxy tells one, and must keep nothing of what it sees."""
WRITE_BACK_SECONDS = 1.0
_log = logging.getLogger("changeling")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How a server is run.

    authority: the public keys whose surveys and sealing keys it takes. clock: Unix seconds; a MovableClock can be moved
    over HTTP, and a GuardedClock that is in doubt keeps everything from being sealed or destroyed.
    uploads_need_token: whether who uploads shows a token of an app. admission: the operator's own rule for uploads.
    requests_a_second: the most from one network, on average; 0 for any number.
    most_store_bytes: with more in the store uploads are turned away, whoever sent what fills it, until what is due is
    deleted. folds: whether the log is folded here; else that is left to other processes on the store. segments: the
    place where uploads lie as segments, as `checked_place` gives it; None for the store itself.
    """

    authority: Sequence[bytes]
    clock: Clock
    most_store_bytes: int = MOST_STORE_BYTES
    uploads_need_token: bool = False
    admission: Admission | None = None
    requests_a_second: int = 0
    folds: bool = True
    segments: str | None = None


class Service:
    """An aggregation server on an open store. Raises what the store raises.

    folding: the process that folds; without one a thread of this process does.
    """

    def __init__(self, store: Store, settings: ServerSettings, folding: FoldProcess | None = None) -> None:
        self.store, self.settings, self.clock = store, settings, settings.clock
        self.registry = Registry(store)
        self.registry.refresh()
        self.committer = Committer(store, self.clock, settings.most_store_bytes, settings.segments)
        self.folding = FoldLoop(store, self.registry, self.clock, folding, folds=settings.folds)
        self.estimating = Estimating()
        self.showing = Showing(store)
        self.bodies = Bodies()
        most = settings.requests_a_second
        self.rates = Rates(most, monotonic) if most else None
        self.sessions = Sessions(monotonic)
        self.traffic = Traffic()
        self._stop = Event()
        self._writing_back = Thread(target=self._write_back, name="writing back", daemon=True)

    @property
    def movable_clock(self) -> MovableClock | None:
        """The clock, where it can be moved over HTTP."""
        return self.clock if isinstance(self.clock, MovableClock) else None

    @property
    def guarded_clock(self) -> GuardedClock | None:
        """The clock, where it is compared with a steady one."""
        return self.clock if isinstance(self.clock, GuardedClock) else None

    def start(self) -> None:
        """Begin to commit uploads and to fold."""
        self.committer.start()
        self.folding.start()
        self._writing_back.start()

    def close(self) -> None:
        """Commit what was taken in, finish the batch that is being folded, close the store."""
        self._stop.set()
        self.committer.close()
        self.folding.close()
        if self._writing_back.ident is not None:
            self._writing_back.join()
        self.estimating.close()
        self.store.close()

    def _write_back(self) -> None:
        """Put what uploads wrote to its place, so that no upload waits for it; the fold does so once it has counted."""
        while not self._stop.wait(WRITE_BACK_SECONDS):
            try:
                self.store.write_back()
            except Exception:  # a full disk today is no reason not to try again
                _log.exception("what uploads wrote cannot be put to its place, which will be tried again")
