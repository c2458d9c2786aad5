"""Measures 4 and 5: SIGKILL of servers and folds under load, SIGTERM, PostgreSQL restarted, the same to two servers.

Two servers run on one store, SQLite's or PostgreSQL's. Senders send each upload again until it is acknowledged, as
devices do. In the end every upload counts exactly once, and nothing else counts.
"""

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock

from changeling_aggregator.store import ID_BYTES, Store

from tests.aggregator.serving import ServerProcess
from tests.postgres import PostgreSQL

from .server_lives import Life, Warm, folding, sigkill
from .server_senders import Senders, compared, sealed
from .server_world import port_of, prepared, stores

KILLS = 300
"""On each store."""
MOST_SECONDS = 0.2
"""From when a server or a fold is at work to its kill; drawn from a fixed seed."""
IN_THE_START = 1 / 16
"""This part of servers is killed before they listen, or just then, and of folds and servers before they are at work."""
SERVERS = 2
RESTARTS = 3


def measure() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with stores() as new, ThreadPoolExecutor(len(new)) as on_each:
        kills = {name: on_each.submit(_in_own_folder, killed, place_in) for name, place_in in new.items()}
        for name, done in kills.items():
            figures |= {f"4_{name}_{what}": figure for what, figure in done.result().items()}
        for name, place_in in new.items():
            terms = _in_own_folder(terminated, place_in)
            figures |= {f"4_{name}_sigterm_{what}": figure for what, figure in terms.items()}
    with PostgreSQL() as postgresql, tempfile.TemporaryDirectory() as folder:
        figures |= {f"4_restart_{what}": each for what, each in restarted(Path(folder), postgresql).items()}
        figures |= {f"5_{what}": each for what, each in at_once(Path(folder), postgresql.new()).items()}
    return figures


def _in_own_folder(
    measured: Callable[[Path, str], dict[str, float]], place_in: Callable[[Path], str]
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        return measured(Path(folder), place_in(Path(folder)))


def killed(folder: Path, place: str, kills: int = KILLS, options: Sequence[str] = ()) -> dict[str, float]:
    """Kills until so many hit what was at work; then compares what was sent with what is counted.

    A server was at work if it had acknowledged an upload since its start, a fold if it had counted one. The others that
    were killed are told as well: most of them were starting. options: more, of a server.
    """
    log = prepared(folder, place=place)
    senders = Senders(log)
    count = Counter(dict.fromkeys(("kills_of_server", "kills_of_fold", "kills_besides"), 0))
    counting = Lock()
    arguments = ServerProcess(folder, *options, store=place).arguments

    def end_of(server: Life, chance: random.Random) -> list[tuple[str, bool]]:
        """Kills its fold, then itself; each hit with whether that was at work."""
        with folding(server) as counted:
            _at_some_moment(chance, lambda: server.folds[-1] in counted)
            fold = server.folds[-1]
            hits = [("fold", fold in counted)] * sigkill(fold)
            _at_some_moment(chance, lambda: server.port in senders.acknowledging)
            return hits + [("server", server.port in senders.acknowledging)] * server.kill()

    def live(number: int) -> None:
        """Starts a server, kills its fold, then the server; again and again."""
        chance = random.Random(number)  # noqa: S311
        while count["kills_of_server"] + count["kills_of_fold"] < kills:
            server = warm.serve(*arguments)
            if chance.random() < IN_THE_START:
                time.sleep(chance.uniform(0, MOST_SECONDS))
                with counting:
                    count["kills_besides"] += server.kill()
                continue
            server.await_up()
            senders.acknowledging.discard(server.port)
            senders.ports.append(server.port)
            hits = end_of(server, chance)
            senders.ports.remove(server.port)
            with counting:
                count.update(f"kills_of_{what}" if busy else "kills_besides" for what, busy in hits)

    with Warm(folder / "log") as warm:
        senders.start()
        with ThreadPoolExecutor(SERVERS) as lives:
            [*lives.map(live, range(SERVERS))]
    with _served(folder, place, senders):
        senders.finish()
    figures = compared(log, senders)
    log.store.close()
    return dict(count) | figures


def _await_work(senders: Senders, already: int = 0) -> None:
    """Until they had some uploads acknowledged, beside those already; a minute at most."""
    end = time.monotonic() + 60
    while len(senders.acknowledged) <= already + 20 and time.monotonic() < end:
        time.sleep(0.01)


def _at_some_moment(chance: random.Random, at_work: Callable[[], bool]) -> None:
    """Waits for work to begin, a minute at most, or in some lives does not; and then for a moment."""
    end = time.monotonic() + (0 if chance.random() < IN_THE_START else 60)
    while time.monotonic() < end and not at_work():
        time.sleep(0.005)
    time.sleep(chance.uniform(0, MOST_SECONDS))


def terminated(folder: Path, place: str, options: Sequence[str] = ()) -> dict[str, float]:
    """SIGTERM while senders send and the fold is behind: how long it takes, and what is lost."""
    log = prepared(folder, place=place)
    log.append(time.time(), *([sealed(log, os.urandom(ID_BYTES)) for _ in range(50)] * 2000))
    senders = Senders(log)
    with _served(folder, place, senders, options) as server:
        senders.start()
        _await_work(senders)
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
            _await_work(senders, len(senders.acknowledged))
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
        _await_work(senders)
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
