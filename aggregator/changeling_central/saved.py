"""A release's state on disk: replaced in one piece, on the disk before anything is published, held by one process.

The file is the state's bytes and their SHA-256, readable by its owner alone, as it may hold true sums. Whoever
publishes only after `save` has returned never draws twice for a node that somebody saw.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from .errors import BadState

ANY_VERSION = b"changeling release "
MAGIC = ANY_VERSION + b"4\n"


def save(path: Path, content: bytes) -> None:
    """Write the state and its hash in place of what is there. Arguments and errors: as of `replaced`."""
    replaced(path, MAGIC + sha256(content).digest() + content)


def replaced(path: Path, written: bytes) -> None:
    """Write, flush to disk, rename, flush the folder. A crash leaves the old file or the new one.

    OSError with the file's name where the disk is full.
    """
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)  # what a crash left may be readable by others
    with naming(beside), os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(written)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    flush_folder(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError within says which file it is about: one of a write or a flush does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def load(path: Path) -> bytes | None:
    """What was saved, None if nothing was. Raises BadState for a file that is not whole, or of another version."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return None
    head = len(MAGIC)
    if written.startswith(ANY_VERSION) and len(written) > head and not written.startswith(MAGIC):
        raise BadState(f"{path} was written by another version of changeling: go on with that one")
    digest, content = written[head : head + 32], written[head + 32 :]
    if not written.startswith(MAGIC) or sha256(content).digest() != digest:
        raise BadState(f"{path} is not a whole state of a release; without it nothing more can be released safely")
    return content


def flush_folder(folder: Path) -> None:
    """Write the folder's entries to the disk, so that a file that was made or renamed in it stays."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def held(path: Path, wait: float = 0.0) -> Iterator[None]:
    """One process at a time: two would both draw for the same node. Raises BadState if another has it.

    wait: for the other to end, in seconds. The lock goes with the process, however that ends; its file stays.
    """
    from filelock import FileLock, Timeout  # of the extra `central`

    lock = FileLock(path.with_name(path.name + ".lock"), timeout=wait, mode=0o600, fallback_to_soft=False)
    try:
        acquired = lock.acquire()
    except Timeout:
        raise BadState(f"another process is releasing with {path}") from None
    with acquired:
        yield
