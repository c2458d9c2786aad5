"""Who holds a store's file: many together, or one alone; by a lock on a file beside it, which ends with the process."""

import fcntl
import os
from pathlib import Path

from ..errors import StoreError

SUFFIX = "-held"


def held(path: Path, alone: bool) -> int:
    """Hold a file, until the descriptor that this returns is closed. path: of the file; alone: whether nobody else may.

    Raises StoreError, which names the processes that hold it, or OSError.
    """
    beside = path.with_name(path.name + SUFFIX)
    descriptor = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        who = ", ".join(_holders(os.fstat(descriptor))) or "another process"
        os.close(descriptor)
        raise StoreError(in_use(str(path), who, alone)) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def in_use(name: str, who: str, alone: bool) -> str:
    """What is said where a store is not to be had. who: holds it. alone: whether it was to be held alone."""
    if alone:
        return f"{name} is in use by {who}, and nobody may use it meanwhile: stop every server and fold on it first"
    return f"{name} is being changed by {who}, alone: try again when that is done"


def _holders(file: os.stat_result) -> list[str]:
    """The processes with a lock on a file, as the kernel tells, where it does; with the command of each."""
    where = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    numbers = sorted(
        {int(pid) for _, kind, _, _, pid, place, *_ in map(str.split, lines) if (kind, place) == ("FLOCK", where)}
    )
    return [f"process {number}{_command(number)}" for number in numbers]


def _command(number: int) -> str:
    """Which of our commands a process runs, without its options; empty where that cannot be seen."""
    try:
        words = Path(f"/proc/{number}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    known = [word for word in words[1:4] if word.isalpha()]
    return f" (changeling {known[0]})" if known and any("changeling" in word for word in words[:3]) else ""
