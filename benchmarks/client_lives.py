"""Measure 9 of the client: lives under wrong clocks, lying servers, hand-overs, forks and flipped bits.

In each, every entry must answer every node once and with one symbol, no record may be lost, and withdrawing must leave
nothing. `client_kills` has the kills. Every life follows from its number; a kind ends at its time limit, or when all
were tried.
"""

import random
import sqlite3
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from changeling_client import Client, ClientError, Sidecar
from changeling_client.testing import FakeServer, ManualClock, make_client

from .client_world import (
    ANSWERS,
    FAST_FOLDER,
    PINNED,
    START,
    LoopbackServer,
    arrived,
    bodies,
    ended,
    forked,
    plain_survey,
)

LIVES, SECONDS, ENTRIES, PERIODS = 100, 12.0, 2, 6
"""Lives of each kind at most, seconds for each kind, and what a life has."""
YEAR = 365 * 86_400
ASKED = plain_survey(PERIODS, noise=True, most=2 * PERIODS)
STATES = ("no answer", *ANSWERS)
NODES = ASKED.plan.tracks[0].node_numbers()
Symbols = dict[tuple[int, int], dict[bytes, set[int]]]
"""By track and node, the symbols under each closing's id."""


class Edge(httpx.BaseTransport):
    """Keeps all that a fake server was sent, and tells the client what a test wants of what it answered.

    true: the time that the server tells, beside the device's clock.
    """

    def __init__(self) -> None:
        self.true, self.device = ManualClock(START), ManualClock(START)
        self.symbols: Symbols = defaultdict(lambda: defaultdict(set))
        self.server = FakeServer(self.true)
        self.server.publish(ASKED)
        self.lie: Callable[[httpx.Response], httpx.Response] = lambda response: response

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """What the server answers, or the lie in its place; it has taken the upload in both cases."""
        response = self.server.transport.handle_request(request)
        for report in self.server.last_reports if request.method == "POST" else ():
            number = ASKED.plan.tracks[report.track].ending_at(report.node.end)
            self.symbols[report.track, number or 0][report.closing].add(report.symbol)
        return self.lie(response)

    def client(self, folder: Path, **options: Any) -> Client:
        """A client whose requests come here."""
        usual = {"transport": self, "clock": self.device, "strict": False, "witness": Sidecar(folder / "witness")}
        return make_client(folder, self.server, **{**usual, **options})

    def at(self, moment: float, ahead: float = 0) -> None:
        """Sets the true time, in seconds from the survey's start, and the device's ahead of it."""
        self.true.now, self.device.now = START + moment, START + moment + ahead


def measure() -> dict[str, float]:
    """By kind: lives tried, nodes answered twice or not at all, records lost, withdrawals that left something."""
    figures: dict[str, float] = {}
    for kind, live in KINDS.items():
        found, until = Counter[str](), time.monotonic() + SECONDS
        for number in range(LIVES):
            if time.monotonic() > until:
                break
            with tempfile.TemporaryDirectory(dir=FAST_FOLDER) as name:
                found.update(live(Path(name), random.Random(number)))  # noqa: S311
        figures |= {f"9_{kind}_{name}": float(count) for name, count in sorted(found.items())}
    return figures


def judged(symbols: Symbols, told: list[list[str]] | None = None, last: str | None = None) -> Counter[str]:
    """What is wrong with a life that has ended.

    told: the answers of each entry by period, if every record must count where it was made.
    last: the answer that the first entry must end with, in place of these.
    """
    found = Counter(lives=1, answered_twice=0, unanswered=0, records_lost=0)
    for number, track in enumerate(ASKED.plan.tracks):
        for node in track.node_numbers():
            ids = symbols[number, node]
            found["answered_twice"] += sum(len(drawn) > 1 for drawn in ids.values()) + max(len(ids) - ENTRIES, 0)
            found["unanswered"] += max(ENTRIES - len(ids), 0)
    words = partial(ASKED.plan.tracks[0].randomizer.said, states=list(STATES))
    said = [sorted(words(symbol) for drawn in symbols[0, node].values() for symbol in drawn) for node in NODES]
    if told is not None:
        changes = zip(*(list(_changes(answers)) for answers in told), strict=True)
        found["records_lost"] += sum(sorted(due) != was for due, was in zip(changes, said, strict=True))
    elif last is not None:
        ends = [each.rpartition(" to ")[2] for period in said for each in period if each != "no change"]
        found["records_lost"] += not ends or ends[-1] != last
    return found


