"""A release's state on disk: replaced in one piece, on the disk before anything is published, held by one process.

The file is canonical MessagePack and its SHA-256, readable by its owner alone, as it may hold true sums. Whoever
publishes only after `save` has returned never draws twice for a node that somebody saw.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from changeling_protocol.canonical import decode, encode
from changeling_protocol.errors import MalformedBytes

from .errors import BadState

MAGIC = b"changeling release 1\n"


def save(path: Path, fields: dict[str, Any]) -> None:
    """Write, flush to disk, rename, flush the folder. A crash leaves the old file or the new one.

    OSError with the file's name where the disk is full.
    """
    content = encode(fields)
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)  # what a crash left may be readable by others
    with naming(beside), os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(MAGIC + sha256(content).digest() + content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    flush_folder(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError says which file it is about: one of a write or a flush does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def load(path: Path) -> dict[str, Any] | None:
    """What was saved, None if nothing was. Raises BadState for a file that is not whole."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return None
    head = len(MAGIC)
    digest, content = written[head : head + 32], written[head + 32 :]
    if not written.startswith(MAGIC) or sha256(content).digest() != digest:
        raise BadState(f"{path} is not a whole state of a release; without it nothing more can be released safely")
    try:
        fields: dict[str, Any] = decode(content)
    except MalformedBytes as error:
        raise BadState(f"{path}: {error}") from error
    return fields


def flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """One process at a time: two would both draw for the same node. Raises BadState if another has it."""
    import fcntl  # POSIX alone: only a release needs it

    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadState(f"another process is releasing with {path}") from None
        yield
    finally:
        os.close(lock)
