"""Measure 6 of the client: an audit of its epsilon by what it sends, and of five clients that are broken on purpose.

The client is a black box: a store on disk, `join`, `record` and `flush`, driven as an app drives it, at a fake server.
For some clients the server's answers are lost once in the middle of the survey, so what it had then is sent again; the
copies are known by their ids. Coins are the operating system's. If no event is more than e^ε times likelier one way to
live than another, then ε >= ln(p/q) for every event, p and q being its chances. The event is chosen by some of the
transcripts, and p and q are bounded by the others, after Clopper and Pearson, each wrong with at most half of the
false-alarm rate. So each bound lies above the true loss at most once in a thousand audits, whatever the client does, as
long as its entries' transcripts are independent. Contradictions and missing reports are counted, and are certain.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from email.utils import formatdate
from functools import cache, partial
from math import inf, log
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, TypeAlias
from unittest.mock import patch

import httpx
from changeling_client import Client, SurveyHandle, outbox
from changeling_client.testing import AUTHORITY, ManualClock, read_upload
from changeling_protocol import (
    AtMost,
    Calendar,
    Coins,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    Memory,
    MutationSpace,
    Node,
    Odds,
    ReleasePlan,
    Report,
    SealingKey,
    SignedSubset,
    StateSpace,
    Survey,
    SystemCoins,
    Track,
    encode_upload,
    first_memory,
    open_envelope,
    respond,
)
from changeling_protocol.wire import KEYS, UPLOADS, decode_upload_request, encode_acknowledgement, encode_key_list
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy.special import betaincinv

States: TypeAlias = tuple[int, ...]
"""What the app says in each period: the number of an answer from 1, or 0 for none. It records what is new."""
Said: TypeAlias = tuple[tuple[int, int, int], ...]
"""A closing without its id, as (period, standing, stratum), then its reports, as (track, node, symbol)."""
Transcript: TypeAlias = Hashable
"""All that an entry sends, without its ids: its group, and what it said at each closing, in each version that came."""


FAST_FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108
_LATER = 86_400
"""How long after the survey's end the client sends again, in seconds: it may have to wait after a failure."""
_PRIVATE = X25519PrivateKey.from_private_bytes(b"sealing key of audits, 32 bytes.")


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of some entries.

    transcripts: one for each entry, in no order that is known.
    epsilon: the ledger's figure for an entry.
    contradictions: closings whose id came with two contents, or that came once and never again.
    missing: reports and closings that the plan asks for and that never came, of entries of which nothing came as well.
    """

    transcripts: list[Transcript]
    epsilon: Decimal
    contradictions: int
    missing: int


class Server:
    """Keeps all that is uploaded. While it is `mute` it does so too, but the device learns nothing of that."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._key = SealingKey(_PRIVATE.public_key().public_bytes_raw(), 0, 2**32).signed_by(AUTHORITY)
        self.mute = False
        self.uploaded: list[bytes] = []

    def serve(self, request: httpx.Request) -> httpx.Response:
        """The answer to a request, dated by the same clock as the device's."""
        date = {"date": formatdate(self._clock(), usegmt=True)}
        if request.url.path == KEYS:
            return httpx.Response(200, content=encode_key_list([self._key]), headers=date)
        if request.url.path != UPLOADS:
            return httpx.Response(404, headers=date)
        self.uploaded += decode_upload_request(request.content)
        if self.mute:
            return httpx.Response(503, headers=date)
        return httpx.Response(200, content=encode_acknowledgement({}), headers=date)

    def taken(self) -> list[bytes]:
        """The envelopes since the last time, in plaintext."""
        taken = [open_envelope(envelope, _PRIVATE) for envelope in self.uploaded]
        self.uploaded = []
        return taken


