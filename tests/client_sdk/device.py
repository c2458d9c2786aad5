"""A device under test: a clock that the test moves, and a server at the very edge of httpx.

The server is the contract's other side: it keeps what it is sent, opens it with the test's private key, and
answers as the test tells it to. TRUTHFUL odds make every symbol its input, but for one report in 10^17.
"""

import os
from collections.abc import Callable
from email.utils import formatdate

import httpx
from changeling_client import Client
from changeling_client.testing import read_upload
from changeling_protocol import Closing, Coins, Node, Odds, Report, SealingKey, Survey, encode, head_of, open_envelope
from changeling_protocol.wire import KEYS, UPLOADS, decode_upload_request, encode_key_list, survey_path
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..protocol.examples import AUTHORITY, PINNED, hierarchical, survey

TRUTHFUL = Odds(2**63, 1)
PLAIN = survey(hierarchical(3, 8, (1, 2, 4), TRUTHFUL), grace=10**6)
"""Eight periods of a minute, layers of width 1, 2 and 4, at most 3 mutations, true symbols, a long grace."""
START = PLAIN.calendar.start
LATE = PLAIN.calendar.time(8) + PLAIN.skew + PLAIN.spread + 1
"""When every node of PLAIN is due, whatever its delay."""
URL = "https://statistics.example"
PRIVATE = X25519PrivateKey.from_private_bytes(b"k" * 32)


class Clock:
    """Unix time, as the test sets it."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class FakeServer:
    """Keeps surveys and keys, takes uploads. `reply` may answer instead; None lets the server answer.

    clock: tells its time, the device's own unless the test sets `headers`.
    """

    def __init__(self, *surveys: Survey) -> None:
        self.signed = {survey.id.hex(): survey.signed_by(AUTHORITY) for survey in surveys}
        self.surveys = {survey.id: survey for survey in surveys}
        self.private = PRIVATE
        self.keys = [signed_key(PRIVATE)]
        self.requests: list[httpx.Request] = []
        self.bodies: list[bytes] = []
        self.refused: list[list[object]] = []
        self.headers: dict[str, str] | None = None
        self.clock = Clock()
        self.reply: Callable[[httpx.Request], httpx.Response | None] = lambda _: None

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._serve)

    @property
    def envelopes(self) -> list[bytes]:
        return [envelope for body in self.bodies for envelope in decode_upload_request(body)]

    def paths(self) -> list[str]:
        return [request.url.path for request in self.requests]

    def opened(self) -> list[list[tuple[Report, Node, int]]]:
        """Per envelope, its reports: with the node, and the input that a truthful symbol stands for."""
        return [opened(envelope, self.surveys, self.private) for envelope in self.envelopes]

    def reports(self) -> list[tuple[Report, Node, int]]:
        return [report for envelope in self.opened() for report in envelope]

    def answers(self) -> list[tuple[Closing, list[Report]]]:
        """All that was said: per envelope, each closing with its reports."""
        return [answer for envelope in self.envelopes for answer in answers_in(envelope, self.surveys, self.private)]

    def closings(self) -> list[Closing]:
        """The closings that were answered, by envelope and period."""
        return [closing for closing, _ in self.answers()]

    def _serve(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.method == "POST":
            self.bodies.append(request.content)
        if (answer := self.reply(request)) is not None:
            return answer
        contents = {
            **{survey_path(id_): signed for id_, signed in self.signed.items()},
            KEYS: encode_key_list(self.keys),
            UPLOADS: encode({"refused": self.refused}),
        }
        if request.url.path not in contents:
            return httpx.Response(404)
        return httpx.Response(200, content=contents[request.url.path], headers=self._said())

    def _said(self) -> dict[str, str]:
        """The headers that the test has set; else the time of the device's clock."""
        return {"date": formatdate(self.clock(), usegmt=True)} if self.headers is None else self.headers


def signed_key(private: X25519PrivateKey, begins: int = 0, expires: int = 2**32, authority=AUTHORITY) -> bytes:
    return SealingKey(private.public_key().public_bytes_raw(), begins, expires).signed_by(authority)


def opened(envelope: bytes, surveys, private: X25519PrivateKey) -> list[tuple[Report, Node, int]]:
    plan = surveys[head_of(envelope).survey].plan
    _, _, reports = read_upload(plan, open_envelope(envelope, private))
    return [(report, plan.tracks[report.track].node(report.node), report.symbol) for report in reports]


def answers_in(envelope: bytes, surveys, private: X25519PrivateKey) -> list[tuple[Closing, list[Report]]]:
    plan = surveys[head_of(envelope).survey].plan
    _, closings, reports = read_upload(plan, open_envelope(envelope, private))
    ends = [(plan.tracks[report.track].node(report.node).end, report) for report in reports]
    return [(closing, [report for end, report in ends if end == closing.period]) for closing in closings]


class Bundled(Client):
    """A client that brings the signed surveys of its server, so that they are joined as it asks."""

    bundle: FakeServer
    clock: Clock

    def at(self, now: float) -> "Bundled":
        """The client, once its clock shows this time."""
        self.clock.now = now
        return self

    def join(self, survey_id, **options):
        named = survey_id if isinstance(survey_id, str) else survey_id.hex()
        return super().join(survey_id, **{"signed": self.bundle.signed.get(named), **options})

    @property
    def store(self):
        return self._device.store


def client(path, server: FakeServer, clock: Clock, coins: Coins | None = None, url: str = URL, **options) -> Bundled:
    """A client of this server by this clock, which raises what is wrong, and reports only as it is told to.

    coins: the test's own, which no app can bring.
    """
    usual = {
        "authority": PINNED,
        "max_epsilon": 10_000,
        "witness": None,
        "strict": True,
        "background": False,
        "transport": server.transport(),
    }
    device = Bundled(path=path / "store.db", server=url, clock=clock, **{**usual, **options})
    device.bundle, device.clock, server.clock = server, clock, clock
    if coins is not None:
        device._device.coins = coins
    return device


def by_node(server: FakeServer) -> dict[tuple[int, int], int]:
    """The input reported on each (start, end]; the test has one track of each width, and one entry."""
    reports = server.reports()
    inputs = {(node.start, node.end): true for _, node, true in reports}
    assert len(inputs) == len(reports), "a node was answered twice"
    return inputs


def all_nodes(asked: Survey) -> set[tuple[int, int]]:
    return {(node.start, node.end) for track in asked.plan.tracks for node in track.nodes()}


def forked(work: Callable[[], object]) -> int:
    """Runs it in a forked process. Returns the child's id."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def ended(child: int) -> int:
    """Waits for a child. Returns its exit code, or the signal that killed it, negative."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def on_disk(folder) -> bytes:
    """All that a device's files hold."""
    return b"".join(file.read_bytes() for file in folder.iterdir() if file.is_file())


def written(device: Bundled, act: Callable[[], object]) -> tuple[list[str], int]:
    """What a call does to a store in a file: its statements in order, and how many bytes of the log it writes."""
    statements: list[str] = []
    connection, file = device.store._connection, device.store.file
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.set_trace_callback(statements.append)
    act()
    connection.set_trace_callback(None)
    return [each.split("(")[0].split("=")[0] for each in statements], os.stat(f"{file}-wal").st_size
