"""What a process has started, as /proc tells it: processes end while they are looked at, and are then not there."""

from contextlib import suppress
from pathlib import Path


def offspring(pid: int) -> list[int]:
    """The process ids of all that a process has started, and these in turn: each before what it has started."""
    return [each for child in children(pid) for each in (child, *offspring(child))]


def running(pid: int) -> bool:
    """Whether the process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """The process ids of what a process has started itself."""
    children: list[int] = []
    with suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # a thread of it has, whose children are another's now
                children += map(int, (task / "children").read_text().split())
    return children
