"""Files that are whole or not there, and locks that end with the process that holds them."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout


def write_durably(path: Path, content: bytes) -> None:
    """Put a file in its place, whole and on disk when this returns; its owner alone can read it. Raises OSError."""
    part = path.with_name(f"{path.name}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as writing:
            writing.write(content)
            writing.flush()
            os.fsync(writing.fileno())
        give_to_folders_owner(part)
        os.rename(part, path)
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def give_to_folders_owner(path: Path) -> None:
    """Make a file that root has made the folder's owner's, as a server that is not root must read what root restores.

    Nothing is changed for anybody else than root. Raises OSError.
    """
    if os.geteuid() == 0:
        folder = path.absolute().parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def take_lock(path: Path) -> FileLock | None:
    """An exclusive lock on a file, to be given back by its `release`; None where another process has it."""
    lock = FileLock(path, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


def share_lock(path: Path, alone: bool) -> int:
    """A lock on a file that many may have together, or one alone, until the descriptor that this returns is closed.

    alone: whether nobody else may have it. Raises BlockingIOError, whose words name the processes that have it, or
    OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        give_to_folders_owner(path)
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        holders = ", ".join(_holders(os.fstat(descriptor))) or "another process"
        os.close(descriptor)
        raise BlockingIOError(holders) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _holders(file: os.stat_result) -> list[str]:
    """The processes with a lock on a file, as the kernel tells, where it does."""
    where = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    numbers = sorted(
        {int(pid) for _, kind, _, _, pid, place, *_ in map(str.split, lines) if (kind, place) == ("FLOCK", where)}
    )
    return [f"process {number}" for number in numbers]
