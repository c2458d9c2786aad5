"""The surveys that are audited, the ways to live that are told apart, and what a server sees of entries that live so.

The client is a black box here: a store on disk, `join`, `record` and `flush`, driven as an app drives it, at a fake
server. For some clients the server's answers are lost once in the middle of the survey, so what it had then is sent
again; the copies are known by their ids.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from email.utils import formatdate
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import httpx
from changeling_client import Client, SurveyHandle
from changeling_client.testing import AUTHORITY, ManualClock, read_upload
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SealingKey,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
    open_envelope,
)
from changeling_protocol.wire import KEYS, UPLOADS, decode_upload_request, encode_acknowledgement, encode_key_list
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from .client_world import FAST_FOLDER, PINNED

States: TypeAlias = tuple[int, ...]
"""What the app says in each period: the number of an answer from 1, or 0 for none. It records what is new."""
Said: TypeAlias = tuple[tuple[int, int, int], ...]
"""A closing without its id, as (period, standing, stratum), then its reports, as (track, node, symbol)."""
Transcript: TypeAlias = Hashable
"""All that an entry sends, without its ids: its group, and what it said at each closing, in each version that came."""


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
        authority=PINNED,
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
