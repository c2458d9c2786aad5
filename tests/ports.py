"""Ports for servers that have to be told theirs before they start."""

import socket
from contextlib import suppress
from random import SystemRandom

FIRST, END = 10_000, 30_000
"""Below what the system gives out by itself: a port of these goes to none but who names it."""


def free_port() -> int:
    """One of loopback that nobody listens on. One that the system chose would be free as well, but could be another's
    by the time that the server binds it, as every server and connection of other tests is given one, too.
    """
    while True:
        port = SystemRandom().randrange(FIRST, END)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
