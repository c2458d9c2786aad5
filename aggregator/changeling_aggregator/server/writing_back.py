"""What uploads have written is put to its place every second, in a thread of its own, so that no upload waits for it.

The fold does it as well, once it has counted; while it has much to count, that is seldom.
"""

import logging
from threading import Event, Thread

from ..store import Store

EVERY_SECONDS = 1.0
_log = logging.getLogger("changeling")


class WritingBack:
    """Has a store write back until it is closed."""

    def __init__(self, store: Store) -> None:
        self._store, self._stop = store, Event()
        self._thread = Thread(target=self._run, name="writing back", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Finish what is in hand, then end."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            try:
                self._store.write_back()
            except Exception:  # a full disk today is no reason not to try again
                _log.exception("what uploads wrote cannot be put to its place, which will be tried again")