def transcripts(survey: Survey, states: States, count: int, interrupted: bool) -> Heard:
    """What a server sees of a client whose entries live alike, from the survey's start to its end.

    states: what the app says of each entry in each period, whether or not the survey's constraint admits it.
    count: how many entries there are.
    interrupted: whether it sends in the middle of the survey as well, and hears no answer.
    """
    clock = ManualClock(survey.calendar.start)
    server = Server(clock)
    half, ends = survey.calendar.periods // 2, survey.calendar.periods
    with TemporaryDirectory(dir=FAST_FOLDER) as folder, _client(survey, Path(folder), server, clock) as client:
        answers = [survey.answers[states[0] - 1]] * count if states[0] else None
        handle = client.join(survey.id, entries=count, answers=answers, signed=survey.signed_by(AUTHORITY))
        _record(handle, clock, survey, states, range(2, half + 1), count)
        if interrupted:
            clock.now, server.mute = due(survey, half), True
            client.flush()
        first = server.taken()
        _record(handle, clock, survey, states, range(max(2, half + 1), ends + 1), count)
        clock.now, server.mute = due(survey, ends) + _LATER, False
        client.flush()
        return _heard(survey.plan, first, server.taken(), count, survey.epsilon)


def _client(survey: Survey, folder: Path, server: Server, clock: ManualClock) -> Client:
    return Client(
        server="https://statistics.example",
        authority=[AUTHORITY.public_key().public_bytes_raw()],
        max_epsilon=survey.epsilon,
        path=folder / "store.db",
        witness=None,
        strict=True,
        background=False,
        transport=httpx.MockTransport(server.serve),
        clock=clock,
    )


def due(survey: Survey, period: int) -> float:
    """When a period has to be answered at the latest, in Unix seconds."""
    return survey.calendar.time(period) + survey.skew + survey.spread + 1


def _record(
    handle: SurveyHandle, clock: ManualClock, survey: Survey, states: States, periods: Iterable[int], count: int
) -> None:
    """Says what is new in these periods, each time just before the period closes."""
    for period in periods:
        clock.now = survey.calendar.time(period) - 1
        old, new = (0, *states)[period - 1 : period + 1]
        if new == old:
            continue
        for entry in range(count):
            if new:
                handle.record(survey.answers[new - 1], entry)
            else:
                handle.retract(entry)


def _heard(plan: ReleasePlan, first: Sequence[bytes], last: Sequence[bytes], count: int, epsilon: Decimal) -> Heard:
    """Links what an entry sent while no answer got through with what it sent later, by the closings' ids.

    first, last: plaintexts. At last all of an entry comes in a row, in the order of periods.
    """
    told: dict[bytes, Said] = {}
    contradictions = 0
    for plaintext in first:
        _, said = _said(plan, plaintext)
        contradictions += len(told.keys() & said.keys())
        told |= said
    ids: set[bytes] = set()
    entries: list[tuple[int, list[tuple[Said, ...]]]] = []
    missing, reached = 0, 0
    for plaintext in last:
        group, said = _said(plan, plaintext)
        contradictions += len(ids & said.keys()) + sum(told.get(id_, each) != each for id_, each in said.items())
        ids |= said.keys()
        begins, *_ = (period for (period, _, _), *_ in said.values())
        if begins <= reached or not entries:
            missing += _asked(plan, group)
            entries.append((group, []))
        entries[-1][1].extend(tuple({each: 0, told.get(id_, each): 0}) for id_, each in said.items())
        missing -= sum(map(len, said.values()))
        reached = max(period for (period, _, _), *_ in said.values())
    heard: list[Transcript] = [(group, tuple(versions)) for group, versions in entries]
    return Heard(heard, epsilon, contradictions + len(told.keys() - ids), missing + count - len(heard))


