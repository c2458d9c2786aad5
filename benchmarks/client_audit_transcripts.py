"""What a server sees of entries that all live alike: the shipped client, driven as an app drives it, at a fake server.

The client is a black box here: a store on disk, `join`, `record` and `flush`. For some clients the server's answers are
lost once in the middle of the survey, so what it had then is sent again; the copies are known by their ids.
No other module of the audit knows how a client is called.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import httpx
from changeling_client import Client, Ledger, SurveyHandle
from changeling_protocol import Coins, ReleasePlan, Survey

from tests.protocol.reading import read_upload

from .client_audit_server import AUTHORITY, Clock, Server

States: TypeAlias = tuple[int, ...]
"""What the app says in each period: the number of an answer from 1, or 0 for none. It records what is new."""
Said: TypeAlias = tuple[tuple[int, int, int], ...]
"""A closing without its id, as (period, standing, stratum), then its reports, as (track, node, symbol)."""
Transcript: TypeAlias = Hashable
"""All that an entry sends, without its ids: its group, and what it said at each closing, in each version that came."""

PATIENCE = 86_400
"""How long after the survey's end the client sends again, in seconds: it may have to wait after a failure."""
_STORE = "store.db"
_IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
"""Where stores lie, so that an audit does not wait for a disk."""


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


def transcripts(survey: Survey, states: States, count: int, coins: Coins | None, interrupted: bool) -> Heard:
    """What a server sees of a client whose entries live alike, from the survey's start to its end.

    states: what the app says of each entry in each period, whether or not the survey's constraint admits it.
    count: how many entries there are. coins: a test's own; None for those that the client ships with.
    interrupted: whether it sends in the middle of the survey as well, and hears no answer.
    """
    clock = Clock(survey.calendar.start)
    server = Server(clock)
    half, ends = survey.calendar.periods // 2, survey.calendar.periods
    with TemporaryDirectory(dir=_IN_MEMORY) as folder, _client(survey, Path(folder), server, clock, coins) as client:
        answers = [survey.answers[states[0] - 1]] * count if states[0] else None
        handle = client.join(survey.id, entries=count, answers=answers, signed=survey.signed_by(AUTHORITY))
        _record(handle, clock, survey, states, range(2, half + 1), count)
        if interrupted:
            clock.now, server.mute = due(survey, half), True
            client.flush()
        first = server.taken()
        _record(handle, clock, survey, states, range(max(2, half + 1), ends + 1), count)
        clock.now, server.mute = due(survey, ends) + PATIENCE, False
        client.flush()
        return _heard(survey.plan, first, server.taken(), count, _ledger(handle).epsilon)


def transcripts_of_lives(
    survey: Survey, lives: Sequence[States], copied: int, count: int, coins: Coins | None
) -> Heard:
    """The same of a client whose store is copied, and lives once more from the copy on.

    lives: what the app says in each life; both say the same until the copy is made. copied: after which period.
    Whoever reads the transcripts knows which are of one entry. Only missing entries are counted.
    """
    clock = Clock(survey.calendar.start)
    server = Server(clock)
    ends = survey.calendar.periods
    with TemporaryDirectory(dir=_IN_MEMORY) as folder:
        with _client(survey, Path(folder), server, clock, coins) as client:
            handle = client.join(survey.id, entries=count, signed=survey.signed_by(AUTHORITY))
            _record(handle, clock, survey, lives[0], range(1, copied + 1), count)
            clock.now = due(survey, copied)
            client.flush()
            epsilon = _ledger(handle).epsilon_if_restored
        sent = [_heard(survey.plan, [], server.taken(), count, epsilon).transcripts or [()] * count]
        store = Path(folder) / _STORE
        copy = store.read_bytes()
        for states in lives:
            store.write_bytes(copy)
            clock.now = due(survey, copied)
            with _client(survey, Path(folder), server, clock, coins) as client:
                handle = client.join(survey.id, entries=count)
                _record(handle, clock, survey, states, range(copied + 1, ends + 1), count)
                clock.now = due(survey, ends) + PATIENCE
                client.flush()
            sent.append(_heard(survey.plan, [], server.taken(), count, epsilon).transcripts)
    together: list[Transcript] = [*zip(*sent, strict=False)]
    return Heard(together, epsilon, 0, count - len(together))


def _client(survey: Survey, folder: Path, server: Server, clock: Clock, coins: Coins | None) -> Client:
    client = Client(
        server="https://statistics.example",
        authority=[AUTHORITY.public_key().public_bytes_raw()],
        max_epsilon=survey.epsilon,
        path=folder / _STORE,
        witness=None,
        strict=True,
        background=False,
        transport=httpx.MockTransport(server.serve),
        clock=clock,
    )
    if coins is not None:
        client._device.coins = coins
    return client


def _ledger(handle: SurveyHandle) -> Ledger:
    ledger = handle.ledger()
    if ledger is None:
        raise LookupError("the survey was joined, and has no ledger")
    return ledger


def due(survey: Survey, period: int) -> float:
    """When a period has to be answered at the latest, in Unix seconds."""
    return survey.calendar.time(period) + survey.skew + survey.spread + 1


def _record(
    handle: SurveyHandle, clock: Clock, survey: Survey, states: States, periods: Iterable[int], count: int
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
