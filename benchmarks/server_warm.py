"""A process that has imported what `changeling serve` and its fold need, started nothing, and forks them when asked.

Starting Python and importing takes a second of processor, which would be most of what three hundred kills take. What is
forked is a process of its own: `changeling serve` from its first line on, with a socket and a store that it opens
itself. Its fold is forked by the same process, as the server has threads, and finds a pipe as it would otherwise.
"""

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from typing import Any

IMPORTED = (
    *("changeling_commands.table", "changeling_aggregator.fold", "changeling_aggregator.server"),
    *("changeling_aggregator.server.metrics", "changeling_aggregator.store.postgresql", "changeling_aggregator.logs"),
    *("changeling_aggregator.segments.parquet", "uvicorn.importer", "uvicorn.lifespan.on", "uvicorn.loops.auto"),
    *("uvicorn.protocols.http.auto", "sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql.psycopg"),
)
FOLD: Sequence[str] = ()
"""The request for a fold; any other is the arguments of `changeling`."""


def forked(address: str, arguments: Sequence[str], descriptor: int) -> int:
    """Ask the process that listens at this address for another; returns its number.

    descriptor: what becomes its standard output, or the fold's pipe.
    """
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(address)
        socket.send_fds(asking, [json.dumps(arguments).encode()], [descriptor])
        return int(asking.recv(64))


def main(address: str) -> None:
    """Import, listen, and fork until it is killed; prints a line once it listens."""
    for name in IMPORTED:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that were forked
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        print("warm", flush=True)
        while True:
            asked, _ = listening.accept()
            with asked:
                request, descriptors, _, _ = socket.recv_fds(asked, 65_536, 1)
                if not descriptors:  # who asked was killed before it could say for what
                    continue
                (descriptor,) = descriptors
                pid = os.fork()
                if pid == 0:
                    asked.close()
                    listening.close()
                    _live(json.loads(request), descriptor, address)
                os.close(descriptor)
                with suppress(OSError):  # who asked may have been killed since
                    asked.sendall(str(pid).encode())


def _live(arguments: Sequence[str], descriptor: int, address: str) -> None:
    """What was forked; never returns."""
    from changeling_aggregator.fold import engine as process
    from changeling_commands.__main__ import main as changeling

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        if arguments:
            os.dup2(descriptor, 1)
            os.close(descriptor)
            process.get_context = lambda _: _WarmContext(address)  # type: ignore[attr-defined,assignment]
            code = changeling(arguments)
        else:
            process._serve(Connection(descriptor))
            code = 0
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


class _WarmContext:
    """What a server's FoldProcess takes for multiprocessing's context: its processes are forked by the warm one."""

    def __init__(self, address: str) -> None:
        self.Process: Callable[..., _WarmProcess] = partial(_WarmProcess, address)
        self.Pipe = Pipe


class _WarmProcess:
    """A fold. Its number is a line of the server's output."""

    def __init__(self, address: str, target: object, args: tuple[Any, ...], name: str) -> None:
        del target, name
        self._address, self._pipe = address, args[0]

    def start(self) -> None:
        self.pid = forked(self._address, FOLD, self._pipe.fileno())
        try:
            self._life = os.pidfd_open(self.pid)
        except ProcessLookupError:  # it was killed already
            self._life = -1
        os.write(1, b"fold %d\n" % self.pid)

    def kill(self) -> None:
        if self._life >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._life, signal.SIGKILL)

    def join(self, patience: float | None = None) -> None:
        if self._life >= 0 and select.select([self._life], [], [], patience)[0]:
            os.close(self._life)
            self._life = -1


if __name__ == "__main__":
    main(*sys.argv[1:])
