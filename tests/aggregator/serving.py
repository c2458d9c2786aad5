"""Real servers on loopback, under a clock that tests move: as processes, or where no process matters in this one."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import cached_property
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, Self

import httpx
from changeling_aggregator.server import MovableClock, ServerSettings, Service, listen, make_app, make_server
from changeling_aggregator.store import IN_CLEAR, AtRest, Store
from changeling_aggregator.testing import AUTHORITY
from changeling_aggregator.testing.serving import ADMIN, FOREVER, TOKEN, RunningServer, body
from changeling_protocol import Calendar, SealingKey, Survey, UnixSeconds, decode

from ..protocol.examples import PINNED, survey
from .devices import Log, Said, envelope

Cli = Callable[..., str]
"""What runs a command and returns what it printed; the fixture `cli`."""
_numbers = count()
__all__ = [
    "ADMIN",
    "TOKEN",
    "Cli",
    "OpenSurvey",
    "ServerHere",
    "ServerProcess",
    "certified",
    "eventually",
    "in_process",
    "survey_path",
    "texts",
]


class ServerProcess(RunningServer):
    """A server whose keys, surveys and clock tests ask for over HTTP; use as a context."""

    _has_key = False

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
        return self.publish(replace(asked.asking(text=question), breakdowns=breakdowns))

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


class ServerHere(ServerProcess):
    """A server in a thread of this process, which folds in another: up at once, where two processes take seconds.

    proxies: that it trusts. at_rest: what private keys lie under. settings: of `ServerSettings`;
    the authority of tests, and a clock that they move, if not told.
    """

    def __init__(
        self,
        folder: Path,
        store: str | None = None,
        proxies: Sequence[str] = (),
        at_rest: AtRest = IN_CLEAR,
        **settings: Any,
    ) -> None:
        super().__init__(folder, store=store)
        self._proxies, self._at_rest = proxies, at_rest
        pinned = [AUTHORITY.public_key().public_bytes_raw()]
        self._settings = {"authority": pinned, "clock": MovableClock(UnixSeconds(0)), **settings}

    def __enter__(self) -> Self:
        service = Service(Store.open(self.store_path, self._at_rest), ServerSettings(**self._settings))
        self._listening, self.url = listen("127.0.0.1", 0)
        self._server = make_server(make_app(service), self._proxies)
        self._thread = Thread(target=self._server.run, args=([self._listening],), name="server")
        self._thread.start()
        self.http = httpx.Client(base_url=self.url, timeout=100)
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self._server.should_exit = True
        self._thread.join()
        self._listening.close()


def certified(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine, and its key."""
    certificate, key = folder / "tls.pem", folder / "tls.key"
    words = "req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    command = ["openssl", *words.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def survey_path(published: Survey) -> str:
    return f"/v1/surveys/{published.id.hex()}"


class OpenSurvey:
    """A service in this process on a store with one survey, open to all, under a clock that stands at `now`.

    told: more of its `ServerSettings`.
    """

    def __init__(self, store: Store, asked: Survey, **told: Any) -> None:
        self.log, self.survey, self.now = Log.of(store, asked), asked, float(asked.calendar.start)
        self.service = Service(store, ServerSettings(PINNED, lambda: UnixSeconds(self.now), **told))

    def path(self, what: str) -> str:
        return f"{survey_path(self.survey)}/{what}"

    def move(self, close: int, later: float) -> None:
        """So many seconds beyond the close of a period."""
        self.now = self.survey.calendar.time(close) + later

    def move_to_due(self, close: int) -> None:
        """To when what is said of a period is shown: a second after all answers to it have had their time."""
        self.move(close, self.survey.skew + self.survey.spread + 1)

    def sealed(self, *said: Said) -> bytes:
        """What one device says."""
        return envelope(self.survey, self.log.key, said)

    def take(self, *envelopes: bytes) -> None:
        """Have them in the log, and count all that is there."""
        if envelopes:
            self.log.append(self.now, *envelopes)
        self.service.folding.fold_now()


def texts(value: Any) -> Any:
    """What is decoded of MessagePack, as JSON Schema takes it: each bin is a text."""
    if isinstance(value, dict):
        return {name: texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [texts(each) for each in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def eventually(read: Callable[[], object], expected: object) -> bool:
    """Whether this is read within a minute: a fold gives way to whatever else the machine does."""
    for _ in range(600):
        if read() == expected:
            return True
        time.sleep(0.1)
    return False


@contextmanager
def in_process(service: Service, raises: bool = True) -> Iterator[Callable[..., httpx.Response]]:
    """A service in this process; gives what asks it for a path, with headers, by a GET or as told, with a body or none.

    raises: also what a defect raises.
    """
    transport = httpx.ASGITransport(make_app(service), raise_app_exceptions=raises)
    http = httpx.AsyncClient(transport=transport, base_url="http://here")

    def ask(
        path: str, headers: Mapping[str, str] | None = None, method: str = "GET", content: bytes | None = None
    ) -> httpx.Response:
        return loop.run(http.request(method, path, headers=headers, content=content))

    service.start()
    with asyncio.Runner() as loop:
        try:
            yield ask
        finally:
            loop.run(http.aclose())
            service.close()