def _changes(answers: list[str]) -> Iterator[str]:
    before = STATES[0]
    for answer in answers:
        yield "no change" if answer == before else f"from {before} to {answer}"
        before = answer


def _answers(chance: random.Random) -> list[list[str]]:
    return [[chance.choice(ANSWERS) for _ in range(PERIODS)] for _ in range(ENTRIES)]


def clocks(folder: Path, chance: random.Random) -> Counter[str]:
    """The device's clock leaps by up to a year both ways, on- and offline; at the end it is right."""
    edge, last = Edge(), chance.choice(ANSWERS[1:])
    with edge.client(folder) as client:
        handle = client.join(ASKED.id, entries=ENTRIES)
        for step in range(2 * (PERIODS - 1)):
            edge.at(30 * step + 20, chance.choice([-YEAR, -100, -1, 0, 0, 1, 100, 300, YEAR]))
            if chance.random() < 0.3:
                edge.server.go_offline()
            handle.record(ANSWERS[0] if step % 2 else last)
            client.flush()
            edge.server.recover()
        edge.at(60 * (PERIODS - 1) + 20)
        client.flush()
        handle.record(last)
        _settled(edge, client)
    return judged(edge.symbols, last=last)


def liars(folder: Path, chance: random.Random) -> Counter[str]:
    """The server takes uploads and says that it did not, refuses each, or tells a wrong time or rubbish; then it is
    honest."""
    edge, told = Edge(), _answers(chance)

    def lie(response: httpx.Response) -> httpx.Response:
        status, body, headers = response.status_code, response.read(), {"date": formatdate(edge.true(), usegmt=True)}
        match chance.randrange(6):
            case 0:
                status = chance.choice([204, 400, 401, 404, 409, 413, 429, 500, 503])
            case 1:
                raise httpx.ReadError("cut off")
            case 2:
                body = chance.randbytes(len(body))
            case 3:
                body = body[: chance.randrange(len(body) + 1)]
            case 4:
                headers["retry-after"] = chance.choice(["-1", "soon", "1e9", "5"])
        return httpx.Response(status, content=body, headers=headers)

    with edge.client(folder) as client:
        handle = client.join(ASKED.id, entries=ENTRIES, signed=edge.server.signed(ASKED))
        edge.lie = lie
        for period in range(PERIODS):
            edge.at(60 * period + 30)
            for entry in range(ENTRIES):
                handle.record(told[entry][period], entry)
            edge.at(60 * period + 80)
            client.flush()
        edge.lie = lambda response: response
        _settled(edge, client)
    return judged(edge.symbols, told)


def hand_overs(folder: Path, chance: random.Random) -> Counter[str]:
    """A store is handed over in some period, with or without a network; it and a backup of it still report after."""
    edge, told, moved = Edge(), _answers(chance), chance.randrange(1, PERIODS)
    old, new = edge.client(folder / "old"), edge.client(folder / "new")
    handle = old.join(ASKED.id, entries=ENTRIES, signed=edge.server.signed(ASKED))
    for period in range(PERIODS):
        if period == moved:
            backup = (folder / "old/changeling.db").read_bytes()
            new.take_over(old.hand_over(new.invite(old.hand_over_key())))
            handle = new.join(ASKED.id, entries=ENTRIES)
            if chance.random() < 0.5:
                old.close()
                for file in (folder / "old").glob("changeling.db*"):
                    file.unlink()
                (folder / "old/changeling.db").write_bytes(backup)
                old = edge.client(folder / "old")
        edge.at(60 * period + 30)
        for entry in range(ENTRIES):
            handle.record(told[entry][period], entry)
        edge.at(60 * period + 80)
        if chance.random() < 0.3:
            edge.server.go_offline()
        old.flush()
        new.flush()
        edge.server.recover()
    _settled(edge, old)
    _settled(edge, new)
    old.close()
    new.close()
    return judged(edge.symbols, told)


