"""Measures 3, 11 and 12 of the client: what it costs the app that embeds it, and a web backend with 10,000 accounts.

Imports, in fresh processes, in turn with their baseline; record() in turn with one durable transaction on the same
disk; 10,000 due nodes, in seconds of CPU; the memory of a client that waits. Times are medians.
"""

import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from changeling_aggregator.testing.postgres import PostgreSQL
from changeling_client import Client
from changeling_client.testing import AUTHORITY, FakeServer, ManualClock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .client_world import PINNED, START, LoopbackServer, plain_survey

STARTS, RECORDS = 15, 2_000
SHAPES = {"100x100": (100, 100), "1x10000": (1, 10_000)}
"""Entries by periods: 10,000 due nodes each. As many entries at one closing are measure 11."""
_SDK = Path(__file__).parents[1] / "client_sdk"
_BASE = """
import time
began = time.perf_counter()
import msgpack, sqlite3
from cryptography.hazmat.primitives.asymmetric import ed25519
print(time.perf_counter() - began)
"""
_START = f"""
import sys, time
began = time.perf_counter()
from changeling_client import Client
imported = time.perf_counter()
client = Client(server="https://localhost:9", authority=[{PINNED[0]!r}], max_epsilon=1, path=sys.argv[1] + "/store.db")
made = time.perf_counter()
client.join(bytes(16)).record("tea")
print(imported - began, made - imported, time.perf_counter() - began, time.time(), flush=True)
"""


def measure() -> dict[str, float]:
    """Ratios and times of imports and records, wheels, CPU seconds for 10,000 due nodes, and MiB of an idle client."""
    return starts() | {"3_wheels": float(len(wheels()))} | records() | due_nodes() | accounts()


def starts() -> dict[str, float]:
    """Seconds of the import, the first client and the exit of a process, MiB of a client that waits, size of the wheel.

    Medians of fresh processes, in turn with what the import is held against. An exit is from the last statement, with a
    client that reports in the background and was not closed, until the process is gone.
    """
    times: list[list[float]] = []
    for _ in range(STARTS):
        base = float(subprocess.run([sys.executable, "-c", _BASE], capture_output=True, check=True).stdout)  # noqa: S603
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            run = [sys.executable, "-c", _START, folder]
            printed = subprocess.run(run, capture_output=True, check=True).stdout  # noqa: S603
            ended = time.time()
        imported, made, recorded, last = map(float, printed.split())
        times.append([base, imported, made, recorded, ended - last])
    base, imported, made, recorded, left = map(statistics.median, zip(*times, strict=True))
    return {
        "3_import_ratio": imported / base,
        "3_import_to_first_record_ratio": recorded / base,
        "12_import_s": imported,
        "12_first_client_s": made,
        "12_exit_s": left,
        "12_idle_mib": idle_mib(),
        "12_wheel_kb": wheel_bytes() / 1000,
    }


def wheel_bytes() -> int:
    """The size of the SDK's wheel."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, str(_SDK)]
        subprocess.run(build, check=True, capture_output=True)  # noqa: S603
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.stat().st_size


def accounts(count: int = 10_000) -> dict[str, float]:
    """A closing of so many entries of one store, of which a tenth has an answer, on loopback: CPU seconds of the flush,
    requests and connections; where a file keeps the store, and where PostgreSQL does."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, PostgreSQL() as postgresql:
        file = _closing(count, path=Path(folder) / "store.db")
        database = _closing(count, database=postgresql.new())
    return {f"11_{name}_sqlite": value for name, value in file.items()} | {
        f"11_{name}_postgresql": value for name, value in database.items()
    }


