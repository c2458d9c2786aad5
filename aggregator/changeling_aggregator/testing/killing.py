"""Servers and folds killed, stopped and doubled under load; and what of all that was acknowledged a store has counted.

Senders send each upload again until it is acknowledged, as devices do. In the end every upload counts exactly once, and
nothing else counts: `lost`, `counted_twice`, `counted_besides` and `differences_folded_again` are 0.
"""

import http.client
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL, SIGTERM
from threading import Event, Lock, Thread

from changeling_protocol import (
    AtMost,
    Calendar,
    Closing,
    Group,
    KaryResponse,
    MutationSpace,
    Node,
    NodeNumber,
    Odds,
    ReleasePlan,
    Report,
    Standing,
    StratumNumber,
    Survey,
    Track,
    TrackNumber,
    UnixSeconds,
    encode_upload,
    seal,
)
from changeling_protocol.wire import FOLD, UPLOADS, encode_upload_request

from ..fold import check, fold
from ..store import ID_BYTES, Store
from .postgres import PostgreSQL
from .serving import ADMIN, RunningServer, SurveyLog, offspring

SENDERS, SERVERS, RESTARTS = 4, 2, 3
PERIOD_SECONDS = 3600
MOST_SECONDS = 0.2
"""From when a server or a fold is at work to its kill; drawn from a fixed seed."""
START_SECONDS = 2.0
IN_THE_START = 1 / 16
"""This part of servers is killed within START_SECONDS of their start; of folds and servers, before they are at work."""
MOST_WAIT = 60.0


def hourly_survey(periods: int, now: float) -> Survey:
    """A track of changes among three answers; its last period closed a minute before `now`, in Unix seconds."""
    plan = ReleasePlan((Group((Track(1, KaryResponse(MutationSpace(3), Odds(9, 2)), 0, periods),)),))
    return Survey.at_cost(
        question="What do you drink?",
        answers=("tea", "coffee", "neither"),
        calendar=Calendar(int(now) - 60 - periods * PERIOD_SECONDS, PERIOD_SECONDS, periods),
        constraint=AtMost(3),
        plan=plan,
        skew=5,
        spread=10,
        grace=90 * 86_400,
        minimum=1,
    )


def prepared_log(folder: Path, periods: int = 8, place: str | None = None) -> SurveyLog:
    """A store with a survey and a key, for a server to open. place: of the store, where it is not in the folder."""
    return SurveyLog.of(Store.open(place or folder / "server.db"), hourly_survey(periods, time.time()))


def sealed_upload(log: SurveyLog, id_: bytes) -> bytes:
    """An envelope with one closing, the last."""
    period = log.survey.calendar.periods
    told = [Closing(period, id_, Standing.KNOWN, StratumNumber(0))]
    reports = [Report(TrackNumber(0), NodeNumber(period), id_[0] % 5)]
    return seal(encode_upload(log.survey.plan, 0, Node(period - 1, period), told, reports), log.survey.id, log.key)


