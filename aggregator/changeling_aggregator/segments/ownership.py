"""Whose a stream's files are: the process that holds the lock on one of them, for as long as it lives."""

import fcntl
import os
from contextlib import suppress

from .folder import Folder

SUFFIX = ".lock"


class Owned:
    """The files of a stream in a folder, which this process alone writes until it lets go or ends."""

    def __init__(self, folder: Folder, files: str) -> None:
        """Raises BlockingIOError where another process owns them, or OSError.

        files: how the names of all of them begin.
        """
        self._path = folder.path / f"{files}{SUFFIX}"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._file)
            raise

    def let_go(self, *, done: bool) -> None:
        """Another process may own them. done: whether there is nothing left to do with them."""
        if done:
            with suppress(OSError):
                self._path.unlink()
        os.close(self._file)