def forks(folder: Path, chance: random.Random) -> Counter[str]:
    """In each period the process forks: parent and child record an entry each at once, and may both report at once."""
    told, clock, kept = _answers(chance), ManualClock(START), folder / "kept"
    server = LoopbackServer(kept, ASKED)
    client = Client(
        server=server.url, authority=PINNED, max_epsilon=10**6, path=folder / "store.db", background=False, clock=clock
    )
    handle = client.join(ASKED.id, entries=ENTRIES, signed=FakeServer().signed(ASKED))
    broken = 0

    def both(parent: Callable[[], object], child: Callable[[], object]) -> int:
        started = forked(child)
        parent()
        return int(ended(started) != 0)

    def record(period: int, entry: int) -> None:
        handle.record(told[entry][period], entry)

    for period in range(PERIODS):
        clock.now = START + 60 * period + 30
        broken += both(partial(record, period, 0), partial(record, period, 1))
        clock.now = START + 60 * period + 80
        if chance.random() < 0.7:
            broken += both(client.flush, client.flush)
        else:
            client.flush()
    clock.now = START + 60 * PERIODS + 86_400
    for _ in range(2):
        client.flush()
    client.close()
    server.close()
    found = judged(arrived(bodies(kept), ASKED), told)
    found["broken"] = broken
    return found


def flipped_bits(folder: Path, chance: random.Random) -> Counter[str]:
    """A store in mid survey with one to eight bits flipped goes on, or withdraws, open or from a start."""
    edge = Edge()
    with edge.client(folder / "whole") as client:
        handle = client.join(ASKED.id, entries=ENTRIES)
        for period in range(3):
            edge.at(60 * period + 30)
            handle.record(ANSWERS[period], period % ENTRIES)
            edge.at(60 * period + 80)
            if period == 2:
                edge.server.fail_with(503)
            client.flush()
    edge.server.recover()
    file = folder / "whole/changeling.db"
    secret = _secret(file)
    content = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 1, 2, 8])):
        page = 4096 * chance.randrange(len(content) // 4096)
        content[max(100, page + chance.choice([chance.randrange(64), chance.randrange(4096)]))] ^= (
            1 << chance.randrange(8)
        )
    file.write_bytes(content)
    withdraws = chance.random() < 0.5
    starts_without, withdrawn = withdraws and chance.random() < 0.5, False
    with suppress(ClientError):
        if not starts_without:
            with edge.client(folder / "whole") as client:
                if withdraws:
                    client.set_consent(False)
                    withdrawn = True
                for period in range(3, PERIODS):
                    edge.at(60 * period + 80)
                    client.flush()
    found = Counter(lives=1, answered_twice=judged(edge.symbols)["answered_twice"], withdrawals=int(withdraws))
    if withdraws and not withdrawn:
        edge.client(folder / "whole", consent=False).close()
    left = b"".join(each.read_bytes() for each in (folder / "whole").rglob("*") if each.is_file())
    found["left_something"] = int(withdraws and any(piece in left for piece in secret))
    return found


def _secret(file: Path) -> list[bytes]:
    """What a store holds of answers and chances, or how it begins."""
    store = sqlite3.connect(file)
    query = "SELECT private FROM entries UNION SELECT nodes FROM drawn UNION SELECT reports FROM closings"
    found = [piece[:40] for (piece,) in store.execute(query) if piece and len(piece) > 8]
    store.close()
    if not found:
        raise ArithmeticError("the store held nothing to look for")
    return found


def _settled(edge: Edge, client: Client) -> None:
    """Flushes once a day until everything must have been sent."""
    for day in range(1, 9):
        edge.at(60 * PERIODS + 86_400 * day)
        client.flush()


KINDS = {"clocks": clocks, "liars": liars, "hand_overs": hand_overs, "forks": forks, "flipped_bits": flipped_bits}
