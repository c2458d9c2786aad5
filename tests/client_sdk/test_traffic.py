"""What leaves a device, and when, hangs neither on what is recorded nor, once answered, on how a server treats it."""

import random
import tempfile
from contextlib import suppress
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest
from changeling_client import EnrolmentOver, outbox
from changeling_client.device import RETRY_SECONDS, Reporter
from changeling_client.testing.clients import ApartCoins
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    History,
    Odds,
    ReleasePlan,
    TimeBounded,
    decode_upload,
    encode,
    head_of,
    open_envelope,
    symbol_bytes,
)
from changeling_protocol.wire import KEYS, UPLOADS, encode_key_list
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ..protocol.examples import joint_plan, mixed, survey
from .device import LATE, PLAIN, PRIVATE, START, Clock, FakeServer, client, signed_key
from .test_answering import PUBLIC

YEAR = 365 * 86_400
RELAY = "https://relay.example"
FIRST = PLAIN.asking(grace=200, constraint=TimeBounded(130), epsilon_micro=10**9)
"""Its constraint asks for the time, so that some records are pending; its grace is short, so that some are too late."""
OTHER = FIRST.asking(question="And through a relay?", relay=RELAY)


class Watched(FakeServer):
    """Writes down all that it sees of each request, and treats the device as it is told to."""

    def __init__(self, *surveys):
        super().__init__(*surveys)
        self.seen, self.mode = [], "well"
        self.reply = self._treat

    def _serve(self, request):
        headers = tuple(sorted(request.headers.raw))
        self.seen.append((self.clock(), request.method, str(request.url), headers, len(request.content)))
        return super()._serve(request)

    def _treat(self, request):
        uploads = request.url.path == UPLOADS
        match self.mode:
            case "gone":
                raise httpx.ConnectError("gone")
            case "down":
                return httpx.Response(503, headers=self._said())
            case "later":
                return httpx.Response(429, headers={**self._said(), "retry-after": "150"})
            case "refuses" if uploads:
                refused = [[0, "malformed"], [1, "unknown-key"]][: 1 + (len(self.bodies) > 3)]
                return httpx.Response(200, content=encode({"refused": refused[:1]}), headers=self._said())
            case "keys" if request.url.path == KEYS:
                other = signed_key(X25519PrivateKey.from_private_bytes(b"o" * 32), begins=1)
                return httpx.Response(200, content=encode_key_list([other, *self.keys]), headers=self._said())
            case "mute" if uploads:
                return httpx.Response(200, content=b"", headers=self._said())
        return None


MODES = ["well", "well", "gone", "down", "later", "refuses", "keys", "mute"]
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 7, 31, 64, 150]), st.sampled_from(MODES), st.booleans(), st.booleans()), max_size=9
)
"""Seconds to wait, how the server is, whether to flush, and whether the app starts again."""
LEAPS = st.lists(st.tuples(st.integers(0, 8), st.sampled_from([-0.005, -3_600, YEAR, -YEAR, 0.5])), max_size=2)
"""At which step the clock leaps, by how many seconds."""
DOES = {
    "never": lambda *_: None,
    "changes": lambda handle, step: handle.record(FIRST.answers[step % 3]),
    "retracts": lambda handle, step: handle.record("tea") if step % 2 else handle.retract(),
    "late": lambda handle, step: handle.record("coffee") if step > 5 else None,
    "wrong": lambda handle, _: handle.record("cocoa"),
}


def lived(does, steps, leaps, relayed):
    """All that is seen of a device that lives so, and what its flushes return."""
    first, second = (OTHER, FIRST) if relayed else (FIRST, OTHER)
    server, clock, coins, flushed = Watched(first, second), Clock(START + 1), ApartCoins(), []
    leap = dict(leaps)
    with tempfile.TemporaryDirectory() as folder:

        def start():
            return client(Path(folder), server, clock, coins, strict=False)

        device = start()
        handles = [device.join(first.id, signed=None)]
        for step, (wait, server.mode, flushes, restarts) in enumerate(steps):
            clock.now += wait + leap.get(step, 0)
            for handle in handles:
                does(handle, step)
            if flushes:
                flushed.append(device.flush())
            if step == 3:
                handles.append(device.join(second.id, signed=None))
            clock.now += 0.003
            for handle in handles:
                does(handle, step + 1)
            if restarts:
                device.close()
                device = start()
                handles = [device.join(each.id, signed=None) for each in (first, second)[: len(handles)]]
        server.mode = "well"
        for _ in range(3):
            flushed.append(device.at(clock.now + 70).flush())
            for handle in handles:
                does(handle, 7)
        device.close()
    return server.seen, flushed


@pytest.mark.heavy
@pytest.mark.parametrize("relayed", [False, True], ids=["origin", "relay"])
@settings(max_examples=10)
@given(steps=STEPS, leaps=LEAPS)
def test_what_is_recorded_steers_no_request(relayed, steps, leaps):
    """By the same clock, however it leaps, with the same failures, starts and coins for delays: whoever never answers,
    changes, retracts, answers late or wrongly sends the same requests, headers and sizes at the same times, enrols in
    a second survey as they do, and each flush tells the same. Some of the records are pending meanwhile."""
    reference = lived(DOES["never"], steps, leaps, relayed)
    assert reference[0]
    for name in ("changes", "retracts", "late", "wrong"):
        assert lived(DOES[name], steps, leaps, relayed) == reference