class Senders:
    """Send one upload after the other, each until it is acknowledged, to any of these ports.

    ports: of the servers that run, which the caller changes. everywhere: each upload goes to all of them at once, and
    is acknowledged when all have. acknowledging: the ports of servers that have acknowledged something.
    """

    def __init__(self, log: SurveyLog, everywhere: bool = False) -> None:
        self._log, self._everywhere = log, everywhere
        self.ports: list[int] = []
        self.acknowledged: set[bytes] = set()
        self.acknowledging: set[int] = set()
        self._stop = Event()
        self._threads = [Thread(target=self._run, daemon=True) for _ in range(SENDERS)]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Send no more than the uploads in hand, for which a server must run. Raises TimeoutError without one."""
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            if thread.is_alive():
                raise TimeoutError("an upload was not acknowledged within two minutes")

    def await_work(self, already: int = 0) -> None:
        """Wait until they had some uploads acknowledged, beside those already; a minute at most."""
        _await(lambda: len(self.acknowledged) > already + 20)

    def _run(self) -> None:
        while not self._stop.is_set():
            id_ = os.urandom(ID_BYTES)
            body = encode_upload_request([sealed_upload(self._log, id_)])
            each = [Thread(target=self._send, args=([port], body)) for port in self.ports if self._everywhere]
            for thread in each:
                thread.start()
            for thread in each:
                thread.join()
            if not each:
                self._send(self.ports, body)
            self.acknowledged.add(id_)

    def _send(self, ports: Sequence[int], body: bytes) -> None:
        while not ((there := [*ports]) and _sent(port := random.choice(there), body)):
            time.sleep(0.02)
        self.acknowledging.add(port)


def _sent(port: int, body: bytes) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with suppress(OSError, http.client.HTTPException), closing(connection):
        connection.request("POST", UPLOADS, body)
        answer = connection.getresponse()
        content = answer.read()
        return answer.status == 200 and content.endswith(b"\x90")  # nobody refused
    return False


def compared(log: SurveyLog, senders: Senders, already: int = 0) -> dict[str, float]:
    """Compare what was acknowledged with what is counted. already: how many ids the log had before."""
    while (done := fold(log.store, UnixSeconds(time.time()), closing=False)).stood_by or done.behind:
        time.sleep(0.1)
    sent = senders.acknowledged
    key = log.survey.id, log.survey.calendar.periods
    with log.store.view() as view:
        (tally,) = view.tallies(log.survey.id).values()
        runs = view.runs([key]).get(key, [])
        packed = b"".join(piece for run in runs for piece in view.read_run(key, run.number))
    ids = [packed[at : at + ID_BYTES] for at in range(0, len(packed), ID_BYTES)]
    return {
        "acknowledged": len(sent),
        "lost": len(sent - {*ids}),
        "counted_twice": len(ids) - len({*ids}) + abs(tally.reports - len(ids)),
        "counted_besides": len({*ids} - sent) - already,
        "differences_folded_again": len(check(log.store)),
    }


def killed(folder: Path, place: str, kills: int, options: Sequence[str] = ()) -> dict[str, float]:
    """Kill until so many hit what was at work; then compare what was sent with what is counted.

    A server was at work if it had acknowledged an upload since its start, a fold if it had counted one. The others that
    were killed are told as well: most of them were starting. options: more, of a server.
    """
    log = prepared_log(folder, place=place)
    senders = Senders(log)
    count = Counter(dict.fromkeys(("kills_of_server", "kills_of_fold", "kills_besides"), 0))
    counting = Lock()

    def live(number: int) -> None:
        """Start a server, kill its fold, then the server; again and again."""
        chance = random.Random(number)
        while count["kills_of_server"] + count["kills_of_fold"] < kills:
            server = RunningServer(_own(folder, number), *options, store=place, log=folder / "log")
            server.start()
            if chance.random() < IN_THE_START:
                time.sleep(chance.uniform(0, START_SECONDS))
                hits = [("server", False)]
            else:
                server.await_up()
                senders.acknowledging.discard(server.port)
                senders.ports.append(server.port)
                hits = _ends_of(server, senders, chance)
                senders.ports.remove(server.port)
            server.kill()
            with counting:
                count.update(f"kills_of_{what}" if busy else "kills_besides" for what, busy in hits)

    senders.start()
    with ThreadPoolExecutor(SERVERS) as lives:
        [*lives.map(live, range(SERVERS))]
    with _served(folder, place, senders):
        senders.finish()
    return dict(count) | _in_the_end(log, senders)


def _ends_of(server: RunningServer, senders: Senders, chance: random.Random) -> list[tuple[str, bool]]:
    """Kill its fold, then itself; each hit with whether that was at work."""
    hits = []
    with _folding(server) as counted:
        _await_some_moment(chance, lambda: not counted.isdisjoint(server.folds))
        for fold_ in server.folds:
            with suppress(ProcessLookupError):
                os.kill(fold_, SIGKILL)
                hits.append(("fold", fold_ in counted))
        _await_some_moment(chance, lambda: server.port in senders.acknowledging)
        server.process.kill()
    return [*hits, ("server", server.port in senders.acknowledging)]


@contextmanager
def _folding(server: RunningServer) -> Iterator[set[int]]:
    """Have a server fold as often as it will; gives the numbers of its folds that have counted something."""
    counted, stop = set[int](), Event()

    def ask() -> None:
        while not stop.wait(0.02):
            before = server.folds
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=MOST_WAIT)
            with suppress(OSError, http.client.HTTPException, ValueError), closing(connection):
                connection.request("POST", FOLD, headers=ADMIN)
                if json.loads(connection.getresponse().read()).get("envelopes") and server.folds == before:
                    counted.update(before)

    asking = Thread(target=ask)
    asking.start()
    try:
        yield counted
    finally:
        stop.set()
        asking.join()


def _await(done: Callable[[], bool], seconds: float = MOST_WAIT) -> None:
    """Wait for something, so long at most."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not done():
        time.sleep(0.005)