def _said(plan: ReleasePlan, plaintext: bytes) -> tuple[int, dict[bytes, Said]]:
    """The group in an upload, and by their ids its closings with their reports, in the order of periods."""
    group, closings, reports = read_upload(plan, plaintext)
    by_period: dict[int, list[tuple[int, int, int]]] = {
        closing.period: [(closing.period, int(closing.standing), closing.stratum)] for closing in closings
    }
    for report in reports:
        by_period[plan.tracks[report.track].node(report.node).end].append((report.track, report.node, report.symbol))
    return group, {closing.id: tuple(by_period[closing.period]) for closing in closings}


@cache
def _asked(plan: ReleasePlan, group: int) -> int:
    """How many closings and reports an entry of a group sends from the survey's start to its end."""
    ends = {node.end for track in plan.tracks for node in track.nodes()}
    return len(ends) + sum(track.reports for track in plan.groups[group].tracks)


@dataclass(frozen=True, slots=True)
class Case:
    """A survey whose exact loss is the epsilon that it states, as `tests/protocol` shows by enumeration.

    pair: two ways to live whose transcripts reach that loss.
    """

    survey: Survey
    pair: tuple[States, States]

    @property
    def restless_pair(self) -> tuple[States, States]:
        """Two apps that say something new in every period, the one from the first on, the other from the second."""
        periods = range(self.survey.calendar.periods)
        return tuple(1 - period % 2 for period in periods), tuple(period % 2 for period in periods)


def _survey(track: Track, most: int, answers: Sequence[str] = ("yes",), joint: Joint | None = None) -> Survey:
    return Survey.at_cost(
        question="Do you use the dark theme?",
        answers=answers,
        calendar=Calendar(1_800_000_000, 60, track.last),
        constraint=AtMost(most),
        plan=ReleasePlan((Group((track,)) if joint is None else Group.jointly([track], joint),)),
        skew=5,
        spread=10,
        grace=30 * 86_400,
        minimum=1,
    )


_HELD = (1, 1, 1), (0, 1, 1)
"""An answer from the first period on, or from the second."""
_PAIRS = KaryResponse(MutationSpace(1, repeats=True), Odds(5, 2))
_CHANGES, _STATE = SignedSubset(MutationSpace(1), Odds(5, 2)), KaryResponse(StateSpace(1), Odds(5, 2))
_ONCE = Joint(Odds(5, 1), threshold=1, weights=(1,), slots=(2,))
_TOGETHER = _survey(Track(1, KaryChange(MutationSpace(2), Odds(2, 1)), 0, 2), 2, ("yes", "no"), _ONCE)
CASES = {
    "krr": Case(_survey(Track(1, _PAIRS, 0, 3), 1), _HELD),
    "joint": Case(_TOGETHER, ((2, 1), (1, 2))),
    "signed": Case(_survey(Track(1, _CHANGES, 0, 3), 1), _HELD),
    "states": Case(_survey(Track(1, _STATE, 0, 1), 1), ((1,), (0,))),
}
"""The papers' own, k-RR on all (z+1)² pairs, afresh in each of three periods, for one mutation: 2κε₀ = 2 ln 2.5. One
budget of ln 5 for two mutations in two periods: 5:1 where any of the two reports agrees. Signed subsets in three
periods, for one mutation: κλ = ln 2.5. One report of a state: ln 2.5."""


FALSE_ALARM = 0.001
"""How often a bound may lie above the true loss."""
CHOOSE = 3
"""Every third transcript helps to choose the event, and is then left out."""
TRANSCRIPTS = 40_000
"""Of each survey whose bound is held against the exact loss, half of them of each of the two ways to live."""
CLIENT = 1_000
"""How many entries one client has."""
INTERRUPTED = 10
"""Of so many clients one is interrupted, so that it sends again what it had sent."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What is audited, and by how many transcripts.

    case: a name in CASES. broken: a name in BROKEN; None for the client as it ships. restless: whether the ways to live
    are those of apps that say something new in every period, instead of the worst pair of changelogs.
    """

    case: str
    broken: str | None = None
    restless: bool = False
    count: int = 10_000


