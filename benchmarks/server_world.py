"""A server on loopback as operators run it, what devices would send, and how much of it the server takes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from changeling_aggregator.testing.postgres import PostgreSQL
from changeling_aggregator.testing.serving import ADMIN, RunningServer
from changeling_protocol import (
    Closing,
    Node,
    NodeNumber,
    Report,
    SealingKey,
    Standing,
    StratumNumber,
    Survey,
    TrackNumber,
    encode_upload,
    seal,
)
from changeling_protocol.wire import STATUS, encode_upload_request

from .server_load import write_bodies


def plaintext(asked: Survey, span: Node) -> bytes:
    """The answer of a device over a span: every closing with an id of its own, and a report at each."""
    closings = [
        Closing(period, os.urandom(16), Standing.KNOWN, StratumNumber(0))
        for period in range(span.start + 1, span.end + 1)
    ]
    reports = [Report(TrackNumber(0), NodeNumber(each.period), each.id[0] % 5) for each in closings]
    return encode_upload(asked.plan, 0, span, closings, reports)


def bodies(asked: Survey, key: SealingKey, count: int, envelopes: int) -> list[bytes]:
    """Requests with so many envelopes each, all different, about the survey's last period."""
    periods = asked.calendar.periods
    span = Node(periods - 1, periods)
    sealed = [seal(plaintext(asked, span), asked.id, key) for _ in range(min(count * envelopes, 4000))]
    return [
        encode_upload_request([sealed[(at * envelopes + i) % len(sealed)] for i in range(envelopes)])
        for at in range(count)
    ]


@contextmanager
def stores() -> Iterator[Mapping[str, Callable[[Path], str]]]:
    """By the name of a database, what gives the place of a new store in it; PostgreSQL runs meanwhile."""
    with PostgreSQL() as postgresql:
        yield {"sqlite": lambda folder: str(folder / "server.db"), "postgresql": lambda _: postgresql.new()}


class Running(NamedTuple):
    """A server that takes load: where it listens, and the number of its process."""

    port: int
    pid: int

    @property
    def seconds(self) -> float:
        """The processor time that the process itself has taken."""
        user, system = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def empty_server() -> Iterator[Running]:
    """The endpoint to compare with."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.server_empty"], stdout=subprocess.PIPE, text=True)
    assert process.stdout  # noqa: S101
    try:
        yield Running(int(process.stdout.readline()), process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=20)


def loaded(port: int, file: Path, seconds: float, rate: float = 0, connections: int = 64) -> dict[str, float]:
    """The findings of benchmarks.server_load."""
    arguments = [str(each) for each in (port, file, seconds, connections, rate)]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "benchmarks.server_load", *arguments], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def kept_bodies(path: Path, made: Sequence[bytes]) -> Path:
    """Writes requests where `loaded` finds them."""
    write_bodies(path, list(made))
    return path


def folded(server: RunningServer, path: str) -> float:
    """Waits until all is folded; returns for how many seconds."""
    began = time.monotonic()
    while server.http.get(path + STATUS, headers=ADMIN).raise_for_status().json()["unfolded_requests"]:
        time.sleep(0.05)
    return time.monotonic() - began