def _await_some_moment(chance: random.Random, at_work: Callable[[], bool]) -> None:
    """Wait for work to begin, or in some lives do not; and then for a moment."""
    _await(at_work, 0 if chance.random() < IN_THE_START else MOST_WAIT)
    time.sleep(chance.uniform(0, MOST_SECONDS))


def terminated(folder: Path, place: str, options: Sequence[str] = (), backlog: int = 100_000) -> dict[str, float]:
    """SIGTERM to all of a server while senders send and the fold is behind: how long it takes, and what is lost.

    backlog: so many envelopes are to be counted. It is told to end once the first of them are. left: how many were not.
    """
    log = prepared_log(folder, place=place)
    log.append(time.time(), *([sealed_upload(log, os.urandom(ID_BYTES)) for _ in range(50)] * (backlog // 50)))
    senders = Senders(log)

    def requests() -> tuple[int, int]:
        """How many the fold has counted, and how many it has not."""
        with log.store.view() as view:
            return view.folded(), view.unfolded()

    with _served(folder, place, senders, options) as server:
        senders.start()
        senders.await_work()
        _await(lambda: requests()[0] > 0)
        began = time.monotonic()
        for pid in (*offspring(server.process.pid), server.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, SIGTERM)
        server.process.wait(60)
        took, (_, behind) = time.monotonic() - began, requests()
    with _served(folder, place, senders, options):
        senders.finish()
    return {"seconds": took, "left": behind, **_in_the_end(log, senders, already=50)}


def restarted(folder: Path, postgresql: PostgreSQL) -> dict[str, float]:
    """PostgreSQL is stopped, shut down or crashed, under load, and started: how soon uploads are taken again."""
    place = postgresql.new()
    log = prepared_log(folder, place=place)
    senders = Senders(log)
    waits = []
    with _served(folder, place, senders):
        senders.start()
        for number in range(RESTARTS):
            senders.await_work(len(senders.acknowledged))
            time.sleep(1)
            postgresql.stop("immediate" if number % 2 else "fast")
            time.sleep(1)
            before, began = len(senders.acknowledged), time.monotonic()
            postgresql.start()
            _await(lambda before=before: len(senders.acknowledged) > before + SENDERS)  # type: ignore[misc]
            waits.append(time.monotonic() - began)
        senders.finish()
    log.store.close()  # its connection is of before
    log = replace(log, store=Store.open(place))
    return {"restarts": RESTARTS, "seconds": max(waits), **_in_the_end(log, senders)}


def at_once(folder: Path, place: str, seconds: float = 10.0, options: Sequence[str] = ()) -> dict[str, float]:
    """Two servers on one store, each of which is sent every envelope."""
    log = prepared_log(folder, place=place)
    senders = Senders(log, everywhere=True)
    first, second = (_served(_own(folder, each), place, senders, options) for each in (0, 1))
    with first, second:
        senders.start()
        senders.await_work()
        time.sleep(seconds)
        senders.finish()
    return _in_the_end(log, senders)


def _in_the_end(log: SurveyLog, senders: Senders, already: int = 0) -> dict[str, float]:
    figures = compared(log, senders, already)
    log.store.close()
    return figures


@contextmanager
def _served(folder: Path, place: str, senders: Senders, options: Sequence[str] = ()) -> Iterator[RunningServer]:
    """A server that the senders send to."""
    with RunningServer(folder, *options, store=place) as server:
        senders.ports.append(server.port)
        try:
            yield server
        finally:
            senders.ports.remove(server.port)


def _own(folder: Path, number: int) -> Path:
    """A folder for a server of its own."""
    own = folder / str(number)
    own.mkdir(exist_ok=True)
    return own
