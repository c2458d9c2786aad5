"""Lives of servers that are forked from a warm process: each is started in a few hundredths of a second, and killed."""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from changeling_protocol.wire import FOLD

from tests.aggregator.serving import ADMIN

from .server_warm import forked

MOST_SECONDS = 60.0
"""For anything that a process is waited for."""


class Warm:
    """The process that forks servers; use as a context, which kills those that are left. log: where they log to."""

    def __init__(self, log: Path) -> None:
        self._log, self._lives = log, list[Life]()

    def __enter__(self) -> "Warm":
        self._folder = tempfile.TemporaryDirectory(prefix="changeling-warm-")
        self._address = str(Path(self._folder.name, "socket"))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "benchmarks.server_warm", self._address], stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout  # noqa: S101
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for life in self._lives:
                life.kill()
        finally:
            self._process.kill()
            self._process.communicate()
            self._folder.cleanup()

    def serve(self, *arguments: str) -> "Life":
        """`changeling` with these arguments, which serve."""
        life = Life(self._address, arguments)
        self._lives.append(life)
        return life


class Life:
    """A server's, from its fork to its end.

    port: where it listens; 0 before that. folds: the numbers of the processes that folded for it, the last one now.
    """

    def __init__(self, address: str, arguments: Sequence[str]) -> None:
        self.port, self.folds = 0, list[int]()
        self._up, self._over = Event(), Event()
        ours, theirs = os.pipe()
        self._pid = forked(address, arguments, theirs)
        os.close(theirs)
        self._reader = Thread(target=self._read, args=(ours,), daemon=True)
        self._reader.start()

    def await_up(self) -> None:
        """Until it listens. Raises TimeoutError, or RuntimeError where it has ended instead."""
        if not self._up.wait(MOST_SECONDS):
            raise TimeoutError(f"a server was not up within {MOST_SECONDS:g} s")
        if not self.port:
            raise RuntimeError("a server ended before it listened: its log says why")

    def kill(self) -> bool:
        """SIGKILL, and wait for its end; returns whether it lived. Raises TimeoutError."""
        lived = not self._over.is_set() and sigkill(self._pid)
        if not self._over.wait(MOST_SECONDS):
            raise TimeoutError(f"a server that was killed had not ended within {MOST_SECONDS:g} s")
        return lived

    def _read(self, output: int) -> None:
        """The end of what it says is its own end, as nobody else has this pipe."""
        with os.fdopen(output) as lines:
            for line in lines:
                match line.split():
                    case ["fold", pid]:
                        self.folds.append(int(pid))
                    case ["changeling", "listens", "on", url]:
                        self.port = int(url.rpartition(":")[2])
                        self._up.set()
        self._over.set()
        self._up.set()


@contextmanager
def folding(server: Life) -> Iterator[set[int]]:
    """Has a server fold as often as it will; gives the numbers of its folds that have counted something."""
    counted, stop = set[int](), Event()

    def ask() -> None:
        while not stop.wait(0.02):
            fold = server.folds[-1]
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=MOST_SECONDS)
            with suppress(OSError, http.client.HTTPException, ValueError), closing(connection):
                connection.request("POST", FOLD, headers=ADMIN)
                if json.loads(connection.getresponse().read()).get("envelopes") and server.folds[-1] == fold:
                    counted.add(fold)

    asking = Thread(target=ask)
    asking.start()
    try:
        yield counted
    finally:
        stop.set()
        asking.join()


def sigkill(pid: int) -> bool:
    """SIGKILL; whether there was such a process."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
