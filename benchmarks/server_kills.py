"""Measure 4: SIGKILL of the server and of its fold under load, and SIGTERM with a backlog.

Senders send each upload again until it is acknowledged, as devices do. In the end every upload counts exactly once, and
nothing else counts.
"""

import http.client
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from changeling_aggregator.fold import fold
from changeling_aggregator.fold.check import check
from changeling_aggregator.store.counted import tallies_of
from changeling_aggregator.store.runs import ID_BYTES, read_run, runs_of
from changeling_protocol import Closing, Node, Report, Standing, seal
from changeling_protocol.quantities import NodeNumber, StratumNumber, TrackNumber, UnixSeconds
from changeling_protocol.upload import encode_upload
from changeling_protocol.wire import encode_upload_request
from changeling_protocol.wire.paths import UPLOADS

from tests.aggregator.devices import Log
from tests.aggregator.serving import ServerProcess

from .server_world import port_of, prepared

KILLS = 300
FOLDS_A_SERVER = 2
"""How often the fold is killed before the server is."""
SENDERS = 4


def measure() -> dict[str, float | None]:
    return killed(KILLS) | terminated()


def killed(kills: int) -> dict[str, float | None]:
    """Kills until there were so many; then compares what was sent with what is counted."""
    chance = random.Random(4)  # noqa: S311
    with tempfile.TemporaryDirectory() as place:
        log = prepared(Path(place))
        senders = [Sender(log) for _ in range(SENDERS)]
        threads = [Thread(target=sender.run, daemon=True) for sender in senders]
        for thread in threads:
            thread.start()
        of_servers = of_folds = 0
        while of_servers + of_folds < kills:
            with ServerProcess(Path(place)) as server:
                for sender in senders:
                    sender.port = port_of(server)
                for _ in range(FOLDS_A_SERVER):
                    time.sleep(chance.uniform(0.05, 0.6))
                    of_folds += sum(map(_kill, _children(server.process.pid)))
                time.sleep(chance.uniform(0.05, 0.6))
                server.kill()
                of_servers += 1
        with ServerProcess(Path(place)) as server:
            for sender in senders:
                sender.port = port_of(server)
                sender.stop.set()
            for thread in threads:
                thread.join(60)
        figures = _compared(log, senders)
        log.store.close()
    return {"4_kills_of_server": of_servers, "4_kills_of_fold": of_folds, **figures}


def terminated() -> dict[str, float | None]:
    """SIGTERM while senders send and the fold is behind: how long it takes, and what is lost."""
    with tempfile.TemporaryDirectory() as place:
        log = prepared(Path(place))
        sealed = [_sealed(log, os.urandom(ID_BYTES)) for _ in range(50)]
        log.append(time.time(), *(sealed * 2000))
        senders = [Sender(log) for _ in range(SENDERS)]
        with ServerProcess(Path(place)) as server:
            threads = [Thread(target=sender.run, daemon=True) for sender in senders]
            for sender, thread in zip(senders, threads, strict=True):
                sender.port = port_of(server)
                thread.start()
            time.sleep(3)
            began = time.monotonic()
            server.process.terminate()
            server.process.wait(60)
            took = time.monotonic() - began
        with ServerProcess(Path(place)) as server:
            for sender in senders:
                sender.port = port_of(server)
                sender.stop.set()
            for thread in threads:
                thread.join(60)
        figures = _compared(log, senders, already=50)
        log.store.close()
    return {"4_sigterm_seconds": took, **{name.replace("4_", "4_sigterm_"): each for name, each in figures.items()}}


class Sender:
    """Sends one upload after the other, each until it is acknowledged; at `stop` it finishes the one in hand."""

    def __init__(self, log: Log) -> None:
        self._log, self.port = log, 0
        self.stop = Event()
        self.acknowledged: set[bytes] = set()

    def run(self) -> None:
        while not self.stop.is_set():
            id_ = os.urandom(ID_BYTES)
            body = encode_upload_request([_sealed(self._log, id_)])
            while not self._sent(body):
                time.sleep(0.02)
            self.acknowledged.add(id_)

    def _sent(self, body: bytes) -> bool:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            connection.request("POST", UPLOADS, body)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            return answer.status == 200 and content.endswith(b"\x90")  # nobody refused
        return False


def _sealed(log: Log, id_: bytes) -> bytes:
    period = log.survey.calendar.periods
    closing = Closing(period, id_, Standing.KNOWN, StratumNumber(0))
    reports = [Report(TrackNumber(0), NodeNumber(period), id_[0] % 5)]
    return seal(encode_upload(log.survey.plan, 0, Node(period - 1, period), [closing], reports), log.survey.id, log.key)


def _compared(log: Log, senders: list[Sender], already: int = 0) -> dict[str, float | None]:
    while fold(log.store, UnixSeconds(time.time()), closing=False).stood_by:
        time.sleep(0.1)
    sent = set().union(*(sender.acknowledged for sender in senders))
    key = log.survey.id, log.survey.calendar.periods
    with log.store.reading() as connection:
        (tally,) = tallies_of(connection, log.survey.id).values()
        runs = runs_of(connection, [key]).get(key, [])
        packed = b"".join(piece for run in runs for piece in read_run(connection, key, run.number))
    ids = [packed[at : at + ID_BYTES] for at in range(0, len(packed), ID_BYTES)]
    return {
        "4_acknowledged": len(sent),
        "4_lost": len(sent - set(ids)),
        "4_counted_twice": len(ids) - len(set(ids)) + abs(tally.reports - len(ids)),
        "4_counted_besides": len(set(ids) - sent) - already,
        "4_differences_folded_again": len(check(log.store)),
    }


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