@pytest.mark.parametrize("leap", [(1, -0.005), (3, -3.2)], ids=["by a moment", "across the end of a period"])
def test_a_clock_that_stepped_back_after_a_record_shows_in_nothing(leap):
    """A few milliseconds are enough to doubt the time, and a few seconds to enrol in a period earlier in a second
    survey that is joined then, if they were seen; a record is not what has seen it."""
    steps = [(64, "well", True, False), (0, "well", True, False), (57, "well", True, False), (0, "well", True, False)]
    reference = lived(DOES["never"], steps, [leap], relayed=False)
    assert lived(DOES["changes"], steps, [leap], relayed=False) == reference


def answered(modes, waits):
    """The batches that a device answers under this treatment, and once it is treated well at the end: of which entry
    and periods, and how long in bytes. Restarted before each flush, it knows no more than what is on its disk."""
    asked = replace(PLAIN, grace=10**6)
    server, clock, coins, batches = Watched(asked), Clock(START + 1), ApartCoins(), []

    def put(db, wrapping, survey, answered):
        kept(db, wrapping, survey, answered)
        for entry, answers in answered:
            periods = tuple(answer.closing.period for answer in answers)
            (upload,) = (
                each for each in outbox.uploads(db, wrapping, survey, (entry.number,) * 2) if each.periods == periods
            )
            batches.append((entry.number, periods, len(upload.plaintext)))

    kept = outbox.put
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(outbox, "put", put)
        for server.mode, wait in zip((*modes, "well"), (*waits, 200), strict=True):
            with client(Path(folder), server, clock, coins) as device:
                device.join(asked.id)
                device.at(clock.now + wait).flush()
    return batches


TREATMENTS = st.lists(st.tuples(st.sampled_from(MODES), st.sampled_from([1, 20, 61, 150])), min_size=4, max_size=9)


@pytest.mark.heavy
@settings(max_examples=15)
@example([("gone", 150), ("gone", 61), ("later", 61), ("gone", 20)])
@given(TREATMENTS)
def test_a_server_cannot_make_the_next_answers_of_one_device_differ(steps):
    """Refusals, silence, 503, 429 with Retry-After, another valid key, acknowledgements in part: what is answered next,
    in which uploads and how long they are stays the same as of a device that is treated well. A server that tells no
    time can only have several closings drawn later: into the very uploads that they would have been in."""
    waits = [wait for _, wait in steps]
    assert answered([mode for mode, _ in steps], waits) == answered(["well"] * len(steps), waits)


def test_what_a_server_refused_is_not_packed_with_what_is_answered_later(tmp_path):
    """Sent again, after what was never refused, it is an envelope of its own, of the same size as at first."""
    server, clock = Watched(PLAIN), Clock(START + 1)
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        for server.mode, period in (("refuses", 1), ("down", 2), ("well", 3)):
            device.at(START + 60 * period + 20).flush()
    sizes = [len(envelope) for envelope in server.envelopes]
    first, second, third = sizes[0], sizes[1], sizes[4]
    assert sizes == [first, second, first, second, third, first]


def test_trouble_does_not_keep_the_reporter_from_answering_in_time(tmp_path):
    """However long it waits to try again, it does not sleep beyond the next closing: its answer would be packed with
    the one after it, and a server could bring that about."""
    server, clock = Watched(PLAIN), Clock(START + 1)
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        assert Reporter(device._device).step() == pytest.approx(
            device._device.next_due_ms() / 1000 - clock.now, abs=0.01
        )
        clock.now, server.mode = START + 80, "down"
        reporter, waits = Reporter(device._device), []
        while clock.now < START + 400:
            waits.append(reporter.step())
            assert waits[-1] <= max(device._device.next_due_ms() / 1000 - clock.now, 1) + 0.01
            clock.now += waits[-1]
        assert len(server.seen) <= 13, "and it asks no more often for that"


def test_what_waits_for_a_server_to_tell_the_time_does_not_make_the_reporter_ask_without_pause(tmp_path):
    """A closing that may be past grace stays due until the server is heard; a server that is down is left in peace."""
    asked = replace(PLAIN, grace=90)
    server, clock = Watched(asked), Clock(START + 1)
    with client(tmp_path, server, clock) as device:
        device.join(asked.id)
        server.mode, clock.now = "gone", START + 400
        reporter, waits = Reporter(device._device), []
        for _ in range(8):
            waits.append(reporter.step())
            assert device._device.next_due_ms() < 1000 * clock.now
        assert waits[0] >= RETRY_SECONDS
        assert waits == sorted(waits)
        assert waits[-1] > 100 * RETRY_SECONDS


_ID = 1 << 128
_MANY = replace(survey(mixed(3, 8), grace=85), breakdowns=PUBLIC, stratum_changes=2)
_JOINT = survey(joint_plan(3, 8), grace=200, calendar=Calendar(START + 30, 60, 8))
_HISTORY = survey(
    ReleasePlan((Group.of_history(History.of(Odds(5, 2), range(2, 9, 2), AtMost(3), _MANY.calendar, False), 3),)),
    grace=85,
)
_TOGETHER = _MANY, _JOINT, _HISTORY


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


def lives_by(folder, script: list[tuple], recorder: random.Random | None) -> list[object]:
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
            script += [(now, "join", each) for each in (_JOINT, _HISTORY)]
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
    never = lives_by(tmp_path / "never", script, None)
    assert len(never) > 3
    for life in range(2):
        assert lives_by(tmp_path / f"{life}", script, random.Random(100 * seed + life)) == never
