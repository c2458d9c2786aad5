"""What a server sees of entries that all live alike: the shipped client, driven as an app drives it, at a fake server.

The client is a black box here: a store on disk, `join`, `record` and `flush`. In the middle of the survey the server's
answers are lost once, so what it had then is sent again; the copies are known by their ids. `transcripts` is the only
place that knows how a client is called.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from email.utils import formatdate
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import httpx
from changeling_client import Client, SurveyHandle
from changeling_protocol import Coins, ReleasePlan, SealingKey, Survey, canonical, open_envelope
from changeling_protocol.wire import decode_upload_request, encode_key_list
from changeling_protocol.wire.paths import KEYS, UPLOADS
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.protocol.reading import read_upload

States: TypeAlias = tuple[int, ...]
"""What the app says in each period: the number of an answer from 1, or 0 for none. It records what is new."""
Transcript: TypeAlias = Hashable
"""All that an entry sends, without its ids: its group, and what it said at each closing, in each version that came."""
Said: TypeAlias = tuple[Hashable, ...]
"""A closing without its id, then its reports as (track, node, symbol)."""

AUTHORITY = Ed25519PrivateKey.from_private_bytes(b"authority of audits, of 32 bytes")
PRIVATE = X25519PrivateKey.from_private_bytes(b"sealing key of audits, 32 bytes.")
_IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
"""Where stores lie, so that an audit does not wait for a disk."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of some entries.

    transcripts: one for each entry, in no order that is known.
    epsilon: the ledger's figure for an entry.
    contradictions: closings whose id came with two contents, or that came once and never again.
    missing: reports and closings that the plan asks for and that never came, and entries of which nothing came.
    """

    transcripts: list[Transcript]
    epsilon: Decimal
    contradictions: int
    missing: int


class Clock:
    """Unix time, as the audit sets it."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Server:
    """Keeps all that is uploaded. While it is `deaf` it keeps it as well, but the device learns nothing of that."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = SealingKey(PRIVATE.public_key().public_bytes_raw(), 0, 2**32).signed_by(AUTHORITY)
        self.deaf = False
        self.uploaded: list[bytes] = []

    def serve(self, request: httpx.Request) -> httpx.Response:
        """The answer to a request, dated by the same clock as the device's."""
        date = {"date": formatdate(self._clock(), usegmt=True)}
        if request.url.path == KEYS:
            return httpx.Response(200, content=encode_key_list([self._key]), headers=date)
        if request.url.path != UPLOADS:
            return httpx.Response(404, headers=date)
        self.uploaded += decode_upload_request(request.content)
        if self.deaf:
            return httpx.Response(503, headers=date)
        return httpx.Response(200, content=canonical.encode({"refused": []}), headers=date)

    def taken(self) -> list[bytes]:
        """The envelopes since the last time, in plaintext."""
        taken = [open_envelope(envelope, PRIVATE) for envelope in self.uploaded]
        self.uploaded = []
        return taken


def transcripts(survey: Survey, states: States, count: int, coins: Coins) -> Heard:
    """What a server sees of a client whose entries live alike, from the survey's start to its end.

    states: what the app says of each entry in each period, whether or not the survey's constraint admits it.
    count: how many entries there are. coins: those that the client draws from; SystemCoins are what it ships with.
    """
    clock = Clock(survey.calendar.start)
    server = Server(clock)
    with (
        TemporaryDirectory(dir=_IN_MEMORY) as folder,
        httpx.Client(transport=httpx.MockTransport(server.serve)) as http,
    ):
        client = Client(
            Path(folder) / "store.db",
            "https://statistics.example",
            [AUTHORITY.public_key().public_bytes_raw()],
            max_epsilon=survey.epsilon,
            http=http,
            clock=clock,
        )
        client._coins = coins
        with client:
            answers = [survey.answers[states[0] - 1]] * count if states[0] else None
            handle = client.join(survey.id, entries=count, answers=answers, signed=survey.signed_by(AUTHORITY))
            half = survey.calendar.periods // 2
            _live(handle, clock, states, range(2, half + 1), count)
            clock.now = due(survey, half)
            server.deaf = True
            client.flush()
            first = server.taken()
            _live(handle, clock, states, range(max(2, half + 1), survey.calendar.periods + 1), count)
            clock.now = due(survey, survey.calendar.periods)
            server.deaf = False
            client.flush()
            return _heard(survey.plan, first, server.taken(), count, handle.ledger().epsilon)


def due(survey: Survey, period: int) -> float:
    """When a period has to be answered at the latest, in Unix seconds."""
    return survey.calendar.time(period) + survey.skew + survey.spread + 1


def _live(handle: SurveyHandle, clock: Clock, states: States, periods: Sequence[int], count: int) -> None:
    survey = handle.survey
    for period in periods:
        clock.now = survey.calendar.time(period) - 1
        old, new = states[period - 2 : period]
        if new == old:
            continue
        for entry in range(count):
            if new:
                handle.record(survey.answers[new - 1], entry)
            else:
                handle.delete(entry)


def _heard(plan: ReleasePlan, first: Sequence[bytes], last: Sequence[bytes], count: int, epsilon: Decimal) -> Heard:
    """Links what an entry sent while no acknowledgement got through with what it sent later, by the closings' ids.

    first, last: plaintexts. Each entry sends one upload at last, which repeats what was not acknowledged.
    """
    told: dict[bytes, Said] = {}
    contradictions, missing = 0, count - len(last)
    for plaintext in first:
        _, said = _said(plan, plaintext)
        contradictions += len(told.keys() & said.keys())
        told |= said
    heard: list[Transcript] = []
    ids: set[bytes] = set()
    for plaintext in last:
        group, said = _said(plan, plaintext)
        missing += _asked(plan, group) - sum(map(len, said.values()))
        contradictions += len(ids & said.keys())
        ids |= said.keys()
        versions = [(each, told.get(id_, each)) for id_, each in said.items()]
        contradictions += sum(now != before for now, before in versions)
        heard.append((group, tuple((now,) if now == before else (now, before) for now, before in versions)))
    return Heard(heard, epsilon, contradictions + len(told.keys() - ids), missing)


def _said(plan: ReleasePlan, plaintext: bytes) -> tuple[int, dict[bytes, Said]]:
    """The group in an upload, and by their ids its closings with their reports, in the order of periods."""
    group, closings, reports = read_upload(plan, plaintext)
    of_period: dict[int, list[Hashable]] = {
        closing.period: [(closing.period, closing.standing, closing.stratum)] for closing in closings
    }
    for report in reports:
        end = plan.tracks[report.track].node(report.node).end
        of_period[end].append((report.track, report.node, report.symbol))
    return group, {closing.id: tuple(of_period[closing.period]) for closing in closings}


@cache
def _asked(plan: ReleasePlan, group: int) -> int:
    """How many closings and reports an entry of a group sends from the survey's start to its end."""
    ends = {node.end for track in plan.tracks for node in track.nodes()}
    return len(ends) + sum(track.reports for track in plan.groups[group].tracks)
