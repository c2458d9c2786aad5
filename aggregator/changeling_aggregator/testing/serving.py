"""Real servers in processes of their own on loopback, as operators run them; and what they have counted once killed.

For tests and measures alike. A test's own server, with a clock that it moves, is made of `RunningServer`. What a
process has started is told by /proc: processes end while they are looked at, and are then not there.

Servers and folds are killed, stopped and doubled under load. Senders send each upload again until it is acknowledged,
as devices do. In the end every upload counts exactly once, and nothing else counts: `lost`, `counted_twice`,
`counted_besides` and `differences_folded_again` are 0.
"""

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import SystemRandom
from signal import SIGKILL, SIGTERM
from threading import Event, Lock, Thread
from typing import Self

import httpx
from changeling_protocol import (
    HEAD_BYTES,
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
    SealingKey,
    Standing,
    StratumNumber,
    Survey,
    SurveyId,
    Track,
    TrackNumber,
    UnixMilliseconds,
    UnixSeconds,
    encode,
    encode_upload,
    seal,
)
from changeling_protocol.wire import FOLD, UPLOADS, encode_upload_request

from ..fold import check, fold
from ..store import ID_BYTES, Store, TokenScope, hash_of
from .services import PostgreSQL
from .stores import AUTHORITY, publish_new_key, tallies_in

FIRST_PORT, END_PORT = 10_000, 30_000
"""Below what the system gives out by itself: a port of these goes to none but who names it."""


def offspring(pid: int) -> list[int]:
    """The process ids of all that a process has started, and these in turn: each before what it has started."""
    return [each for child in children(pid) for each in (child, *offspring(child))]


def running(pid: int) -> bool:
    """Tell whether the process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """The process ids of what a process has started itself."""
    children: list[int] = []
    with suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # a thread of it has, whose children are another's now
                children += map(int, (task / "children").read_text().split())
    return children


def command_of(pid: int) -> bytes:
    """The words of a process's command, each ended by a zero byte; none where there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def free_port() -> int:
    """One of loopback that nobody listens on. One that the system chose would be free as well, but could be another's
    by the time that the server binds it, as every server and connection of other tests is given one, too.
    """
    while True:
        port = SystemRandom().randrange(FIRST_PORT, END_PORT)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


TOKEN = "the operator's token, for everything"
ADMIN = {"authorization": f"Bearer {TOKEN}"}
FOREVER = 2**40
"""When the keys of tests expire, in Unix seconds."""


class RunningServer:
    """`changeling serve` on a free port; use as a context. log: a file for what it logs.

    options: more of its options. store: a path or a URL; by default a file in the folder.
    """

    module = "changeling_commands"
    """The module whose `main` is the command; a subclass may name one that registers something first."""
    _adding = Lock()

    def __init__(self, folder: Path, *options: str, store: str | None = None, log: Path | None = None) -> None:
        self._log = log
        self.store_path = store or str(folder / "server.db")
        self.add_token(TOKEN, *TokenScope)
        public = folder / "pinned.pub"
        public.write_text(AUTHORITY.public_key().public_bytes_raw().hex())
        self.arguments = ["serve", "--port", "0", "--store", self.store_path, "--authority", str(public), *options]

    def __enter__(self) -> Self:
        self.start()
        self.await_up()
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.process.terminate()
        self._end()

    def start(self) -> None:
        """Start the process."""
        command = [sys.executable, "-m", self.module, *self.arguments]
        with nullcontext() if self._log is None else self._log.open("a") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)

    def await_up(self) -> None:
        """Wait until it listens. Raises AssertionError where it ends before."""
        assert self.process.stdout
        if not (said := self.process.stdout.readline()):
            self._end()
            why = self._log.read_text() if self._log else "standard error tells why"
            raise AssertionError(f"the server ended before it listened: {why}")
        self.url = said.split()[-1]
        self.http = httpx.Client(base_url=self.url, timeout=100)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    @property
    def folds(self) -> list[int]:
        """The processes that it has started to fold; one, or none where that was killed just now."""
        return [each for each in children(self.process.pid) if b"spawn_main" in command_of(each)]

    def kill(self) -> None:
        """SIGKILL, now; its fold may go on for as long as its batch takes."""
        if hasattr(self, "http"):
            self.http.close()
        self.process.kill()
        self._end()

    def add_token(self, text: str, *scopes: TokenScope) -> None:
        """A token of this text, in the server's store, which may be that of servers that start at the same time."""
        store = Store.open(self.store_path)
        with self._adding, store.transaction() as writing:
            if hash_of(text) not in writing.tokens():
                writing.add_token(text, "tests", scopes, UnixSeconds(0.0))
        store.close()

    def _end(self) -> None:
        """Wait for it, and kill it where it does not end: then another test would fail by what is left open."""
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout
            self.process.stdout.close()


