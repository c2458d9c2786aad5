"""Two apps that differ in what they record, and in nothing else: whoever reads all that they send sees the same."""

import random
from contextlib import suppress
from dataclasses import replace
from email.utils import formatdate

import httpx
import pytest
from changeling_client import EnrolmentOver
from changeling_protocol import Calendar, decode_upload, head_of, open_envelope, symbol_bytes

from ..protocol.examples import hierarchical, joint_plan, mixed, survey
from .device import LATE, PRIVATE, START, TRUTHFUL, Clock, FakeServer, client
from .test_standing import PUBLIC

_ID = 1 << 128
_MANY = replace(survey(mixed(3, 8), grace=85), breakdowns=PUBLIC, stratum_changes=2)
_JOINT = survey(joint_plan(3, 8), grace=200, calendar=Calendar(START + 30, 60, 8))
_TOGETHER = _MANY, _JOINT
FIRST = survey(hierarchical(3, 8, (1,), TRUTHFUL), grace=10**6)
SECOND = survey(hierarchical(3, 8, (1, 2), TRUTHFUL), grace=10**6)


class PurposeCoins:
    """What is drawn at enrolment, ids and delays come from a stream of their own, which symbols take nothing from."""

    def __init__(self) -> None:
        self._public, self._symbols = random.Random(1), random.Random(2)
        self.enrols = False

    def below(self, n: int) -> int:
        public = self.enrols or n in (_ID, 1000 * _MANY.spread)
        return (self._public if public else self._symbols).randrange(n)


def seen_by_the_server(server: FakeServer) -> list[object]:
    """Each request: its method, path, headers and size, and every envelope's plaintext without its symbols."""
    seen: list[object] = [
        (request.method, request.url.path, sorted(request.headers.items()), len(request.content))
        for request in server.requests
    ]
    for envelope in server.envelopes:
        plaintext = open_envelope(envelope, PRIVATE)
        read = decode_upload(plaintext)
        written = [_written(server, envelope, read.group, *column) for column in enumerate(read.symbols)]
        seen.append((head_of(envelope), len(plaintext), read.group, read.span, read.closings, written))
    return seen


def _written(server: FakeServer, envelope: bytes, group: int, place: int, column: bytes) -> list[bool]:
    """Which nodes of a track are reported."""
    plan = server.surveys[head_of(envelope).survey].plan
    width = symbol_bytes(plan.groups[group].tracks[place].randomizer)
    return [any(column[at : at + width]) for at in range(0, len(column), width)]


def lived(folder, script: list[tuple], recorder: random.Random | None) -> list[object]:
    """What the server sees of an app that goes through a script and, between its steps, records what it is told to."""
    folder.mkdir()
    server, clock, coins = FakeServer(*_TOGETHER), Clock(), PurposeCoins()
    device = client(folder, server, clock, coins)
    handles = {}
    for now, what, detail in script:
        clock.now = now
        match what:
            case "join":
                stratum = {"platform": "mac", "channel": "beta"} if detail.breakdowns else {}
                coins.enrols, server.reply = True, up
                with suppress(EnrolmentOver):
                    handles[detail.id] = device.join(detail.id, entries=2, stratum=stratum)
                coins.enrols = False
            case "tell":
                with suppress(ValueError):  # told more often than the survey allows
                    handles[_MANY.id].stratum(detail, entry=1)
            case "restart":
                device.close()
                device = client(folder, server, clock, coins)
                handles = {id_: device.join(id_, entries=2) for id_ in handles}
            case "flush":
                server.reply, reads = detail
                server.headers = {"date": formatdate(reads, usegmt=True)} if reads else {}
                device.flush()
        if recorder is not None:
            for handle in handles.values():
                for entry in range(2):
                    if recorder.random() < 0.4:
                        clock.now = now + recorder.random()
                        answer = recorder.choice([*handle.survey.answers, None])
                        handle.retract(entry) if answer is None else handle.record(answer, entry)
    device.close()
    return seen_by_the_server(server)


def up(_: httpx.Request) -> None:
    """The server answers."""


def down(request: httpx.Request) -> httpx.Response | None:
    return httpx.Response(503) if request.method == "POST" else None


def gone(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("gone")


def script_of(seed: int) -> list[tuple]:
    """Offline spells, a server that fails, restarts, strata told at all moments, and a clock that is set back."""
    chance = random.Random(seed)
    script: list[tuple] = [(START + chance.choice([0, 61, 130]), "join", _MANY)]
    now = script[0][0]
    joins = chance.randrange(6)
    for step in range(chance.randrange(6, 16)):
        now += chance.choice([5, 20, 40, 60, 180]) if chance.random() < 0.85 else -chance.choice([0.3, 3.0, 30.0, 90.0])
        if step == joins:
            script.append((now, "join", _JOINT))
        kind = chance.random()
        if kind < 0.15:
            told = {"platform": chance.choice(["linux", "mac"]), "channel": chance.choice(["release", "beta"])}
            script.append((now, "tell", told))
        elif kind < 0.25:
            script.append((now, "restart", None))
        else:
            reads = chance.choice([None, now, now, now + 45, now - 45])
            script.append((now, "flush", (chance.choice([up, up, up, down, gone]), reads)))
    return [*script, (max(now, LATE), "flush", (up, None)), (max(now, LATE) + 1, "flush", (up, None))]


@pytest.mark.parametrize("seed", range(12))
def test_all_but_the_symbols_is_the_same_whatever_is_recorded(tmp_path, seed):
    """Requests, their sizes, ids, standings, strata, spans, and which nodes are reported; by two surveys with two
    entries each, through failures, restarts and clocks that are set back."""
    script = script_of(seed)
    never = lived(tmp_path / "never", script, None)
    assert len(never) > 3
    for life in range(2):
        assert lived(tmp_path / f"{life}", script, random.Random(100 * seed + life)) == never


def first_closing_of_the_second(folder, *, records: bool) -> int:
    """Where the first upload begins of a survey that is joined a fifth of a second before the time of a record."""
    folder.mkdir()
    server, clock = FakeServer(FIRST, SECOND), Clock()
    with client(folder, server, clock) as device:
        handle = device.join(FIRST.id)
        clock.now = START + 60.1
        if records:
            handle.record("tea")
        clock.now = START + 59.9
        device.join(SECOND.id)
        clock.now = LATE
        device.flush()
    ids = [head_of(envelope).survey for envelope in server.envelopes]
    spans = [decode_upload(open_envelope(envelope, PRIVATE)).span for envelope in server.envelopes]
    return next(span.start for id_, span in zip(ids, spans, strict=True) if id_ == SECOND.id)


def test_when_an_entry_enrols_does_not_hang_on_a_record_in_another_survey(tmp_path):
    """Though the clock was set back between the two, across the end of a period."""
    recorded = first_closing_of_the_second(tmp_path / "a", records=True)
    assert recorded == first_closing_of_the_second(tmp_path / "b", records=False)
