"""Measure 1 of the client, and the kills of measure 9: lives that are killed, or run out of disk.

Stores are files of SQLite, and, for kills at every statement, schemas of a real PostgreSQL.

Real processes speak with a real server on loopback, which keeps every upload. A life's actions are done once each; what
a killed process had finished is not done again, and what it had not is done by the next. Nothing may be lost, answered
twice or counted twice.
"""

import os
import random
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import changeling_client
import httpx
import psycopg
from changeling_aggregator.testing.postgres import PostgreSQL
from changeling_client import Client, ClientError, SharedCallbacks, answering, outbox, sqlite, witness
from changeling_protocol import respond

from .client_world import PINNED, START, LoopbackServer, arrived, ended, forked, plain_survey

ENTRIES, RANDOM_KILLS, SEED = 2, 240, 1
ASKED = plain_survey(4, noise=True)
EXPECTED = {1: [(0, 1), (0, 0)], 2: [(0, 0), (0, 0)], 3: [(1, 2), (0, 1)], 4: [(2, 0), (0, 0)]}
"""The true inputs of both entries at each node."""
READS = "other SQL"
"""Statements that change nothing on the disk: a kill there is one after the step before."""
PAGE = 4096


class Steps:
    """Counts the steps of a life by their names; at step `last` the process kills itself."""

    def __init__(self, last: int | None = None) -> None:
        self.names: list[str] = []
        self.last = last

    def step(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

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
        name = "send" if request.method == "POST" else "ask"
        self._steps.step(name)
        response = super().handle_request(request)
        response.read()
        self._steps.step("acknowledge" if request.method == "POST" else name)
        return httpx.Response(response.status_code, headers=response.headers, content=response.content)


def live(folder: Path, url: str, steps: Steps, connect: Callable[[Path], Any] = sqlite._connect) -> None:
    """A life's actions, from where the process before it was killed. Raises what the client raises."""
    now = START

    def connected(file: Path) -> Any:
        connection = connect(file)
        connection.set_trace_callback(lambda statement: steps.step(_verb(statement)))
        return connection

    execute = psycopg.Connection.execute

    def executed(connection: Any, statement: bytes | str, *given: Any, **named: Any) -> Any:
        steps.step(_verb(statement if isinstance(statement, str) else statement.decode()))
        return execute(connection, statement, *given, **named)

    with (
        patch.object(sqlite, "_connect", connected),
        patch.object(witness, "_write_through", steps.around("witness", witness._write_through)),
        patch.object(answering, "respond", steps.around("draw", respond)),
        patch.object(outbox, "put", steps.around("queue", outbox.put)),
        patch.object(sqlite.SQLiteStore, "erase_past", steps.around("erase", sqlite.SQLiteStore.erase_past)),
        patch.object(psycopg.Connection, "execute", executed),
        Client(
            server=url,
            authority=PINNED,
            max_epsilon=10**4,
            **_store_of(folder),
            background=False,
            strict=True,
            transport=Watched(steps),
            clock=lambda: now,
        ) as client,
    ):

        def handle() -> changeling_client.SurveyHandle:
            return client.join(ASKED.id, entries=ENTRIES)

        def flush() -> None:
            handle()
            flushed = client.flush()
            if flushed.trouble is not None:
                raise ClientError(flushed.trouble)

        actions: list[tuple[int, Callable[[], object]]] = [
            (1, handle),
            (5, steps.around("record", lambda: handle().record("tea", 0))),
            (80, flush),
            (130, steps.around("record", lambda: handle().record("coffee", 0))),
            (131, steps.around("record", lambda: handle().record("tea", 1))),
            (200, steps.around("record", lambda: handle().retract(0))),
            (201, flush),
            (260, flush),
            (261, flush),
        ]
        done = folder / "done"
        for number, (moment, action) in enumerate(actions):
            if done.exists() and number < int(done.read_text()):
                continue
            now = START + moment
            action()
            (folder / "next").write_text(str(number + 1))
            (folder / "next").rename(done)


def _store_of(folder: Path) -> dict[str, Any]:
    """Where a life's store is: a file in its folder, or the database that a file there names, with a witness beside."""
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


def _verb(statement: str) -> str:
    verb = statement.split(maxsplit=1)[0].lower().strip(";")
    return verb if verb in ("begin", "insert", "update", "delete", "commit", "vacuum") else READS


def faults(folder: Path) -> Counter[str]:
    """What is wrong with all that arrived of a life that has ended."""
    wrong: Counter[str] = Counter(lost_records=0, two_symbols=0, counted_twice=0, lost_closings=0)
    symbols = arrived(folder / "kept", ASKED)
    for number, track in enumerate(ASKED.plan.tracks):
        for node in track.node_numbers():
            ids = symbols[number, node]
            wrong["two_symbols"] += sum(len(drawn) > 1 for drawn in ids.values())
            wrong["counted_twice"] += max(len(ids) - ENTRIES, 0)
            wrong["lost_closings"] += max(ENTRIES - len(ids), 0)
            if number == 0:
                inputs = sorted(symbol for drawn in ids.values() for symbol in drawn)
                wrong["lost_records"] += inputs != sorted(
                    track.randomizer.space.index(*change) for change in EXPECTED[node]
                )
    return wrong


def measure() -> dict[str, float]:
    """How many lives were killed, where, and what was wrong with any of them; and how many ran out of disk."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as workers:
        killed = list(workers.map(partial(kills, shares=os.cpu_count() or 1), range(os.cpu_count() or 1)))
        full, shared = workers.submit(full_disks), workers.submit(kills_on_postgresql)
        total = sum((share for share, _ in killed), Counter[str]())
        where = sum((names for _, names in killed), Counter[str]())
        figures = {"1_kills": float(where.total())}
        figures |= {f"1_kills_at_{name.replace(' ', '_')}": float(count) for name, count in sorted(where.items())}
        names = ("lost_records", "two_symbols", "counted_twice", "lost_closings", "unfinished")
        figures |= {f"1_kills_{name}": float(total[name]) for name in names}
        figures |= {
            "9_kills_lives": float(where.total()),
            "9_kills_answered_twice": float(total["two_symbols"] + total["counted_twice"]),
            "9_kills_records_lost": float(total["lost_records"]),
        }
        return figures | full.result() | shared.result()


def _fast_folder() -> str | None:
    """In memory where there is such a place: a SIGKILL loses nothing there either."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108


def kills(share: int, shares: int, at_random: int = RANDOM_KILLS) -> tuple[Counter[str], Counter[str]]:
    """Kills at every step, and at random times: one share of both. Returns faults, and how often it killed where."""
    chance = random.Random(SEED + share)  # noqa: S311
    wrong: Counter[str] = Counter()
    where: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as name:
        root = Path(name)
        server = LoopbackServer(root / "kept", ASKED)

        def begun(at: object) -> Path:
            folder = root / str(at)
            folder.mkdir()
            server.keep_in(folder / "kept")
            return folder

        def finished(folder: Path) -> None:
            wrong["unfinished"] += ended(forked(lambda: live(folder, server.url, Steps()))) != 0
            wrong.update(faults(folder))
            shutil.rmtree(folder)

        counting, began = Steps(), time.monotonic()
        live(begun("whole"), server.url, counting)
        seconds = time.monotonic() - began
        steps = [number for number, name in enumerate(counting.names, 1) if name != READS]
        for last in steps[share::shares]:
            folder = begun(last)
            if ended(forked(lambda: live(folder, server.url, Steps(last)))) == -signal.SIGKILL:  # noqa: B023
                where[counting.names[last - 1]] += 1
            finished(folder)
        number = 0
        while where["any time"] < at_random // shares and number < 4 * at_random:
            number += 1
            folder = begun(f"random{number}")
            child = forked(lambda: live(folder, server.url, Steps()))  # noqa: B023
            time.sleep(chance.uniform(0, seconds))
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            where["any time"] += ended(child) == -signal.SIGKILL
            finished(folder)
        server.close()
    return wrong, where


def kills_on_postgresql() -> dict[str, float]:
    """Kills at every statement, and at every step beside them, of a life whose store is in PostgreSQL."""
    wrong: Counter[str] = Counter()
    lives = 0
    with PostgreSQL() as postgresql, tempfile.TemporaryDirectory(dir=_fast_folder()) as name:
        root = Path(name)
        server = LoopbackServer(root / "kept", ASKED)
        postgresql.sql("ALTER SYSTEM SET fsync = off")  # the database is not killed
        postgresql.sql("SELECT pg_reload_conf()")

        def begun(at: object) -> Path:
            folder = root / str(at)
            folder.mkdir()
            (folder / "database").write_text(postgresql.new())
            server.keep_in(folder / "kept")
            return folder

        counting = Steps()
        live(begun("whole"), server.url, counting)
        wrong.update(faults(root / "whole"))
        for last in [number for number, step in enumerate(counting.names, 1) if step != READS]:
            folder = begun(last)
            lives += ended(forked(lambda: live(folder, server.url, Steps(last)))) == -signal.SIGKILL  # noqa: B023
            wrong["unfinished"] += ended(forked(lambda: live(folder, server.url, Steps()))) != 0  # noqa: B023
            wrong.update(faults(folder))
        server.close()
    return {
        "9_kills_postgresql_lives": float(lives),
        "9_kills_postgresql_answered_twice": float(wrong["two_symbols"] + wrong["counted_twice"]),
        "9_kills_postgresql_records_lost": float(wrong["lost_records"] + wrong["lost_closings"]),
        "9_kills_postgresql_unfinished": float(wrong["unfinished"]),
    }


def full_disks(most_pages: int = 200) -> dict[str, float]:
    """Lives on a disk that is full: no file grows beyond a size, or the database gets no more pages.

    The process ends at the first error; the next finds room again.
    """
    wrong: Counter[str] = Counter()
    lives = errors = 0
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as name:
        root = Path(name)
        server = LoopbackServer(root / "kept", ASKED)

        def limited(folder: Path, pages: int, grows: int | None) -> None:
            if grows is None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (pages, resource.RLIM_INFINITY))
            connect = sqlite._connect if grows is None else partial(_bounded, grows)
            try:
                live(folder, server.url, Steps(), connect)
            except ClientError:
                os._exit(3)

        for limit in [
            *((page, None) for page in range(512, most_pages * PAGE, PAGE // 2)),
            *((0, g) for g in range(8)),
        ]:
            folder = root / "life"
            folder.mkdir()
            server.keep_in(folder / "kept")
            code = ended(forked(lambda: limited(folder, *limit)))  # noqa: B023
            lives += 1
            errors += code == 3
            wrong["raised_something_else"] += code not in (0, 3)
            wrong["unfinished"] += ended(forked(lambda: live(folder, server.url, Steps()))) != 0  # noqa: B023
            wrong.update(faults(folder))
            shutil.rmtree(folder)
            if code == 0 and limit[1] is None and limit[0] > 40 * PAGE:
                break
        server.close()
    figures = {"1_full_disks": float(lives), "1_full_disks_noticed": float(errors)}
    names = ("lost_records", "two_symbols", "counted_twice", "lost_closings", "unfinished", "raised_something_else")
    return figures | {f"1_full_{name}": float(wrong[name]) for name in names}


def _bounded(pages: int, file: Path) -> Any:
    """A connection to a file that grows by no more than so many pages."""
    connection = sqlite._connect(file)
    (has,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {max(has, 1) + pages}")
    return connection