AUDITS = {
    "krr": Audit("krr", count=TRANSCRIPTS),
    "joint": Audit("joint", count=TRANSCRIPTS),
    "signed": Audit("signed"),
    "states": Audit("states"),
    "krr_restless": Audit("krr", restless=True),
    "signed_restless": Audit("signed", restless=True),
    "broken_two_symbols": Audit("krr", "two_symbols", count=1_000),
    "broken_only_on_change": Audit("krr", "only_on_change", count=1_000),
    "broken_odds_off": Audit("states", "odds_off", count=20_000),
    "broken_unconstrained": Audit("signed", "unconstrained", restless=True, count=20_000),
    "broken_slots_reset": Audit("joint", "slots_reset", count=TRANSCRIPTS),
}
"""The client as it ships, and broken ones, each on a survey where it does harm."""


def measure() -> dict[str, float]:
    """Of each survey the bound, and its share of the ledger's figure; of each broken client whether it is caught."""
    figures: dict[str, float] = {
        "6_false_alarm_rate": FALSE_ALARM,
        "6_transcripts": sum(audit.count for audit in AUDITS.values()),
    }
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        for name, audit in AUDITS.items():
            figures |= {f"6_{name}_{figure}": number for figure, number in _audited(audit, workers).items()}
    return figures | {"6_seconds": sum(number for figure, number in figures.items() if figure.endswith("_seconds"))}


