"""Whose a stream's files are: the process that holds the lock on one of them, for as long as it lives."""

import fcntl
import os
from contextlib import suppress

from .folder import Folder

SUFFIX = ".lock"


class Owned:
    """The files of a stream in a folder, which this process alone writes until it lets go or ends."""

    def __init__(self, folder: Folder, files: str, make: bool = False) -> None:
        """Raises BlockingIOError where another process owns them, FileNotFoundError where none are here, or OSError.

        files: how the names of all of them begin. make: whether they are new.
        """
        self._path = folder.path / f"{files}{SUFFIX}"
        self._file = os.open(self._path, os.O_RDWR | (os.O_CREAT if make else 0), 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._file)
            raise

    def in_place(self) -> bool:
        """Whether the folder still is the one in which they are owned, and no other of its name."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except OSError:
            return False

    def let_go(self, *, done: bool) -> None:
        """Another process may own them. done: whether there is nothing left to do with them."""
        if done:
            with suppress(OSError):
                self._path.unlink()
        os.close(self._file)
