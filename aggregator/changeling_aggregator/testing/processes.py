"""What a process has started, as /proc tells it; and ports for servers that have to be told theirs before they start.

Processes end while they are looked at, and are then not there.
"""

import socket
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

FIRST_PORT, END_PORT = 10_000, 30_000
"""Below what the system gives out by itself: a port of these goes to none but who names it."""


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


def command_of(pid: int) -> bytes:
    """The words of a process's command, each ended by a zero byte; none where there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def free_port() -> int:
    """One of loopback that nobody listens on. One that the system chose would be free as well, but could be another's
    by the time that the server binds it, as every server and connection of other tests is given one, too.
    """
    while True:
        port = SystemRandom().randrange(FIRST_PORT, END_PORT)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