def _audited(audit: Audit, workers: ProcessPoolExecutor) -> dict[str, float]:
    """The lower bound on epsilon and the ledger's figure, in nats, and what gives a client away."""
    case, began = CASES[audit.case], monotonic()
    pair = case.restless_pair if audit.restless else case.pair
    size = min(CLIENT, audit.count // 2)
    clients = [(way, client) for way in range(2) for client in range(audit.count // 2 // size)]
    heard = list(workers.map(partial(_lived, audit, pair, size), clients))
    ways: tuple[list[Transcript], list[Transcript]] = [], []
    for (way, _), batch in zip(clients, heard, strict=True):
        ways[way].extend(batch.transcripts)
    bound, ledger = lower_bound_from(*ways), float(max(batch.epsilon for batch in heard))
    contradictions = sum(batch.contradictions for batch in heard)
    missing = sum(batch.missing for batch in heard)
    figures: dict[str, float] = {"lower_bound": bound, "ledger": ledger, "seconds": monotonic() - began}
    figures |= {"contradictions": contradictions, "missing": missing}
    if audit.broken:
        figures["caught"] = bound > ledger or contradictions > 0 or missing > 0
    elif not audit.restless:
        figures["share"] = bound / ledger
    return figures


def _lived(audit: Audit, pair: tuple[States, States], size: int, client: tuple[int, int]) -> Heard:
    way, number = client
    with _patched(BROKEN[audit.broken]):
        return transcripts(CASES[audit.case].survey, pair[way], size, interrupted=number % INTERRUPTED == 0)


def lower_bound_from(one: Sequence[Transcript], other: Sequence[Transcript]) -> float:
    """The lower bound on epsilon, in nats, from independent transcripts of two ways to live; 0 where there is none."""
    event, turned = _chosen(one[::CHOOSE], other[::CHOOSE])
    first, second = (_counted(event, [each for at, each in enumerate(way) if at % CHOOSE]) for way in (one, other))
    return max(0.0, lower_bound(second, first) if turned else lower_bound(first, second))


def lower_bound(likelier: tuple[int, int], rarer: tuple[int, int]) -> float:
    """ln(p/q), p bounded from below and q from above.

    likelier, rarer: how often an event came, and of how many transcripts, where p and where q is its chance.
    """
    (came, count), (rarely, others) = likelier, rarer
    if came == 0:
        return -inf
    p = betaincinv(came, count - came + 1, FALSE_ALARM / 2)
    q = 1.0 if rarely == others else betaincinv(rarely + 1, others - rarely, 1 - FALSE_ALARM / 2)
    return log(p / q)


def _chosen(one: Sequence[Transcript], other: Sequence[Transcript]) -> tuple[frozenset[Transcript], bool]:
    """The event that gives these transcripts the largest bound, among those that hold what is likeliest one way.

    With it, whether it is the likelier the other way.
    """
    best, bound = (frozenset[Transcript](), False), -inf
    for turned, (way, against) in ((False, (one, other)), (True, (other, one))):
        often, seldom = Counter(way), Counter(against)
        ranked = sorted(often, key=lambda each: (often[each] + 0.5) / (seldom[each] + 0.5), reverse=True)
        came = rarely = 0
        for last, transcript in enumerate(ranked, 1):
            came, rarely = came + often[transcript], rarely + seldom[transcript]
            if (found := lower_bound((came, len(way)), (rarely, len(against)))) > bound:
                best, bound = (frozenset(ranked[:last]), turned), found
    return best


def _counted(event: frozenset[Transcript], told: Collection[Transcript]) -> tuple[int, int]:
    return sum(each in event for each in told), len(told)


_SILENT = -1
"""Stands for a report that is not made."""
Answer: TypeAlias = tuple[int, Memory | None]


def _keeping(_: Group, __: int, true: int, slots: Memory | None, ___: Coins) -> Answer:
    return true, slots


def _drawing(plan: ReleasePlan, group: int, span: Node, answered: Any, reports: list[Report]) -> bytes:
    tracks, coins = plan.tracks, SystemCoins()
    drawn = [each._replace(symbol=tracks[each.track].randomizer.respond(each.symbol, coins)) for each in reports]
    return encode_upload(plan, group, span, answered, drawn)


def _answering_changes(group: Group, place: int, true: int, slots: Memory | None, coins: Coins) -> Answer:
    return respond(group, place, true, slots, coins) if true else (_SILENT, slots)


def _putting_answers(db: Any, wrapping: Any, survey: Any, answered: Sequence[tuple[Any, Sequence[Any]]]) -> None:
    spoken = [
        (entry, [each._replace(reports=tuple(r for r in each.reports if r.symbol != _SILENT)) for each in answers])
        for entry, answers in answered
    ]
    _PUT(db, wrapping, survey, spoken)


def _telling(group: Group, place: int, true: int, slots: Memory | None, coins: Coins) -> Answer:
    randomizer: Any = group.tracks[place].randomizer
    odds = Odds(6 * randomizer.odds.favoured, 5 * randomizer.odds.other)
    return replace(randomizer, odds=odds).respond(true, coins), slots


_PUT, _RESPOND = outbox.put, "changeling_client.flushing.respond"
BROKEN: Mapping[str | None, Mapping[str, Callable[..., Any]]] = {
    None: {},
    "two_symbols": {_RESPOND: _keeping, "changeling_client.outbox.encode_upload": _drawing},
    "only_on_change": {_RESPOND: _answering_changes, "changeling_client.outbox.put": _putting_answers},
    "odds_off": {_RESPOND: _telling},
    "unconstrained": {"changeling_protocol.questions.AtMost.admits": lambda *_: True},
    "slots_reset": {"changeling_protocol.plan.SlotState.after": lambda _, group, *__: first_memory(group)},
}
"""Clients that are broken on purpose, by what stands at some seams of the real one; None is the client as it ships.

two_symbols keeps true inputs in the outbox and draws their symbols as it sends: a retry has the id, and another symbol.
only_on_change reports nothing where nothing changed. odds_off tells the truth with odds that are a fifth too high.
unconstrained counts mutations, and admits them all. slots_reset forgets after each report of a joint group what the
reports before it did."""


@contextmanager
def _patched(seams: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Puts something else in the places of these names as long as it lasts."""
    with ExitStack() as stack:
        for name, instead in seams.items():
            stack.enter_context(patch(name, instead))
        yield