def body(*envelopes: object) -> bytes:
    """The bytes of an upload request, as any client may send them: more than fit, or none of them bytes."""
    return encode({"envelopes": list(envelopes)})


@dataclass(frozen=True)
class SurveyLog:
    """A store that holds one survey and its key, with a stream to append to."""

    store: Store
    survey: Survey
    key: SealingKey
    stream: int
    _streams: dict[bytes, int] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, survey: Survey, expires: int = FOREVER, begins: int = 0) -> Self:
        """Publish a survey and a new key in a store. begins, expires: of the key, in Unix seconds."""
        with store.transaction() as writing:
            writing.add_survey(survey.id, survey.signed_by(AUTHORITY), public=True)
            key = publish_new_key(writing, begins, expires)
        stream = store.open_stream(survey.id)
        return cls(store, survey, key, stream, {survey.id: stream})

    def append(self, at: float, *envelopes: bytes, stream: int | None = None) -> None:
        """Append at this Unix time, in seconds: to this stream, or each to the one of its survey."""
        bodies: dict[int, list[bytes]] = {}
        for each in envelopes:
            bodies.setdefault(self._stream_of(each) if stream is None else stream, []).append(body(each))
        self.store.append(bodies, UnixMilliseconds(int(at * 1000)))

    def _stream_of(self, sealed: bytes) -> int:
        survey = SurveyId(sealed[1:17]) if len(sealed) > HEAD_BYTES else self.survey.id
        if survey not in self._streams:
            self._streams[survey] = self.store.open_stream(survey)
        return self._streams[survey]


SENDERS, SERVERS, RESTARTS, FOLDS = 4, 2, 3, 3
"""FOLDS of a server are killed before it is; RESTARTS of PostgreSQL."""
PAUSE_SECONDS = 0.05
"""Between two uploads of a sender, so that a fold that begins anew opens what has come in its own process."""
PERIOD_SECONDS = 3600
MOST_SECONDS = 0.2
"""From when a server or a fold is at work to its kill; drawn from a fixed seed."""
START_SECONDS = 2.0
IN_THE_START = 1 / 16
"""This part of servers is killed within START_SECONDS of their start; of folds and servers, before they are at work."""
MOST_WAIT = 60.0


def prepared_log(folder: Path, periods: int = 8, place: str | None = None) -> SurveyLog:
    """A store for a server to open, with a key and a survey of a track of changes, whose last hour ended a minute ago.

    place: of the store, where it is not in the folder.
    """
    plan = ReleasePlan((Group((Track(1, KaryResponse(MutationSpace(3), Odds(9, 2)), 0, periods),)),))
    survey = Survey.at_cost(
        question="What do you drink?",
        answers=("tea", "coffee", "neither"),
        calendar=Calendar(int(time.time()) - 60 - periods * PERIOD_SECONDS, PERIOD_SECONDS, periods),
        constraint=AtMost(3),
        plan=plan,
        skew=5,
        spread=10,
        grace=90 * 86_400,
        minimum=1,
    )
    return SurveyLog.of(Store.open(place or folder / "server.db"), survey)


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
            time.sleep(PAUSE_SECONDS)

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
    """Compare what was acknowledged with what is counted, and close the store.

    already: how many ids the log had before.
    """
    while (done := fold(log.store, UnixSeconds(time.time()), closing=False)).stood_by or done.behind:
        time.sleep(0.1)
    sent = senders.acknowledged
    key = log.survey.id, log.survey.calendar.periods
    with log.store.view() as view:
        (tally,) = tallies_in(view, log.survey).values()
        runs = view.runs([key]).get(key, [])
        packed = b"".join(piece for run in runs for piece in view.read_run(key, run.number))
    ids = [packed[at : at + ID_BYTES] for at in range(0, len(packed), ID_BYTES)]
    figures: dict[str, float] = {
        "acknowledged": len(sent),
        "lost": len(sent - {*ids}),
        "counted_twice": len(ids) - len({*ids}) + abs(tally.reports - len(ids)),
        "counted_besides": len({*ids} - sent) - already,
        "differences_folded_again": len(check(log.store)),
    }
    log.store.close()
    return figures


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
        """Start a server, kill its folds, then the server; again and again."""
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
    return dict(count) | compared(log, senders)


def _ends_of(server: RunningServer, senders: Senders, chance: random.Random) -> list[tuple[str, bool]]:
    """Kill its folds, one after the other, then itself; each hit with whether that was at work."""
    hits = []
    with _folding(server) as counted:
        for _ in range(FOLDS):
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
            log_state = view.log_state()
        return log_state.folded, log_state.unfolded

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
    return {"seconds": took, "left": behind, **compared(log, senders, already=50)}


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
    return {"restarts": RESTARTS, "seconds": max(waits), **compared(log, senders)}


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
    return compared(log, senders)


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
