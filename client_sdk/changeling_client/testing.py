"""A kit for an app's tests: a clock that they move, a server without a network, a survey, and a client of these.

Never for production: its coins come from a seed, and its keys are known to everybody. The SDK itself does not import
it. pytest finds the fixtures `changeling_clock`, `changeling_server` and `changeling_client` by itself.

The server stands at the edge of httpx: it keeps surveys and keys, takes uploads and opens them, and fails as a test
says. It sees what a test wants to see of an upload.

The audit plays lives of the app's own code, which differ in what is answered, and in nothing else. Each has a store, a
server and a clock of its own, and the same chances for everything but symbols: so whatever differs between two lives,
in number, time, address, headers or size of their requests, somebody who watches would see of the answers. It finds
what an app gives away by when it joins, flushes or leaves. That symbols keep to their epsilon is the SDK's own promise,
and no part of it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from email.utils import formatdate
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from changeling_protocol import (
    CLOSING_ID_BYTES,
    ONLY,
    AtMost,
    Calendar,
    CannotOpen,
    Closing,
    Coins,
    EarlyEnd,
    Group,
    KaryResponse,
    MalformedBytes,
    MutationSpace,
    Node,
    NodeNumber,
    Odds,
    Question,
    Randomizer,
    Refusal,
    ReleasePlan,
    Report,
    SealingKey,
    SignedSubset,
    Standing,
    StratumNumber,
    Survey,
    SurveyId,
    Track,
    closings,
    column_bytes,
    decode_upload,
    head_of,
    open_envelope,
    symbol_bytes,
)
from changeling_protocol.wire import (
    END,
    KEYS,
    UPLOADS,
    decode_upload_request,
    encode_acknowledgement,
    encode_key_list,
    survey_path,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from . import entries
from .client import Client
from .device import Reporter
from .entries import Drawn, Entry
from .explanation import NO_ANSWER
from .store import ClientStore
from .witness import Callbacks

if TYPE_CHECKING:
    import httpx

FIRST_DAY = 1_798_761_600
"""The first midnight of 2027, in Unix seconds: when surveys of `make_survey` begin."""
_NOON = 43_200
AUTHORITY = Ed25519PrivateKey.from_private_bytes(b"changeling: authority of tests, ")
"""Signs the surveys and keys of tests."""
TRUTHFUL = Odds(2**63, 1)
"""The odds of the truth where a test wants to see it: one report in 10^17 is another."""
SKEW, SPREAD, GRACE = 60, 3600, 7 * 86_400


class ManualClock:
    """Unix time in seconds, as a client takes it.

    now: what it shows first: noon of the first day, so that after a day the period before is over and answered.
    """

    def __init__(self, now: float = FIRST_DAY + _NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time that it shows."""
        return self.now

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Moves it on; backwards if that is negative, as clocks of devices sometimes do."""
        self.now += ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def make_survey(
    *,
    question: str | Sequence[Question] = "What do you drink?",
    answers: Sequence[str] = ("tea", "coffee", "neither"),
    periods: int = 365,
    period: int = 86_400,
    start: int = FIRST_DAY,
    at_most: int = 3,
    epsilon: Decimal | float | None = None,
    **others: Any,
) -> Survey:
    """A survey in which an entry reports at every period's close how its answers changed, to all questions.

    question: its text; or several questions, each with its own answers and constraint, beside which `answers` and
    `at_most` say nothing.
    periods: how many. period: how long each is, in seconds. start: when the first begins, in Unix seconds.
    at_most: how often an entry's answer may change; the first answer is a change as well.
    epsilon: what the survey costs an entry, about. None: its reports tell the truth, so that a test can see it.
    others: further fields of a survey, such as closed=True, grace=86_400 in seconds, breakdowns or relay.
    Reports are due up to SKEW + SPREAD seconds after a period's close, or half a period where that is shorter.
    Raises ValueError for what cannot be.
    """
    if isinstance(answers, str):
        raise ValueError(f"the answers are a list of texts, got the one text {answers!r}")
    alone = [Question(ONLY, question, tuple(answers), AtMost(at_most))] if isinstance(question, str) else question
    asked: tuple[Question, ...] = tuple(alone)
    changes = sum(each.constraint.most_nodes([period * at for at in range(periods + 1)]) for each in asked)
    tracks = []
    for place, each in enumerate(asked):
        space = MutationSpace(len(each.answers))
        randomizer: Randomizer = KaryResponse(space, TRUTHFUL)
        if epsilon is not None:
            randomizer = SignedSubset(space, Odds.within(Decimal(str(epsilon)) / changes))
        tracks.append(Track(1, randomizer, 0, periods, question=place))
    usual = {"skew": min(SKEW, period // 8), "spread": max(min(SPREAD, period // 4), 1), "grace": GRACE, "minimum": 1}
    return Survey.at_cost(
        questions=asked,
        calendar=Calendar(start, period, periods),
        plan=ReleasePlan((Group(tuple(tracks)),)),
        **{**usual, **others},
    )


_PRIVATE = X25519PrivateKey.from_private_bytes(b"changeling: a key of the tests, ")
_FOR_EVER = 2**40


@dataclass(frozen=True, slots=True)
class Request:
    """One request that the server was asked: at what time by its clock, its method and path, its body's length, and its
    headers."""

    at: float
    method: str
    path: str
    body_bytes: int
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class ReceivedReport:
    """One report that a fake server was sent.

    survey: the survey's id. node: the periods (start, end] that it is about. closing: the id of the answer that it came
    with, 16 bytes: another for each entry and period, the same when it is sent again.
    track, symbol: as the protocol has them. says: what it says, in words, such as "from tea to coffee".
    """

    survey: SurveyId
    node: Node
    closing: bytes
    track: int
    symbol: int
    says: str


class FakeServer:
    """A server without a network. Pass its `transport` to a client, with its `url` and its `authority`.

    clock: what its answers are dated by; pass the client's own, unless the device's clock is to be wrong.
    requests: all that it was asked. reports: all that it took, each once, however often it was sent.
    last_reports: those of the last request that brought any.
    """

    url = "https://surveys.example"
    authority = (AUTHORITY.public_key().public_bytes_raw(),)

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.requests: list[Request] = []
        self.reports: list[ReceivedReport] = []
        self.last_reports: list[ReceivedReport] = []
        self._surveys: dict[SurveyId, Survey] = {}
        self._ends: dict[SurveyId, EarlyEnd] = {}
        self._key = SealingKey(_PRIVATE.public_key().public_bytes_raw(), 0, _FOR_EVER)
        self._seen: set[tuple[SurveyId, int, bytes, int]] = set()
        self._online, self._status, self._retry_after = True, 200, ""

    def publish(self, survey: Survey) -> SurveyId:
        """Serves a survey from now on. Returns its id, by which an app joins it. Raises TypeError for anything else."""
        if not isinstance(survey, Survey):
            raise TypeError(f"a survey is published, such as make_survey() gives, not a {type(survey).__name__}")
        self._surveys[survey.id] = survey
        return survey.id

    def end_early(self, survey: SurveyId, last: int) -> None:
        """Ends a survey, as operators do: once the grace of that period is over nothing of it is taken any more.

        last: the number of the last period that counts, from 1.
        """
        self._ends[survey] = EarlyEnd(survey, last)

    def signed(self, survey: Survey) -> bytes:
        """The survey as its authority signed it, for an app that brings it along."""
        return survey.signed_by(AUTHORITY)

    def fail_with(self, status: int, *, retry_after: float | str | None = None) -> None:
        """Answers every request with this status, until `recover`.

        retry_after: that header, in seconds, or as an HTTP date; None for none.
        """
        self._status, self._retry_after = status, "" if retry_after is None else f"{retry_after}"

    def go_offline(self) -> None:
        """Cannot be reached, until `recover`."""
        self._online = False

    def recover(self) -> None:
        """Answers again as it should."""
        self._online, self._status, self._retry_after = True, 200, ""

    @property
    def transport(self) -> httpx.BaseTransport:
        """Brings a client's requests here."""
        import httpx

        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        import httpx

        body = request.read()
        self.requests.append(
            Request(self.clock(), request.method, request.url.path, len(body), tuple(request.headers.raw))
        )
        if not self._online:
            raise httpx.ConnectError("the fake server is offline")
        headers = {"date": formatdate(self.clock(), usegmt=True)}
        if self._status != 200:
            if self._retry_after:
                headers["retry-after"] = self._retry_after
            return httpx.Response(self._status, headers=headers)
        content = self._content(request.method, request.url.path, body)
        return httpx.Response(404 if content is None else 200, content=content, headers=headers)

    def _content(self, method: str, path: str, body: bytes) -> bytes | None:
        if method == "POST" and path == UPLOADS:
            return self._take(body)
        if method == "GET" and path == KEYS:
            return encode_key_list([self._key.signed_by(AUTHORITY)])
        for survey in self._surveys.values():
            at = survey_path(survey.id.hex())
            if method == "GET" and path == at:
                return self.signed(survey)
            if method == "GET" and path == at + END and survey.id in self._ends:
                return self._ends[survey.id].signed_by(AUTHORITY)
        return None

    def _take(self, body: bytes) -> bytes:
        refused: dict[int, Refusal] = {}
        before, self.last_reports = self.last_reports, []
        for index, envelope in enumerate(decode_upload_request(body)):
            try:
                self._count(envelope)
            except MalformedBytes:
                refused[index] = Refusal.MALFORMED
            except CannotOpen:
                refused[index] = Refusal.UNKNOWN_KEY
            except KeyError:
                refused[index] = Refusal.UNKNOWN_SURVEY
            except _Closed:
                refused[index] = Refusal.CLOSED
        self.last_reports = self.last_reports or before
        return encode_acknowledgement(refused)

    def _count(self, envelope: bytes) -> None:
        survey = self._surveys[head_of(envelope).survey]
        end = self._ends.get(survey.id)
        if end is not None and self.clock() > survey.calendar.time(end.last) + survey.grace:
            raise _Closed
        for report in received(survey, open_envelope(envelope, _PRIVATE)):
            self.last_reports.append(report)
            key = survey.id, report.node.end, report.closing, report.track
            if key not in self._seen:
                self._seen.add(key)
                self.reports.append(report)


