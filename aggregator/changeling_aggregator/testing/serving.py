"""A real server in a process of its own on loopback, as operators run it; a log for what devices send; and processes.

For tests and measures alike. A test's own server, with a clock that it moves, is made of this one. What a process has
started is told by /proc: processes end while they are looked at, and are then not there.
"""

import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from threading import Lock
from typing import Self

import httpx
from changeling_protocol import HEAD_BYTES, SealingKey, Survey, SurveyId, UnixMilliseconds, UnixSeconds, encode
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..store import Store, TokenScope, Transaction, hash_of

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


AUTHORITY = Ed25519PrivateKey.from_private_bytes(b"authority of the tests, 32 bytes")
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
        errors = None if self._log is None else self._log.open("a")
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, *self.arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        finally:
            if errors is not None:
                errors.close()

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


def publish_new_key(writing: Transaction, begins: int, expires: int) -> SealingKey:
    """A sealing key of the store, made, signed and published."""
    key = SealingKey(writing.make_key(), begins, expires)
    writing.publish_key(key, key.signed_by(AUTHORITY))
    return key


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
        for number, some in sorted(bodies.items()):
            self.store.append(number, some, UnixMilliseconds(int(at * 1000)))

    def _stream_of(self, sealed: bytes) -> int:
        survey = SurveyId(sealed[1:17]) if len(sealed) > HEAD_BYTES else self.survey.id
        if survey not in self._streams:
            self._streams[survey] = self.store.open_stream(survey)
        return self._streams[survey]
