"""Real server processes on loopback, under a clock that tests move."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from changeling_aggregator.server import Service, make_app
from changeling_aggregator.store import Store, TokenScope, hash_of
from changeling_protocol import Calendar, SealingKey, Survey, UnixSeconds, decode

from ..protocol.examples import AUTHORITY, PINNED, survey
from .devices import FOREVER, body

TOKEN = "the operator's token, for everything"
ADMIN = {"authorization": f"Bearer {TOKEN}"}
Cli = Callable[..., str]
"""What runs a command and returns what it printed; the fixture `cli`."""
_numbers = count()


class ServerProcess:
    """`changeling serve` on a free port; use as a context. log: a file for what it logs."""

    _has_key = False
    _module = "changeling_commands"

    def __init__(self, folder: Path, *options: str, store: str | None = None, log: Path | None = None) -> None:
        self._log = log
        self.store_path = store or str(folder / "server.db")
        self.add_token(TOKEN, *TokenScope)
        public = folder / "pinned.pub"
        public.write_text(PINNED[0].hex())
        self.arguments = ["serve", "--port", "0", "--store", self.store_path, "--authority", str(public), *options]

    def __enter__(self) -> "ServerProcess":
        with ExitStack() as opened:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self._module, *self.arguments],
                stdout=subprocess.PIPE,
                stderr=None if self._log is None else opened.enter_context(self._log.open("a")),
                text=True,
            )
        assert self.process.stdout
        if not (said := self.process.stdout.readline()):
            self._end()
            why = self._log.read_text() if self._log else "standard error tells why"
            raise AssertionError(f"the server ended before it listened: {why}")
        self.url = said.split()[-1]
        self.http = httpx.Client(base_url=self.url, timeout=100)
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.process.terminate()
        self._end()

    def kill(self) -> None:
        """SIGKILL, now; its fold may go on for as long as its batch takes."""
        self.http.close()
        self.process.kill()
        self._end()

    def _end(self) -> None:
        """Waits for it, and kills it where it does not end: then another test would fail by what is left open."""
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout
            self.process.stdout.close()

    def add_token(self, text: str, *scopes: TokenScope) -> None:
        """A token of this text, in the server's store."""
        store = Store.open(self.store_path)
        with store.transaction() as writing:
            if hash_of(text) not in writing.tokens():
                writing.add_token(text, "tests", scopes, UnixSeconds(0.0))
        store.close()

    @property
    def now(self) -> int:
        """What the server's clock shows, from the date on its answers."""
        return int(parsedate_to_datetime(self.http.get("/readyz").headers["date"]).timestamp())

    def put_clock(self, time: float) -> httpx.Response:
        return self.http.put("/v1/clock", json={"time": time}, headers=ADMIN)

    def move_clock(self, time: float) -> None:
        self.put_clock(time).raise_for_status()

    def new_key(self, begins: int = 0, expires: int = FOREVER) -> SealingKey:
        """A key made on the server's store, signed and published."""
        store = Store.open(self.store_path)
        with store.transaction() as writing:
            key = SealingKey(writing.make_key(), begins, expires)
        store.close()
        self.http.put("/v1/keys", content=key.signed_by(AUTHORITY), headers=ADMIN).raise_for_status()
        self._has_key = True
        return key

    @cached_property
    def key(self) -> SealingKey:
        """The one key of a server on which tests need no other: valid for ever."""
        return self.new_key()

    def publish(self, published: Survey) -> Survey:
        """With a key that is valid for ever, where the test has made none."""
        if not self._has_key:
            _ = self.key
        signed = published.signed_by(AUTHORITY)
        self.http.put(
            survey_path(published), params={"public": "true"}, content=signed, headers=ADMIN
        ).raise_for_status()
        return published

    def new_survey(self, **fields: Any) -> Survey:
        """A published survey like no other, which begins now."""
        calendar = Calendar(self.now, 60, 8)
        question = f"Question {next(_numbers)}?"
        breakdowns = fields.pop("breakdowns", ())
        asked = survey(calendar=calendar, **fields)
        return self.publish(replace(asked, question=question, breakdowns=breakdowns))

    def upload(self, *envelopes: object) -> list[list[Any]]:
        """Returns the refused."""
        response = self.http.post("/v1/uploads", content=body(*envelopes)).raise_for_status()
        refused: list[list[Any]] = decode(response.content)["refused"]
        return refused

    def fold(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.http.post("/v1/fold", headers=ADMIN).raise_for_status().json()
        return answer

    def status(self, published: Survey) -> dict[str, Any]:
        """After a fold."""
        self.fold()
        answer: dict[str, Any] = (
            self.http.get(survey_path(published) + "/status", headers=ADMIN).raise_for_status().json()
        )
        return answer

    def reports(self, published: Survey) -> dict[tuple[int, int], int]:
        """How many reports the closed nodes have, by track and end."""
        return {(node["track"], node["end"]): node["reports"] for node in self.status(published)["nodes"]}


def survey_path(published: Survey) -> str:
    return f"/v1/surveys/{published.id.hex()}"


def eventually(read: Callable[[], object], expected: object) -> bool:
    """Whether this is read within a minute: a fold gives way to whatever else the machine does."""
    for _ in range(600):
        if read() == expected:
            return True
        time.sleep(0.1)
    return False


@contextmanager
def in_process(service: Service, raises: bool = True) -> Iterator[Callable[..., httpx.Response]]:
    """A service in this process; gives what asks it for a path, with headers, by a GET or as told.

    raises: also what a defect raises.
    """
    app = make_app(service)

    async def ask(path: str, headers: dict[str, str], method: str) -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=raises), base_url="http://here"
        ) as http:
            return await http.request(method, path, headers=headers)

    service.start()
    try:
        yield lambda path, headers=None, method="GET": asyncio.run(ask(path, headers or {}, method))
    finally:
        service.close()
