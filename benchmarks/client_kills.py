"""Measure 1 of the client, and the kills of measure 9: lives that are killed at every step, or run out of disk.

Real processes speak with a real server on loopback, which keeps every upload; their stores are files of SQLite, or
schemas of a real PostgreSQL. A life's actions are done once each: what a killed process had finished is not done again,
and what it had not is done by the next. Nothing may be lost, answered twice or counted twice.
"""

import os
import random
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import psycopg
from changeling_aggregator.testing.postgres import PostgreSQL
from changeling_client import Client, ClientError, SharedCallbacks, SurveyHandle, flushing, outbox, sqlite, witness
from changeling_protocol import respond

from .client_world import FAST_FOLDER, PINNED, START, LoopbackServer, arrived, bodies, ended, forked, plain_survey

ENTRIES, RANDOM_KILLS, SEED = 2, 120, 1
ASKED = plain_survey(4, noise=True)
EXPECTED = {1: [(0, 1), (0, 0)], 2: [(0, 0), (0, 0)], 3: [(1, 2), (0, 1)], 4: [(2, 0), (0, 0)]}
"""The true inputs of both entries at each node."""
READS = "other SQL"
"""Statements that change nothing on the disk: a kill there is one after the step before."""
FILE_SIZES = range(512, 800_000, 2048)
"""Bytes beyond which no file grows on a disk that is full."""


