"""One process at a time: a lock on a file, which the operating system lifts when its holder dies.

Knows nothing of stores. A lock that is held as a process forks stays with the parent.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

THREAD_SECONDS = 30.0
"""How long a thread waits for another of its process, which does the same as it would."""


class ProcessLock:
    """A lock between processes, and between threads of one. file: made if missing; its content is never looked at."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._held: int | None = None
        self._threads = threading.RLock()

    @contextmanager
    def tried(self) -> Iterator[bool]:
        """Takes the lock for the block if no other process has it; waits for another thread of this one.

        Yields whether it did. Raises OSError.
        """
        threads = self._threads
        if not threads.acquire(timeout=THREAD_SECONDS):
            yield False
            return
        try:
            yield from self._tried()
        finally:
            if threads is self._threads:  # else this is a child, and has others
                threads.release()

    def _tried(self) -> Iterator[bool]:
        handle = os.open(self._file, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            taken = _lock(handle)
            self._held = handle if taken else self._held
            try:
                yield taken
            finally:
                if taken:
                    if self._held == handle:
                        _unlock(handle)
                    self._held = None
        finally:
            _close(handle)

    def forget(self) -> None:
        """In a forked child: the lock is the parent's, and does not hang on this process."""
        self._threads = threading.RLock()
        if self._held is not None:
            held, self._held = self._held, None
            _close(held)


def _close(handle: int) -> None:
    try:
        os.close(handle)
    except OSError:  # `forget` was first
        return


if sys.platform == "win32":

    def _lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:

    def _lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