class _Closed(Exception):
    """A survey was ended, and the grace of its last period is over."""


def received(survey: Survey, plaintext: bytes) -> list[ReceivedReport]:
    """The reports in an upload, in the order of their nodes' ends. Raises MalformedBytes."""
    _, answered, reports = read_upload(survey.plan, plaintext)
    ids, tracks = {closing.period: closing.id for closing in answered}, survey.plan.tracks
    nodes = [tracks[report.track].node(report.node) for report in reports]
    states = [[NO_ANSWER, *each.answers] for each in survey.questions]
    words = [
        (track := tracks[report.track]).randomizer.said(report.symbol, states[track.question]) for report in reports
    ]
    return sorted(
        (
            ReceivedReport(survey.id, node, ids[node.end], report.track, report.symbol, says)
            for report, node, says in zip(reports, nodes, words, strict=True)
        ),
        key=lambda report: (report.node.end, report.track),
    )


def read_upload(plan: ReleasePlan, plaintext: bytes) -> tuple[int, list[Closing], list[Report]]:
    """The group, the answered closings and the reports in an upload's plaintext. Raises MalformedBytes."""
    upload = decode_upload(plaintext)
    if not 0 <= upload.group < len(plan.groups):
        raise MalformedBytes("a group of another plan")
    if column_bytes(plan, upload.group, upload.span) != (len(upload.closings), *map(len, upload.symbols)):
        raise MalformedBytes("columns of a wrong length")
    periods = closings(plan, upload.span.start, upload.span.end)
    n, column = len(periods), upload.closings
    ids, standings, strata = column[: CLOSING_ID_BYTES * n], column[CLOSING_ID_BYTES * n : -2 * n], column[-2 * n :]
    answered = [
        Closing(
            period,
            ids[CLOSING_ID_BYTES * i : CLOSING_ID_BYTES * (i + 1)],
            Standing(standings[i] - 1),
            StratumNumber(int.from_bytes(strata[2 * i : 2 * i + 2])),
        )
        for i, period in enumerate(periods)
        if standings[i]
    ]
    reports = [
        Report(number, node, written - 1)
        for (number, track), symbols in zip(plan.numbered(upload.group), upload.symbols, strict=True)
        for node, written in _written(track, upload.span, symbols)
        if written
    ]
    return upload.group, answered, reports


