"""A relay whose rounds a test turns by hand, what looks like envelopes from outside, and a server that notes all.

`RelayProcess` is a real relay on loopback.
"""

import json
import os
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import httpx
from changeling_aggregator.relay import Batching, Relay, RelaySettings, Upstream, make_app
from changeling_aggregator.testing.serving import RunningServer, free_port
from changeling_protocol import HEAD_BYTES, VERSION, Refusal, SealingKey, Survey
from changeling_protocol.wire import (
    decode_acknowledgement,
    decode_upload_request,
    encode_acknowledgement,
    encode_key_list,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..aggregator.devices import body
from ..aggregator.serving import eventually
from ..client_sdk.loopback import Recorded, answer, serving
from ..coins import SeededCoins
from ..protocol.examples import AUTHORITY, PINNED, survey

HERE = "https://relay.example"
NOW = 1_800_000_100
KEY = SealingKey(X25519PrivateKey.from_private_bytes(bytes([1] * 32)).public_key().public_bytes_raw(), 0, 2**40)
OTHER_KEY = SealingKey(X25519PrivateKey.from_private_bytes(bytes([2] * 32)).public_key().public_bytes_raw(), 0, 2**41)
FIRST = replace(survey(), relay=HERE + "/")
SECOND = FIRST.asking(question="And who asks?")
ELSEWHERE = FIRST.asking(question="Another's?", relay="https://other.example")


class Hand:
    """A relay whose rounds a test turns by hand; each lasts 10 s."""

    def __init__(self, folder, upstream, *, batch=10, most_wait=100, seed=1, token=None, away=False, **options):
        """away: whether its server cannot be reached. options: of the relay's settings."""
        self.now = NOW
        usual = {"authority": PINNED, "surveys": None, "url": HERE, "room": 2**20, "coins": SeededCoins(seed)}
        settings = RelaySettings(
            batching=Batching(batch, 10, most_wait), clock=lambda: self.now, **{**usual, **options}
        )
        self.relay = Relay(folder, Upstream("http://127.0.0.1:9" if away else upstream.url, token), settings)

    async def __aenter__(self):
        await self.relay.refresh()
        return self

    async def __aexit__(self, *_):
        await self.relay.close()

    def waiting(self, survey=FIRST):
        """What waits of a survey."""
        return self.relay.copies.surveys[survey.id].spool.waiting()

    async def take(self, *envelopes):
        return await self.relay.intake.take(envelopes)

    async def turn(self, seconds=10):
        """The next round begins: forward what is due."""
        self.now += seconds
        for forwarded in self.relay._forwarding.values():
            await forwarded.forward_due(self.now // 10)


def at(app, host):
    """Asks an application as somebody at this address does."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(host, 1)), base_url="http://relay")


@asynccontextmanager
async def asked(hand, host="127.0.0.1"):
    """The relay's application, as devices at this address ask it."""
    async with hand, at(make_app(hand.relay), host) as http:
        yield http


def sealed(asked=FIRST, number=0, key=KEY, content=None):
    """What looks like an envelope from outside; its number can be read."""
    return VERSION.to_bytes(1) + asked.id + key.id + number.to_bytes(4) + (content or os.urandom(200))


def number_of(envelope):
    return int.from_bytes(envelope[HEAD_BYTES : HEAD_BYTES + 4])


class Seen(NamedTuple):
    """A request as it came. peer: the address. headers: in order."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    peer: str


@dataclass
class Watching:
    """url. surveys and keys: what it publishes. status, headers: of its answers to uploads. refused: of each upload."""

    url: str = ""
    surveys: list[Survey] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    refused: dict[int, Refusal] = field(default_factory=dict)
    most_envelopes: int = 64
    seen: list[Seen] = field(default_factory=list)

    def answer(self, seen: Seen) -> tuple[int, bytes]:
        if seen.method == "POST":
            if len(decode_upload_request(seen.body)) > self.most_envelopes:
                return 413, b""
            return self.status, encode_acknowledgement(self.refused)
        if seen.path == "/v1/keys":
            return 200, encode_key_list(self.keys)
        if seen.path == "/v1/surveys":
            return 200, json.dumps({"surveys": [{"id": each.id.hex()} for each in self.surveys]}).encode()
        by_path = {f"/v1/surveys/{each.id.hex()}": each.signed_by(AUTHORITY) for each in self.surveys}
        return (200, by_path[seen.path]) if seen.path in by_path else (404, b"")

    @property
    def uploads(self) -> list[Seen]:
        """Without the empty one by which a relay tries its token at its start."""
        return [seen for seen in self.seen if seen.method == "POST" and decode_upload_request(seen.body)]

    @property
    def bodies(self) -> list[list[bytes]]:
        """The envelopes of each upload."""
        return [decode_upload_request(seen.body) for seen in self.uploads]

    @property
    def envelopes(self) -> list[bytes]:
        return [envelope for body in self.bodies for envelope in body]


@contextmanager
def watching() -> Iterator[Watching]:
    told = Watching()

    def behave(connection: Recorded, _stop: object) -> None:
        while True:
            head, _, body = connection.request().partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
            method, path, _ = first.split()
            seen = Seen(method, path, headers, body, connection.plain.getpeername()[0])
            told.seen.append(seen)
            status, content = told.answer(seen)
            shown = told.headers if method == "POST" else {}
            lines_of = "".join(f"{name}: {value}\r\n" for name, value in shown.items()).encode()
            connection.send(answer(content, lines_of, b"%d Told" % status))

    with serving(behave) as server:
        told.url = server.url
        yield told


class RelayProcess(RunningServer):
    """`changeling relay` on one port; use as a context, again and again. Ready once it is entered."""

    def __init__(self, folder: Path, upstream: str, *options: str, port: int | None = None) -> None:
        folder.mkdir(exist_ok=True)
        public, self._log, self.said = folder / "pinned.pub", folder / "log", ""
        public.write_text(PINNED[0].hex())
        self.url = f"http://127.0.0.1:{port or free_port()}"
        self.arguments = [
            *("relay", "--upstream", upstream, "--authority", str(public), "--spool", str(folder / "spool")),
            *("--room", "1", "--url", self.url, "--port", str(self.port), *options),
        ]

    def await_up(self) -> None:
        super().await_up()
        if not eventually(lambda: self.health().get("status"), "ok"):
            self.kill()
            raise AssertionError(f"the relay is not ready: {self.complained}")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.said += self.process.stdout.read()
        super().__exit__()

    @property
    def complained(self) -> str:
        """All that it logged."""
        return self._log.read_text()

    def health(self) -> dict[str, str]:
        try:
            told: dict[str, str] = self.http.get("/readyz").json()
        except httpx.TransportError:
            return {}
        return told

    def upload(self, *envelopes: object) -> dict[int, str]:
        """Returns the refused. Raises httpx.HTTPError where nothing was acknowledged."""
        response = self.http.post("/v1/uploads", content=body(*envelopes)).raise_for_status()
        return decode_acknowledgement(response.content, len(envelopes))
