"""Measures 2, 3 and 10 to 12 of the client: what it costs the app that embeds it, and what a server's silence costs it.

Processes of their own are measured in turn with a baseline; times are medians.
"""

import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from changeling_aggregator.testing.services import PostgreSQL
from changeling_client import Client, Recorded
from changeling_client.testing import AUTHORITY, FakeServer, ManualClock, make_survey
from changeling_protocol import SealingKey, Survey
from changeling_protocol.wire import KEYS, UPLOADS, encode_acknowledgement, encode_key_list, survey_path
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

START, PINNED = 1_800_000_000, AUTHORITY.public_key().public_bytes_raw()


def minutely(periods: int, at_most: int = 4, **others: Any) -> Survey:
    """A survey of minutes, whose symbols are the truth."""
    usual = {"start": START, "period": 60, "skew": 5, "spread": 10, "grace": 10**8}
    return make_survey(periods=periods, at_most=at_most, **{**usual, **others})


def embedded(fake: FakeServer, folder: Path, **others: Any) -> Client:
    """A client as an app makes it, whose store outlives a loss of power; without a witness, as a bare file has none."""
    usual: dict[str, Any] = {
        "server": fake.url,
        "authority": fake.authority,
        "max_epsilon": 10**6,
        "path": folder / "store.db",
        "witness": None,
        "background": False,
        "transport": fake.transport,
        "clock": fake.clock,
    }
    return Client(**{**usual, **others})


def printed(program: str, *words: object) -> str:
    """The words that a process of this program prints."""
    run = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(run, capture_output=True, check=True, text=True, timeout=120).stdout  # noqa: S603


# 2: servers that do not answer


ASKED, OTHER = minutely(8, 8), minutely(9)
DUE = START + 80
"""When the first answer is due, so that the client asks the server for something."""


def blocking() -> dict[str, float]:
    """Measure 2: by server the longest record, join and close in seconds, while the client waits for its answer.

    It reports in the background, as an app's does. That nothing is lost, and that an interpreter ends, is tested.
    """
    figures: dict[str, float] = {}
    for name, serve in SERVERS.items():
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0), backlog=16) as listening:
            url = f"{'https' if name == 'tls_stall' else 'http'}://127.0.0.1:{listening.getsockname()[1]}"
            if serve is None:
                listening.close()
            else:
                threading.Thread(target=_accept, args=(listening, serve), daemon=True).start()
            fake = FakeServer(ManualClock(START + 5.0))
            device = embedded(fake, Path(folder), server=url, transport=None, background=True)
            handle = device.join(ASKED.id, signed=fake.signed(ASKED))
            handle.record("tea")
            fake.clock.now = DUE
            time.sleep(1)
            figures[f"2_{name}_record_s"] = max(
                _seconds(partial(handle.record, answer)) for answer in ("coffee", "neither", "coffee")
            )
            figures[f"2_{name}_join_s"] = _seconds(lambda: device.join(OTHER.id))  # noqa: B023
            figures[f"2_{name}_close_s"] = _seconds(device.close)
    return figures | {"2_longest_s": max(figures.values())}