class Steps:
    """Counts the steps of a life by their names; at step `last` the process kills itself."""

    def __init__(self, last: int | None = None) -> None:
        self.names: list[str] = []
        self.last = last

    def step(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def statement(self, statement: str | bytes) -> None:
        """A step of SQL, by its verb."""
        words = statement if isinstance(statement, str) else statement.decode()
        verb = words.split(maxsplit=1)[0].lower().strip(";")
        self.step(verb if verb in ("begin", "insert", "update", "delete", "commit", "vacuum") else READS)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, with a step before it and one after."""

        def stepped(*given: Any, **named: Any) -> Any:
            self.step(name)
            result = call(*given, **named)
            self.step(name)
            return result

        return stepped


class Watched(httpx.HTTPTransport):
    """Sends a request, with a step before it and one before its answer is looked at."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(verify=False)  # it takes long, and there is no TLS
        self._steps = steps

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        before, after = ("send", "acknowledge") if request.method == "POST" else ("ask", "ask")
        self._steps.step(before)
        response = super().handle_request(request)
        response.read()
        self._steps.step(after)
        return httpx.Response(response.status_code, headers=response.headers, content=response.content)


@contextmanager
def _watched(steps: Steps) -> Iterator[None]:
    """Has the steps of this process counted as long as it lasts."""
    connect, execute = sqlite._connect, psycopg.Connection.execute

    def connected(file: Path) -> Any:
        connection = connect(file)
        connection.set_trace_callback(steps.statement)
        return connection

    def executed(connection: Any, statement: bytes | str, *given: Any, **named: Any) -> Any:
        steps.statement(statement)
        return execute(connection, statement, *given, **named)

    with (
        patch.object(sqlite, "_connect", connected),
        patch.object(psycopg.Connection, "execute", executed),
        patch.object(witness, "_write_through", steps.around("witness", witness._write_through)),
        patch.object(flushing, "respond", steps.around("draw", respond)),
        patch.object(outbox, "put", steps.around("queue", outbox.put)),
        patch.object(sqlite.SQLiteStore, "erase_past", steps.around("erase", sqlite.SQLiteStore.erase_past)),
    ):
        yield


def live(folder: Path, url: str, steps: Steps) -> None:
    """A life's actions, from where the process before it was killed. Raises what the client raises."""
    now = START

    def handle() -> SurveyHandle:
        return client.join(ASKED.id, entries=ENTRIES)

    def flush() -> None:
        handle()
        if (trouble := client.flush().trouble) is not None:
            raise ClientError(trouble)

    actions: list[tuple[int, Callable[[], object]]] = [
        (1, lambda: handle()),
        (5, steps.around("record", lambda: handle().record("tea", 0))),
        (80, flush),
        (130, steps.around("record", lambda: handle().record("coffee", 0))),
        (131, steps.around("record", lambda: handle().record("tea", 1))),
        (200, steps.around("record", lambda: handle().retract(0))),
        (201, flush),
        (260, flush),
        (261, flush),
    ]
    told: dict[str, Any] = {"server": url, "authority": PINNED, "max_epsilon": 10**4, "background": False}
    with _watched(steps), Client(**told, **_place(folder), transport=Watched(steps), clock=lambda: now) as client:
        done = folder / "done"
        for number in range(int(done.read_text()) if done.exists() else 0, len(actions)):
            moment, action = actions[number]
            now = START + moment
            action()
            (folder / "next").write_text(f"{number + 1}")
            (folder / "next").rename(done)


def _place(folder: Path) -> dict[str, Any]:
    """The place of a life's store: a file in its folder, or the database that a file there names, with a witness."""
    named, kept = folder / "database", folder / "witness"
    if not named.exists():
        return {"path": folder / "store.db"}

    def read() -> bytes | None:
        return kept.read_bytes() if kept.exists() else None

    def swap(expected: bytes | None, new: bytes) -> bool:
        held = read() == expected
        if held:
            (folder / "witness.new").write_bytes(new)
            (folder / "witness.new").rename(kept)
        return held

    return {"database": named.read_text(), "witness": SharedCallbacks(read, swap)}


def faults(folder: Path) -> Counter[str]:
    """What is wrong with all that arrived of a life that has ended."""
    wrong: Counter[str] = Counter()
    symbols = arrived(bodies(folder / "kept"), ASKED)
    for number, track in enumerate(ASKED.plan.tracks):
        for node in track.node_numbers():
            ids = symbols[number, node]
            wrong["answered_twice"] += sum(len(drawn) > 1 for drawn in ids.values()) + max(len(ids) - ENTRIES, 0)
            wrong["unanswered"] += max(ENTRIES - len(ids), 0)
            if number == 0:
                inputs = sorted(symbol for drawn in ids.values() for symbol in drawn)
                due = sorted(track.randomizer.space.index(*change) for change in EXPECTED[node])
                wrong["records_lost"] += inputs != due
    return wrong


class Ground:
    """A place for lives: a server, a folder for each life, and a schema of a database if there is one."""

    def __init__(self, root: Path, postgresql: PostgreSQL | None = None) -> None:
        self.wrong, self.killed = Counter[str](), Counter[str]()
        self.server = LoopbackServer(root / "kept", ASKED)
        self._root, self._postgresql, self._lives = root, postgresql, 0

    def begun(self) -> Path:
        """The folder of a new life, whose uploads the server keeps there."""
        self._lives += 1
        folder = self._root / f"{self._lives}"
        folder.mkdir()
        if self._postgresql is not None:
            (folder / "database").write_text(self._postgresql.new())
        self.server.keep_in(folder / "kept")
        return folder

    def child(self, folder: Path, last: int | None = None) -> int:
        """Begins a process of a life, which kills itself at this step. Returns its id."""
        return forked(lambda: live(folder, self.server.url, Steps(last)))

    def finished(self, folder: Path) -> None:
        """Lives on to the end, and looks at what has arrived."""
        self.wrong["unfinished"] += ended(self.child(folder)) != 0
        self.wrong.update(faults(folder))


def kills(share: int, shares: int, postgresql: PostgreSQL | None = None) -> tuple[Counter[str], Counter[str]]:
    """Kills at every step, and of files at random times: one share of both. Returns faults, and how often where."""
    chance = random.Random(SEED + share)  # noqa: S311
    with tempfile.TemporaryDirectory(dir=FAST_FOLDER) as name:
        ground, counting, began = Ground(Path(name), postgresql), Steps(), time.monotonic()
        live(ground.begun(), ground.server.url, counting)
        seconds = time.monotonic() - began
        steps = [number for number, step in enumerate(counting.names, 1) if step != READS]
        for last in steps[share::shares]:
            folder = ground.begun()
            if ended(ground.child(folder, last)) == -signal.SIGKILL:
                ground.killed[counting.names[last - 1]] += 1
            ground.finished(folder)
        for _ in range(RANDOM_KILLS // shares if postgresql is None else 0):
            folder = ground.begun()
            child = ground.child(folder)
            time.sleep(chance.uniform(0, seconds))
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            ground.killed["any time"] += ended(child) == -signal.SIGKILL
            ground.finished(folder)
        ground.server.close()
        return ground.wrong, ground.killed


def kills_on_postgresql() -> tuple[Counter[str], Counter[str]]:
    """The same kills at every step of a life whose store is in PostgreSQL."""
    with PostgreSQL() as postgresql:
        postgresql.sql("ALTER SYSTEM SET fsync = off")  # the database is not killed
        postgresql.sql("SELECT pg_reload_conf()")
        return kills(0, 1, postgresql)


def full_disks() -> tuple[Counter[str], Counter[str]]:
    """Lives whose process ends at the first error, as no file grows beyond a size; the next finds room again."""

    def limited(folder: Path, size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        try:
            live(folder, ground.server.url, Steps())
        except ClientError:
            os._exit(3)

    with tempfile.TemporaryDirectory(dir=FAST_FOLDER) as name:
        ground = Ground(Path(name))
        for size in FILE_SIZES:
            folder = ground.begun()
            code = ended(forked(lambda: limited(folder, size)))  # noqa: B023
            ground.killed["full disk"] += code == 3
            ground.wrong["raised_something_else"] += code not in (0, 3)
            ground.finished(folder)
            if code == 0 and ground.killed["full disk"]:
                break
        ground.server.close()
        return ground.wrong, ground.killed


def measure() -> dict[str, float]:
    """How many lives were killed or ran out of disk, where, and what was wrong with any of them."""
    shares = os.cpu_count() or 1
    with ProcessPoolExecutor(shares, mp_context=get_context("spawn")) as workers:
        files = [workers.submit(partial(kills, share, shares)) for share in range(shares)]
        tried = {"kills": files, "kills_postgresql": [workers.submit(kills_on_postgresql)]}
        tried |= {"full_disks": [workers.submit(full_disks)]}
        figures: dict[str, float] = {}
        for kind, parts in tried.items():
            wrong = sum((part.result()[0] for part in parts), Counter[str]())
            killed = sum((part.result()[1] for part in parts), Counter[str]())
            figures[f"9_{kind}_lives"] = float(killed.total())
            for name in ("answered_twice", "unanswered", "records_lost", "unfinished"):
                figures[f"9_{kind}_{name}"] = float(wrong[name])
            if kind == "kills":
                figures |= {f"1_kills_at_{step.replace(' ', '_')}": float(n) for step, n in sorted(killed.items())}
    return figures
