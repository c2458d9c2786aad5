"""Measures 4 and 5: SIGKILL of servers and folds under load, SIGTERM, PostgreSQL restarted, the same to two servers.

Two servers run on one store, SQLite's or PostgreSQL's. Senders send each upload again until it is acknowledged, as
devices do. In the end every upload counts exactly once, and nothing else counts.
"""

import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread

from changeling_aggregator.store import Store
from changeling_aggregator.store.runs import ID_BYTES

from tests.aggregator.serving import ServerProcess
from tests.postgres import PostgreSQL

from .server_senders import Senders, compared, sealed
from .server_world import port_of, prepared, stores

KILLS = 300
"""On each store."""
FOLDS_A_SERVER = 2
"""How often a server's fold is killed before the server is."""
SERVERS = 2
RESTARTS = 3


def measure() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with stores() as new:
        for name, place_in in new.items():
            for of, measured in (("", killed), ("sigterm_", terminated)):
                with tempfile.TemporaryDirectory() as folder:
                    done = measured(Path(folder), place_in(Path(folder)))
                figures |= {f"4_{name}_{of}{what}": figure for what, figure in done.items()}
    with PostgreSQL() as postgresql, tempfile.TemporaryDirectory() as folder:
        figures |= {f"4_restart_{what}": each for what, each in restarted(Path(folder), postgresql).items()}
        figures |= {f"5_{what}": each for what, each in at_once(Path(folder), postgresql.new()).items()}
    return figures


def killed(folder: Path, place: str, kills: int = KILLS, options: Sequence[str] = ()) -> dict[str, float]:
    """Kills until there were so many; then compares what was sent with what is counted. options: more, of a server."""
    log = prepared(folder, place=place)
    senders = Senders(log)
    count = {"kills_of_server": 0, "kills_of_fold": 0}
    counting = Lock()

    def live(number: int) -> None:
        """Starts a server and kills it, again and again."""
        chance = random.Random(number)  # noqa: S311
        while sum(count.values()) < kills:
            with ServerProcess(_own(folder, number), *options, store=place) as server:
                port = port_of(server)
                senders.ports.append(port)
                for _ in range(FOLDS_A_SERVER):
                    time.sleep(chance.uniform(0.05, 1.2))
                    of_folds = sum(map(_kill, _children(server.process.pid)))
                    with counting:
                        count["kills_of_fold"] += of_folds
                time.sleep(chance.uniform(0.05, 0.6))
                server.kill()
                senders.ports.remove(port)
                with counting:
                    count["kills_of_server"] += 1

    senders.start()
    lives = [Thread(target=live, args=(number,)) for number in range(SERVERS)]
    for each in lives:
        each.start()
    for each in lives:
        each.join()
    with _served(folder, place, senders, options):
        senders.finish()
    figures = compared(log, senders)
    log.store.close()
    return count | figures


def terminated(folder: Path, place: str, options: Sequence[str] = ()) -> dict[str, float]:
    """SIGTERM while senders send and the fold is behind: how long it takes, and what is lost."""
    log = prepared(folder, place=place)
    log.append(time.time(), *([sealed(log, os.urandom(ID_BYTES)) for _ in range(50)] * 2000))
    senders = Senders(log)
    with _served(folder, place, senders, options) as server:
        senders.start()
        time.sleep(3)
        began = time.monotonic()
        server.process.terminate()
        server.process.wait(60)
        took = time.monotonic() - began
    with _served(folder, place, senders, options):
        senders.finish()
    figures = compared(log, senders, already=50)
    log.store.close()
    return {"seconds": took, **figures}


def restarted(folder: Path, postgresql: PostgreSQL) -> dict[str, float]:
    """PostgreSQL is stopped, shut down or crashed, under load, and started: how soon uploads are taken again."""
    place = postgresql.new()
    log = prepared(folder, place=place)
    senders = Senders(log)
    waits = []
    with _served(folder, place, senders):
        senders.start()
        for number in range(RESTARTS):
            time.sleep(1)
            postgresql.stop("immediate" if number % 2 else "fast")
            time.sleep(1)
            before, began = len(senders.acknowledged), time.monotonic()
            postgresql.start()
            while len(senders.acknowledged) <= before + 4 and time.monotonic() < began + 60:  # one each was on its way
                time.sleep(0.01)
            waits.append(time.monotonic() - began)
        senders.finish()
    log.store.close()  # its connection is of before
    log = replace(log, store=Store.open(place))
    figures = compared(log, senders)
    log.store.close()
    return {"restarts": RESTARTS, "seconds": max(waits), **figures}


def at_once(folder: Path, place: str, seconds: float = 10.0, options: Sequence[str] = ()) -> dict[str, float]:
    """Two servers on one store, each of which is sent every envelope."""
    log = prepared(folder, place=place)
    senders = Senders(log, everywhere=True)
    first, second = (_served(_own(folder, each), place, senders, options) for each in (0, 1))
    with first, second:
        senders.start()
        time.sleep(seconds)
        senders.finish()
    figures = compared(log, senders)
    log.store.close()
    return figures


@contextmanager
def _served(folder: Path, place: str, senders: Senders, options: Sequence[str] = ()) -> Iterator[ServerProcess]:
    """A server that the senders send to."""
    with ServerProcess(folder, *options, store=place) as server:
        port = port_of(server)
        senders.ports.append(port)
        try:
            yield server
        finally:
            senders.ports.remove(port)


def _own(folder: Path, number: int) -> Path:
    """A folder for a server of its own."""
    own = folder / str(number)
    own.mkdir(exist_ok=True)
    return own


def _children(parent: int) -> Iterator[int]:
    """The processes of the fold."""
    with suppress(OSError):
        for task in Path(f"/proc/{parent}/task").iterdir():
            for child in (task / "children").read_text().split():
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    yield int(child)


def _kill(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
