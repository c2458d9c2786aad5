"""Measure 2 of the client: servers that do not answer, and how long they hold the app up.

Each case is a process of its own with a client that reports in the background, in the middle of which it records,
joins, closes and ends; once more it ends without closing. All that was recorded and answered must be in the store
afterwards.
"""

import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from changeling_client import Client
from changeling_client.testing import AUTHORITY, FakeServer, ManualClock

from .client_world import PINNED, START, plain_survey

LIMIT = 1.0
"""Seconds that any call, and the interpreter's end, may take."""
ASKED, OTHER = plain_survey(8, most=8), plain_survey(9)
_DUE = START + 80

_LIFE = """
import json, sys, time
from pathlib import Path
from changeling_client import Client
from changeling_client.testing import AUTHORITY, FakeServer, ManualClock
url, pinned, folder, asked, other, closes, now = sys.argv[1:]
taken = {}
def timed(name, call):
    began = time.monotonic()
    call()
    taken[name] = max(taken.get(name, 0), time.monotonic() - began)
def make():
    global client
    client = Client(server=url, authority=[bytes.fromhex(pinned)], max_epsilon=10**4, clock=lambda: float(now),
                    path=Path(folder) / "store.db", background=True)
timed("start", make)
time.sleep(0.7)
handle = client.join(asked)
for answer in ("coffee", "neither", "coffee"):
    timed("record", lambda: handle.record(answer))
timed("join", lambda: client.join(other).record("tea"))
time.sleep(0.3)
timed("record", lambda: handle.record("neither"))
if closes == "1":
    timed("close", client.close)
print(json.dumps(taken), flush=True)
print(time.monotonic(), flush=True)
"""


def measure() -> dict[str, float]:
    """By case: the longest record, join, close and end in seconds; and how many lives lost something."""
    figures: dict[str, float] = {}
    for name, serve in SERVERS.items():
        for closes in (True, False):
            taken, kept = live(serve, closes, tls=name == "tls_stall")
            for call, seconds in taken.items():
                figure = f"2_{name}_{call if closes or call != 'end' else 'end_unclosed'}_s"
                figures[figure] = max(seconds, figures.get(figure, 0.0))
            figures[f"2_{name}_lost"] = figures.get(f"2_{name}_lost", 0.0) + (not kept)
    calls = [seconds for name, seconds in figures.items() if name.endswith("_s") and not name.endswith("_start_s")]
    return figures | {
        "2_longest_s": max(calls),
        "2_over_a_second": float(sum(seconds > LIMIT for seconds in calls)),
        "2_lost": sum(lost for figure, lost in figures.items() if figure.endswith("_lost")),
    }


def live(serve: Callable[[socket.socket], None] | None, closes: bool, tls: bool) -> tuple[dict[str, float], bool]:
    """Runs one life against a server. Returns what took how long, in seconds, and whether all is kept."""
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0), backlog=16) as listening:
        address = f"{'https' if tls else 'http'}://127.0.0.1:{listening.getsockname()[1]}"
        if serve is None:
            listening.close()
        else:
            threading.Thread(target=_accept, args=(listening, serve), daemon=True).start()
        _begin(Path(name), address)
        identities = ASKED.id.hex(), OTHER.id.hex()
        run = [sys.executable, "-c", _LIFE, address, PINNED[0].hex(), name, *identities, str(int(closes)), str(_DUE)]
        printed = subprocess.run(run, capture_output=True, check=True, text=True, timeout=120).stdout  # noqa: S603
        after = time.monotonic()
        told, ended = printed.splitlines()
        return {**json.loads(told), "end": after - float(ended)}, _kept(Path(name), address)


def _begin(folder: Path, url: str) -> None:
    """The survey is joined, and its first period has an answer that becomes due."""
    with Client(
        server=url,
        authority=PINNED,
        max_epsilon=10**4,
        path=folder / "store.db",
        background=False,
        clock=lambda: START + 5.0,
    ) as begun:
        begun.join(ASKED.id, signed=ASKED.signed_by(AUTHORITY)).record("tea")


def _kept(folder: Path, url: str) -> bool:
    """Whether the store, with a server that answers, has all that was recorded, and sends what was due.

    That is looked at two days later: a server may ask for a day of silence, which outlasts the client.
    """
    server = FakeServer(ManualClock(_DUE + 172_800))
    for survey in (ASKED, OTHER):
        server.publish(survey)
    with Client(
        server=url,
        authority=PINNED,
        max_epsilon=10**4,
        path=folder / "store.db",
        background=False,
        transport=server.transport,
        clock=server.clock,
    ) as device:
        other = device.join(OTHER.id)
        present = device.join(ASKED.id).answer() == "neither" and other.answer() == "tea"
        device.flush()
    return present and [report.says for report in server.reports if report.node.end == 1] == ["from no answer to tea"]


def _accept(listening: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_serve, args=(connection, serve), daemon=True).start()


def _serve(connection: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    with suppress(OSError), connection:
        serve(connection)


def _black_hole(_: socket.socket) -> None:
    time.sleep(60)


def _drip(connection: socket.socket, head: bytes, drop: bytes) -> None:
    connection.recv(65536)
    connection.sendall(head)
    for _ in range(600):
        connection.sendall(drop)
        time.sleep(0.1)


def _drip_headers(connection: socket.socket) -> None:
    _drip(connection, b"HTTP/1.1 200 OK\r\n", b"x-more: 1\r\n")


def _drip_body(connection: socket.socket) -> None:
    _drip(connection, b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", b"\0")


def _processing(connection: socket.socket) -> None:
    _drip(connection, b"", b"HTTP/1.1 102 Processing\r\n\r\n")


def _unavailable(connection: socket.socket) -> None:
    while connection.recv(65536):
        connection.sendall(b"HTTP/1.1 503 No\r\nretry-after: 86400\r\ncontent-length: 0\r\n\r\n")


SERVERS: dict[str, Callable[[socket.socket], None] | None] = {
    "nobody_listens": None,
    "black_hole": _black_hole,
    "drip_headers": _drip_headers,
    "drip_body": _drip_body,
    "processing": _processing,
    "unavailable": _unavailable,
    "tls_stall": _black_hole,
}