def _written(track: Track, span: Node, column: bytes) -> Iterator[tuple[NodeNumber, int]]:
    width, first = symbol_bytes(track.randomizer), max((span.start - track.first) // track.width + 1, 1)
    for at in range(0, len(column), width):
        yield NodeNumber(first + at // width), int.from_bytes(column[at : at + width])


STORE_NAME, WITNESS_NAME = "changeling.db", "witness"


class ForeseeableCoins:
    """Uniform integers from a seed, for tests only. No argument of a client takes them."""

    def __init__(self, seed: int) -> None:
        self._generator = random.Random(seed)

    def below(self, n: int) -> int:
        """An integer in [0, n). Raises ValueError for n < 1."""
        return self._generator.randrange(n)


def make_client(
    folder: str | os.PathLike[str],
    server: FakeServer,
    *,
    seed: int = 0,
    coins: Coins | None = None,
    **options: Any,
) -> Client:
    """A client of a fake server.

    folder: where its store is, with its witness beside it; a second client of the same folder goes on with both.
    server: whose clock is the client's, unless `clock` is among the options.
    seed: what its coins follow from. coins: a test's own, in their place.
    options: of `Client`, in the place of those here: strict, no background, and no bound on epsilon worth the name.

    It is quicker than an app's: its store would not outlive a loss of power, and a flush rewrites no old pages.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    usual: dict[str, Any] = {
        "path": place / STORE_NAME,
        "server": server.url,
        "authority": server.authority,
        "max_epsilon": 1_000_000,
        "witness": _beside(place / WITNESS_NAME),
        "strict": True,
        "background": False,
        "transport": server.transport,
        "clock": server.clock,
    }
    client = Client(**{**usual, **options})
    client._device.coins = coins or ForeseeableCoins(seed)
    if client.consent:
        _hurry(client._device.store)
    return client


def let_report(client: Client, clock: ManualClock, *, days: float = 1) -> None:
    """Does what a client's background thread does in so many days, at once.

    clock: the client's own, which is moved on from one time to the next at which the thread would act.
    """
    reporter, end = Reporter(client._device), clock.now + 86_400 * days
    while (then := clock.now + reporter.step()) < end:
        clock.now = then
    clock.now = end


def stored(client: Client, survey: SurveyId) -> list[tuple[Entry, Drawn]]:
    """The entries of a survey as the store keeps them, in order, so that a test sees what is forgotten.

    With each entry, the nodes that it has still to report of tracks of which it reports only some.
    """
    store = client._device.store
    with store.transaction() as db:
        kept = entries.load_all(db, store.wrapping, survey)
        return [(entry, entries.drawn_nodes(db, store.wrapping, entry)) for entry in kept]


def _beside(file: Path) -> Callbacks:
    """A witness like the usual one, but for the waiting until the disk has it."""
    return Callbacks(lambda: file.read_bytes() if file.exists() else None, file.write_bytes)


def _hurry(store: ClientStore) -> None:
    with store._lock:
        store._connected().execute("PRAGMA synchronous = OFF")
    erase_all = store.erase_past

    def erase_past(changed: bool | None = None) -> bool:
        return erase_all() if changed is None else True

    store.erase_past = erase_past  # type: ignore[method-assign]


Life = TypeVar("Life")


class Household:
    """The surroundings of one life: what an app under audit makes its clients with, and moves its time by."""

    def __init__(self, folder: Path) -> None:
        self.server = FakeServer()
        self.clock = self.server.clock
        self._folder, self._coins = folder, ApartCoins()

    def client(self, **options: Any) -> Client:
        """A client of this life's store, server and clock; a second one goes on with the first one's store.

        options: of `Client`, in place of those that `make_client` has.
        """
        return make_client(self._folder, self.server, coins=self._coins, **options)


class ApartCoins:
    """Coins of which those below one number never hang on those below another, such as delays on symbols."""

    def __init__(self) -> None:
        self._coins: dict[int, ForeseeableCoins] = {}

    def below(self, n: int) -> int:
        """An integer in [0, n). Raises ValueError for n < 1."""
        return self._coins.setdefault(n, ForeseeableCoins(n)).below(n)


def audit(app: Callable[[Household, Life], object], lives: Iterable[Life]) -> list[str]:
    """Plays lives of an app, and says of each after the first where its traffic begins to differ.

    app: plays one life: publishes the survey, makes a client, and does what the app does as time goes on.
    lives: what is answered in each; anything that the app understands.
    Returns an empty list where nobody who watches could tell the lives apart.
    """
    reference, *others = [_played(app, life) for life in lives]
    found = []
    for number, seen in enumerate(others, 2):
        for at, (before, now) in enumerate(zip_longest(reference, seen), 1):
            if before != now:
                found.append(f"life {number} differs in request {at}: {_words(now)}, in life 1 {_words(before)}")
                break
    return found


def _played(app: Callable[[Household, Life], object], life: Life) -> list[Request]:
    with TemporaryDirectory() as folder:
        household = Household(Path(folder))
        app(household, life)
        return household.server.requests


def _words(request: Request | None) -> str:
    if request is None:
        return "none"
    return f"{request.method} {request.path} of {request.body_bytes} bytes at {request.at:.3f}"


__all__ = [
    "AUTHORITY",
    "FIRST_DAY",
    "FakeServer",
    "ForeseeableCoins",
    "Household",
    "ManualClock",
    "ReceivedReport",
    "audit",
    "let_report",
    "make_client",
    "make_survey",
    "read_upload",
    "stored",
]