def _closing(count: int, **place: Any) -> dict[str, float]:
    asked, clock = plain_survey(8), ManualClock(START)
    with tempfile.TemporaryDirectory() as folder:
        server = LoopbackServer(Path(folder) / "kept", asked)
        told: dict[str, Any] = {
            "server": server.url,
            "authority": PINNED,
            "max_epsilon": 10**6,
            "witness": None,
            "clock": clock,
        }
        with Client(background=False, **told, **place) as client:
            handle = client.join(asked.id, entries=count, signed=asked.signed_by(AUTHORITY))
            for entry in range(0, count, 10):
                handle.record("tea", entry)
            clock.now += 60 + 20
            began = time.process_time()
            flushed = client.flush(timeout=600)  # it is the processor that is measured
            taken = time.process_time() - began
        server.close()
    if flushed.sent != count:
        raise ArithmeticError(f"{flushed} is not {count} closings sent")
    handler = server.handler
    return {
        "closing_cpu_s": taken,
        "closing_requests": float(handler.requests),
        "closing_connections": float(handler.connections),
    }


def wheels() -> set[str]:
    """The distributions that `pip install changeling-client` brings beside its own, by the metadata of those here."""
    project = tomllib.loads((_SDK / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    asked = [Requirement(each) for each in project["dependencies"]]
    while asked:
        requirement = asked.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if (name := canonicalize_name(requirement.name)) in found:
            continue
        found.add(name)
        try:
            asked += [Requirement(each) for each in distribution(name).requires or ()]
        except PackageNotFoundError:
            continue
    return found


def records(count: int = RECORDS) -> dict[str, float]:
    """record() in turn with an update of one row of a bare file, both durable."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        asked = plain_survey(8, most=10**6)
        bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute("CREATE TABLE kept (number INTEGER PRIMARY KEY, content BLOB)")
        bare.execute("INSERT INTO kept VALUES (1, x'')")
        times: tuple[list[float], list[float]] = [], []
        server = FakeServer(ManualClock(START))
        with _client(folder, server) as device:
            handle = device.join(asked.id, signed=server.signed(asked))
            for number in range(count):
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
    allowed = max(1.5 * base, base + 60)
    return {
        "3_record_us": recorded,
        "3_record_base_us": base,
        "3_record_ratio": recorded / base,
        "3_record_over_us": recorded - base,
        "3_record_share_of_allowed": recorded / allowed,
    }


def _client(folder: Path, server: FakeServer) -> Client:
    """A client as an app makes it, whose store outlives a loss of power; without a witness, as a bare file has none."""
    return Client(
        server=server.url,
        authority=server.authority,
        max_epsilon=10**6,
        path=folder / "store.db",
        witness=None,
        background=False,
        transport=server.transport,
        clock=server.clock,
    )


def due_nodes() -> dict[str, float]:
    """CPU seconds of the flush that answers and sends 10,000 nodes, by shape."""
    return {f"3_due_cpu_s_{name}": _flush_cpu(*shape) for name, shape in SHAPES.items()}


def _flush_cpu(entries: int, periods: int) -> float:
    asked, server = plain_survey(periods), FakeServer(ManualClock(START))
    server.publish(asked)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, _client(Path(folder), server) as device:
        device.join(asked.id, entries=entries, signed=server.signed(asked)).record("tea")
        server.clock.now = START + 60 * periods + 100
        began = time.process_time()
        flushed = device.flush(timeout=600)
        taken = time.process_time() - began
    if flushed.sent != 10_000:
        raise ArithmeticError(f"{flushed} is not 10,000 closings sent")
    return taken


_IDLE = """
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
    asked = plain_survey(8, start=now - now % 60, period=3600)
    loaded: list[str] = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            server = LoopbackServer(Path(folder) / "kept", asked)
            run = [sys.executable, "-c", _IDLE, server.url, PINNED[0].hex(), folder, asked.id.hex(), *loaded]
            printed = subprocess.run(run, capture_output=True, check=True, text=True).stdout  # noqa: S603
            server.close()
        first, *rest = printed.splitlines()
        held, status = first.split()
        if status != "JOINED":
            raise ArithmeticError(f"the survey is {status}, not joined")
        loaded = rest[0].split()
    return int(held) / 2**20