def _seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def _accept(listening: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    def served(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            serve(connection)

    with suppress(OSError):
        while True:
            threading.Thread(target=served, args=(listening.accept()[0],), daemon=True).start()


def _silent(_: socket.socket) -> None:
    time.sleep(60)


def _dripping(head: bytes, drop: bytes) -> Callable[[socket.socket], None]:
    def drip(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(head)
        for _ in range(600):
            connection.sendall(drop)
            time.sleep(0.1)

    return drip


def _unavailable(connection: socket.socket) -> None:
    while connection.recv(65536):
        connection.sendall(b"HTTP/1.1 503 No\r\nretry-after: 86400\r\ncontent-length: 0\r\n\r\n")


SERVERS: dict[str, Callable[[socket.socket], None] | None] = {
    "nobody_listens": None,
    "black_hole": _silent,
    "drip_headers": _dripping(b"HTTP/1.1 200 OK\r\n", b"x-more: 1\r\n"),
    "drip_body": _dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", b"\0"),
    "processing": _dripping(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "unavailable": _unavailable,
    "tls_stall": _silent,
}


# 3, 11 and 12: what it costs an app, and a web backend with 10,000 accounts


STARTS, RECORDS = 15, 2_000
SHAPES = {"100x100": (100, 100), "1x10000": (1, 10_000)}
"""Entries by periods: 10,000 due nodes each. As many entries at one closing are measure 11."""
SDK = Path(__file__).parents[1] / "client_sdk"
IMPORTED = """
import time
began = time.perf_counter()
import msgpack, sqlite3
from cryptography.hazmat.primitives.asymmetric import ed25519
print(time.perf_counter() - began)
"""
FIRST = f"""
import sys, time
began = time.perf_counter()
from changeling_client import Client
imported = time.perf_counter()
client = Client(server="https://localhost:9", authority=[{PINNED!r}], max_epsilon=1, path=sys.argv[1] + "/store.db")
made = time.perf_counter()
client.join(bytes(16)).record("tea")
print(imported - began, made - imported, time.perf_counter() - began, time.time(), flush=True)
"""


def costs() -> dict[str, float]:
    """Ratios and times of imports and records, CPU seconds for 10,000 due nodes, and MiB of an idle client."""
    return starts() | records() | due_nodes() | accounts()


def starts() -> dict[str, float]:
    """Seconds of the import, the first client and the exit of a process, MiB of a client that waits, size of the wheel.

    Medians of fresh processes, in turn with what the import is held against. An exit is from the last statement, with a
    client that reports in the background and was not closed, until the process is gone.
    """
    times: list[list[float]] = []
    for _ in range(STARTS):
        base = float(printed(IMPORTED))
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            said = printed(FIRST, folder)
            ended = time.time()
        imported, made, recorded, last = map(float, said.split())
        times.append([base, imported, made, recorded, ended - last])
    base, imported, made, recorded, left = map(statistics.median, zip(*times, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, str(SDK)]
        subprocess.run(build, check=True, capture_output=True)  # noqa: S603
        (wheel,) = Path(folder).glob("*.whl")
        size = wheel.stat().st_size
    return {
        "3_import_ratio": imported / base,
        "3_import_to_first_record_ratio": recorded / base,
        "12_import_s": imported,
        "12_first_client_s": made,
        "12_exit_s": left,
        "12_idle_mib": idle_mib(),
        "12_wheel_kb": size / 1000,
    }


def records() -> dict[str, float]:
    """record() in turn with an update of one row of a bare file, both durable."""
    times: tuple[list[float], list[float]] = [], []
    server = FakeServer(ManualClock(START))
    asked = minutely(8, 10**6)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, embedded(server, Path(name)) as device:
        bare = sqlite3.connect(Path(name) / "bare.db", isolation_level=None)
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.executescript(
            "CREATE TABLE kept (number INTEGER PRIMARY KEY, content BLOB); INSERT INTO kept VALUES (1, x'')"
        )
        handle = device.join(asked.id, signed=server.signed(asked))
        for number in range(RECORDS):
            began = time.perf_counter()
            bare.execute("BEGIN IMMEDIATE")
            bare.execute("UPDATE kept SET content = ? WHERE number = 1", (number.to_bytes(64),))
            bare.execute("COMMIT")
            between = time.perf_counter()
            handle.record(asked.answers[number % 2])
            times[0].append(between - began)
            times[1].append(time.perf_counter() - between)
        bare.close()
    base, recorded = (1e6 * statistics.median(each) for each in times)
    return {
        "3_record_us": recorded,
        "3_record_base_us": base,
        "3_record_ratio": recorded / base,
        "3_record_over_us": recorded - base,
        "3_record_share_of_allowed": recorded / max(1.5 * base, base + 60),
    }


def due_nodes() -> dict[str, float]:
    """CPU seconds of the flush that answers and sends 10,000 nodes, by shape."""
    figures = {}
    for name, (entries, periods) in SHAPES.items():
        asked, server = minutely(periods), FakeServer(ManualClock(START))
        server.publish(asked)
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, embedded(server, Path(folder)) as device:
            device.join(asked.id, entries=entries, signed=server.signed(asked)).record("tea")
            server.clock.now = START + 60 * periods + 100
            figures[f"3_due_cpu_s_{name}"] = flush_seconds(device, 10_000)
    return figures


def flush_seconds(device: Client, closings: int) -> float:
    """CPU seconds of a flush that sends so many closings."""
    began = time.process_time()
    flushed = device.flush(timeout=600)  # it is the processor that is measured
    taken = time.process_time() - began
    if flushed.sent != closings:
        raise ArithmeticError(f"{flushed} is not {closings} closings sent")
    return taken


def accounts(count: int = 10_000) -> dict[str, float]:
    """A closing of so many entries of one store, of which a tenth has an answer, on loopback: CPU seconds of the flush,
    requests and connections; where a file keeps the store, and where PostgreSQL does."""
    figures = {}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, PostgreSQL() as postgresql:
        for name, place in (
            ("sqlite", {"path": Path(folder) / "store.db"}),
            ("postgresql", {"path": None, "database": postgresql.new()}),
        ):
            asked, fake = minutely(8), FakeServer(ManualClock(START))
            server = Loopback(asked)
            options = {"server": server.url, "transport": None, **place}
            with embedded(fake, Path(folder), **options) as client:
                handle = client.join(asked.id, entries=count, signed=fake.signed(asked))
                for entry in range(0, count, 10):
                    handle.record("tea", entry)
                fake.clock.now += 60 + 20
                figures[f"11_closing_cpu_s_{name}"] = flush_seconds(client, count)
            server.close()
            figures |= {f"11_closing_{what}_{name}": float(number) for what, number in server.counted.items()}
    return figures


IDLE = """
import gc, os, sys, time
from importlib import import_module
from pathlib import Path
url, pinned, folder, id_, *loaded = sys.argv[1:]
for name in loaded:
    import_module(name)
def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = resident()
from changeling_client import Client
client = Client(server=url, authority=[bytes.fromhex(pinned)], max_epsilon=10**4, path=Path(folder) / "store.db")
handle = client.join(id_)
deadline = time.monotonic() + 30
while handle.status.name == "ASKED" and time.monotonic() < deadline:
    time.sleep(0.05)
handle.record("tea")
time.sleep(0.5)
print(resident() - before, handle.status.name)
client.close()
print(*[name for name, module in sys.modules.items() if getattr(module, "__spec__", None) and name != "__main__"])
"""


def idle_mib() -> float:
    """How much a client that has joined, recorded and now waits holds above what was imported, in MiB.

    A first process tells which modules it comes to load; the second loads them before it counts.
    """
    now = int(time.time())
    asked = minutely(8, start=now - now % 60, period=3600)
    loaded: list[str] = []
    server = Loopback(asked)
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            first, *rest = printed(IDLE, server.url, PINNED.hex(), folder, asked.id.hex(), *loaded).splitlines()
        held, status = first.split()
        if status != "JOINED":
            raise ArithmeticError(f"the survey is {status}, not joined")
        loaded = rest[0].split()
    server.close()
    return int(held) / 2**20


class Loopback:
    """Serves a survey and a key on loopback, and takes every upload. counted: requests and connections so far.

    Its clock is far ahead of every client's, which then goes by its own.
    """

    def __init__(self, survey: Survey) -> None:
        public = X25519PrivateKey.from_private_bytes(b"sealing key of benches, 32 bytes").public_key()
        key = SealingKey(public.public_bytes_raw(), 0, 2**32).signed_by(AUTHORITY)
        contents = {
            survey_path(survey.id.hex()): survey.signed_by(AUTHORITY),
            KEYS: encode_key_list([key]),
            UPLOADS: encode_acknowledgement({}),
        }
        counted = self.counted = {"requests": 0, "connections": 0}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                counted["connections"] += 1
                super().setup()

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                counted["requests"] += 1
                content = contents.get(self.path)
                self.send_response_only(404 if content is None else 200)
                self.send_header("date", formatdate(START + 10**7, usegmt=True))
                self.send_header("content-length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


# 10: what the length of one record() tells


def durations(count: int = 3_000) -> dict[str, float]:
    """How often the best threshold on one duration tells a change from none; chosen on one half, tried on the other."""
    server = FakeServer()
    times: tuple[list[float], list[float]] = [], []
    unbound = make_survey(answers=("tea", "coffee"), periods=count, at_most=count)
    with tempfile.TemporaryDirectory() as folder, embedded(server, Path(folder)) as client:
        handle = client.join(server.publish(unbound))
        client.flush()
        for number in range(count):
            before = handle.answer()
            changes = number * 7919 % 13 < 6
            answer = ("coffee" if before == "tea" else "tea") if changes or before is None else before
            began = time.perf_counter()
            recorded = handle.record(answer)
            times[recorded is Recorded.COUNTED].append(time.perf_counter() - began)
    halves = [[each[half::2] for each in times] for half in range(2)]
    chosen = max(sorted({*halves[0][0], *halves[0][1]})[::5], key=lambda at: abs(_share(halves[0], at) - 0.5))
    share = _share(halves[1], chosen)
    return {
        "10_changes": float(len(times[1])),
        "10_record_told_apart": share if _share(halves[0], chosen) >= 0.5 else 1 - share,
    }


def _share(ways: list[list[float]], threshold: float) -> float:
    """How often "longer than this" says which, if both were as likely."""
    none, change = ways
    longer, shorter = (sum(each > threshold for each in some) / len(some) for some in (change, none))
    return (longer + 1 - shorter) / 2
