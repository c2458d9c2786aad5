"""A device under test: a clock that the test moves, a server at the very edge of httpx, and surveys to ask it.

The server is the contract's other side: it keeps what it is sent, opens it with the test's private key, and
answers as the test tells it to. TRUTHFUL odds make every symbol its input, but for one report in 10^17.
"""

import os
from collections.abc import Callable, Sequence
from email.utils import formatdate
from pathlib import Path
from typing import TypeAlias

import httpx
from changeling_client import Client, Sidecar, WitnessTrouble
from changeling_client.testing import ManualClock, read_upload
from changeling_protocol import (
    AtMost,
    Calendar,
    Closing,
    Coins,
    Constraint,
    Group,
    Node,
    Odds,
    Question,
    ReleasePlan,
    Report,
    SealingKey,
    Survey,
    Track,
    encode,
    head_of,
    open_envelope,
)
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
Reply: TypeAlias = Callable[[httpx.Request], httpx.Response | None]


def asking(
    *groups: Group | Track,
    questions: Sequence[Question] = (),
    answers: int = 3,
    constraint: Constraint = AtMost(3),  # noqa: B008
    start: int = START,
    period: int = 60,
    periods: int = 8,
    **options,
) -> Survey:
    """A survey of these groups, or of one group of these tracks: of the questions, or of one with so many answers.

    options: further fields of a survey.
    """
    plan = ReleasePlan(groups if isinstance(groups[0], Group) else (Group(groups),))
    one = Question("drink", "What do you drink?", ("tea", "coffee", "neither")[:answers], constraint)
    fields = {"calendar": Calendar(start, period, periods), "plan": plan, "questions": tuple(questions) or (one,)}
    return Survey.at_cost(**{**fields, "skew": 5, "spread": 10, "grace": 10**6, "minimum": 1, **options})


class Clock(ManualClock):
    """Unix time, as the test sets it."""

    def __init__(self, now: float = START) -> None:
        super().__init__(now)


def answering(status: int, content: bytes = b"\xa0", on: str = "", **headers: str) -> Reply:
    """A server's reply to everything, or to what is asked `on` a path alone."""
    told = [(name.replace("_", "-"), value) for name, value in headers.items()]

    def reply(request):
        return None if on and request.url.path != on else httpx.Response(status, content=content, headers=told)

    return reply


def raising(error: BaseException) -> Reply:
    """A server that cannot be reached, as a transport says it."""

    def reply(_request):
        raise error

    return reply


class FakeServer:
    """Keeps surveys and keys, takes uploads, where it is `reachable`. `reply` may answer instead; None lets it answer.

    clock: tells its time, the device's own unless the test sets `time`, or `headers`.
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
        self.clock, self.time, self.reachable = Clock(), None, True
        self.reply: Reply = lambda _: None

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._serve)

    @property
    def envelopes(self) -> list[bytes]:
        return [envelope for body in self.bodies for envelope in decode_upload_request(body)]

    def paths(self) -> list[str]:
        return [request.url.path for request in self.requests]

    def opened(self) -> list[list[tuple[Report, Node, int]]]:
        """Per envelope, its reports: with the node, and the input that a truthful symbol stands for."""
        return [_read(envelope, self.surveys, self.private)[1] for envelope in self.envelopes]

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
        if not self.reachable:
            raise httpx.ConnectError("out of reach")
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
        """The headers that the test has set; else the time."""
        return {"date": formatdate((self.time or self.clock)(), usegmt=True)} if self.headers is None else self.headers


def signed_key(private: X25519PrivateKey, begins: int = 0, expires: int = 2**32, authority=AUTHORITY) -> bytes:
    return SealingKey(private.public_key().public_bytes_raw(), begins, expires).signed_by(authority)


def _read(envelope: bytes, surveys, private: X25519PrivateKey) -> tuple[list[Closing], list[tuple[Report, Node, int]]]:
    plan = surveys[head_of(envelope).survey].plan
    _, closings, reports = read_upload(plan, open_envelope(envelope, private))
    return closings, [(report, plan.tracks[report.track].node(report.node), report.symbol) for report in reports]


def answers_in(envelope: bytes, surveys, private: X25519PrivateKey) -> list[tuple[Closing, list[Report]]]:
    closings, reports = _read(envelope, surveys, private)
    return [(closing, [report for report, node, _ in reports if node.end == closing.period]) for closing in closings]


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


def options(**given):
    """The arguments of a client: these, and what most tests leave as it is."""
    usual = {"server": URL, "authority": PINNED, "max_epsilon": 10_000, "witness": None, "background": False}
    return {**usual, **given}


def client(path, server: FakeServer, clock: Clock, coins: Coins | None = None, url: str = URL, **others) -> Bundled:
    """A client of this server by this clock, which raises what is wrong, and reports only as it is told to.

    coins: the test's own, which no app can bring.
    """
    ours = {"path": path / "store.db", "server": url, "strict": True, "transport": server.transport(), "clock": clock}
    device = Bundled(**options(**{**ours, **others}))
    device.bundle, device.clock, server.clock = server, clock, clock
    if coins is not None:
        device._device.coins = coins
    return device


class Failing(Sidecar):
    """A sidecar that is not told of what was drawn while its disk fails, or the device is killed just before."""

    error: BaseException | None = None

    def write(self, seen):
        if self.error is not None:
            raise self.error
        super().write(seen)


GONE = WitnessTrouble("the disk is gone")


class Home:
    """Devices of one server and one clock, each in a folder of its own with its sidecar; and what their apps hear."""

    def __init__(self, root: Path, *surveys: Survey) -> None:
        self.root, self.server, self.clock, self.told = root, FakeServer(*surveys), Clock(START + 1), []

    def start(self, name: str, coins: Coins | None = None, **options) -> Bundled:
        kept = {"witness": Sidecar(self.root / name / "witness"), "on_error": self.told.append, **options}
        return client(self.root / name, self.server, self.clock, coins, **kept)

    def period(self, device: Bundled, id_, number: int, entries: int = 1, answer: str = ""):
        """Records and reports in this period; an answer is for the one that runs."""
        handle = device.join(id_, entries=entries)
        handle.record(answer or TOLD[number - 1])
        device.at(START + 60 * number + 20).flush()
        return handle


TOLD = ("tea", "tea", "coffee", "neither", "tea", "coffee", "coffee", "tea")


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
