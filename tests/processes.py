"""What a process has started, as /proc tells it: processes end while they are looked at, and are then not there."""

from pathlib import Path


def offspring(pid: int) -> list[int]:
    """The process ids of all that a process has started, and these in turn: each before what it has started."""
    return [each for child in _children(pid) for each in (child, *offspring(child))]


def running(pid: int) -> bool:
    """Whether the process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    try:
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
