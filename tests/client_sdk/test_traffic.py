"""What leaves a device, and when, hangs neither on what is recorded nor, once answered, on how a server treats it."""

import random
import tempfile
from contextlib import suppress
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest
from changeling_client import EnrolmentOver
from changeling_client.device import Reporter
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
    key_id,
    open_envelope,
    symbol_bytes,
)
from changeling_protocol.wire import KEYS, UPLOADS, encode_key_list
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ..protocol.examples import joint_plan, mixed, survey
from .device import GONE, LATE, PLAIN, PRIVATE, START, Clock, Failing, FakeServer, client, signed_key
from .test_answering import PUBLIC

YEAR = 365 * 86_400
TIMED = PLAIN.asking(grace=200, constraint=TimeBounded(130), epsilon_micro=10**9)
"""Its constraint asks for the time, so that some records are pending; its grace is short, so that some are too late."""
RELAYED = TIMED.asking(question="And through a relay?", relay="https://relay.example")
MANY = replace(survey(mixed(3, 8), grace=85), breakdowns=PUBLIC, stratum_changes=2)
JOINT = survey(joint_plan(3, 8), grace=200, calendar=Calendar(START + 30, 60, 8))
HISTORY = survey(
    ReleasePlan((Group.of_history(History.of(Odds(5, 2), range(2, 9, 2), AtMost(3), MANY.calendar, False), 3),)),
    grace=85,
)
SURVEYS = {asked.id: asked for asked in (TIMED, RELAYED, MANY, JOINT, HISTORY)}
ANOTHER = X25519PrivateKey.from_private_bytes(b"o" * 32)
"""Of a sealing key that is as good as the server's own."""
MODES = ["well", "well", "well", "gone", "down", "later", "refuses", "keys", "mute"]


class Watched(FakeServer):
    """Writes down all that it sees of each request, and treats the device as its mode says."""

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
                other = signed_key(ANOTHER, begins=1)
                return httpx.Response(200, content=encode_key_list([other, *self.keys]), headers=self._said())
            case "mute" if uploads:
                return httpx.Response(200, content=b"", headers=self._said())
        return None

    def unsealed(self):
        """Of every envelope its head, length, group, span and closings, and which nodes it reports."""
        keys = {key_id(each.public_key().public_bytes_raw()): each for each in (PRIVATE, ANOTHER)}
        for envelope in self.envelopes:
            head = head_of(envelope)
            read = decode_upload(open_envelope(envelope, keys[head.key]))
            widths = [
                symbol_bytes(track.randomizer) for track in self.surveys[head.survey].plan.groups[read.group].tracks
            ]
            reported = [
                [any(column[at : at + width]) for at in range(0, len(column), width)]
                for column, width in zip(read.symbols, widths, strict=True)
            ]
            yield head, len(envelope), read.group, read.span, read.closings, reported


class PurposeCoins:
    """What is drawn at enrolment, ids and delays come from a stream of their own, which symbols take nothing from."""

    def __init__(self) -> None:
        self._public, self._symbols = random.Random(1), random.Random(2)
        self.enrols = False

    def below(self, n: int) -> int:
        public = self.enrols or n in (1 << 128, 1000 * MANY.spread)
        return (self._public if public else self._symbols).randrange(n)


def lived(script, recorder=None, often=0.0):
    """What is seen of an app that goes through a script and, after each step, often records something; and what its
    flushes tell."""
    server, clock, coins, handles, flushed = Watched(*SURVEYS.values()), Clock(), PurposeCoins(), {}, []
    with tempfile.TemporaryDirectory() as folder:

        def start():
            return client(Path(folder), server, clock, coins, strict=False)

        def join(asked, **options):
            coins.enrols = True
            with suppress(EnrolmentOver):
                handles[asked.id] = device.join(asked.id, entries=2, **options)
            coins.enrols = False

        device = start()
        for now, what, detail in script:
            clock.now = now
            match what:
                case "join":
                    stratum = {"platform": "mac", "channel": "beta"} if detail.breakdowns else {}
                    join(detail, stratum=stratum)
                case "ask":
                    join(detail, signed=None)
                case "tell" if MANY.id in handles:
                    with suppress(ValueError):  # told more often than the survey allows
                        handles[MANY.id].stratum(detail, entry=1)
                case "restart":
                    device.close()
                    device = start()
                    for id_ in handles:
                        join(SURVEYS[id_], signed=None)
                case "flush":
                    server.mode, reads = detail
                    server.headers = {"date": formatdate(reads, usegmt=True)} if reads else {}
                    flushed.append(device.flush())
            for id_, handle in handles.items():
                for entry in range(2):
                    if recorder is not None and recorder.random() < often:
                        clock.now = now + recorder.random()
                        answer = recorder.choice([*SURVEYS[id_].answers, None, "cocoa"])
                        handle.retract(entry) if answer is None else handle.record(answer, entry)
        device.close()
    return server.seen, list(server.unsealed()), flushed


def script_of(seed: int) -> list[tuple]:
    """Offline spells, a server that fails in every way, restarts, strata told at any moment, a clock that leaps."""
    chance = random.Random(seed)
    now = START + chance.choice([1, 61, 130])
    first, *others = (TIMED, RELAYED) if seed % 2 else (MANY, JOINT, HISTORY)
    script: list[tuple] = [(now, "ask" if seed % 2 else "join", first)]
    joins = chance.randrange(6)
    for step in range(chance.randrange(6, 16)):
        now += chance.choice([5, 20, 40, 60, 180]) if chance.random() < 0.85 else -chance.choice([0.3, 3.0, 30.0, 90.0])
        if step == joins:
            script += [(now, "ask" if seed % 2 else "join", each) for each in others]
        kind = chance.random()
        if kind < 0.15:
            told = {"platform": chance.choice(["linux", "mac"]), "channel": chance.choice(["release", "beta"])}
            script.append((now, "tell", told))
        elif kind < 0.25:
            script.append((now, "restart", None))
        else:
            leap = YEAR * chance.choice([0] * 20 + [1, -1])
            script.append((now + leap, "flush", (chance.choice(MODES), chance.choice([None, now, now + 45, now - 45]))))
    ends = max(now, LATE)
    return [*script, *((ends + 70 * later, "flush", ("well", None)) for later in range(3))]


def stepping_back(by: float) -> list[tuple]:
    """A clock that steps back after a record, between two flushes; then a second survey is joined."""
    moments = [65, 65 - by, 122 - by, 122 - by]
    steps = [(START + each, "flush", ("well", START + each)) for each in moments]
    later = START + moments[-1]
    after = [(later + 70 * each, "flush", ("well", later + 70 * each)) for each in range(1, 4)]
    return [(START + 1, "ask", TIMED), *steps, (later, "ask", RELAYED), *after]


SCRIPTS = {
    "the clock steps back by a moment": stepping_back(0.005),
    "the clock steps back across the end of a period": stepping_back(5.2),
    **{f"{seed}": script_of(seed) for seed in (*range(16), 28, 36, 86)},
}
QUICK = [*[*SCRIPTS][:6], "28", "86"]
"""With a lone closing that is past grace while no time is told, and a record of a clock that was ahead since."""


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.heavy] * (each not in QUICK)) for each in SCRIPTS]
)
def test_all_but_the_symbols_is_the_same_whatever_is_recorded(name):
    """Requests, their times, headers and sizes, what flushes tell, ids, standings, strata, spans, and which nodes are
    reported; of two entries that answer, change, retract and answer wrongly, or never do, through failures, restarts,
    and a clock that leaps, with records that are pending and reports that are too late."""
    never = lived(SCRIPTS[name])
    assert len(never[0]) > 3
    for often in (1, 0.4):
        assert lived(SCRIPTS[name], random.Random(100 * len(name) + often), often) == never


def uploaded(steps):
    """The periods and the length of each upload of a device that is treated so, and at last well. Started again before
    each flush, it knows no more than what is on its disk."""
    server, clock, coins = Watched(PLAIN), Clock(START + 1), PurposeCoins()
    with tempfile.TemporaryDirectory() as folder:
        for server.mode, wait in (*steps, ("well", 200), ("well", 86_400)):
            with client(Path(folder), server, clock, coins) as device:
                device.join(PLAIN.id)
                flushed = device.at(clock.now + wait).flush()
    assert flushed.waiting == 0
    return {(span, length) for _, length, _, span, *_ in server.unsealed()}


@pytest.mark.heavy
@settings(max_examples=10)
@example([("gone", 150), ("gone", 61), ("later", 61), ("gone", 20)])
@given(st.lists(st.tuples(st.sampled_from(MODES), st.sampled_from([1, 20, 61, 150])), min_size=4, max_size=9))
def test_a_server_cannot_make_the_next_answers_of_one_device_differ(steps):
    """Refusals, silence, 503, 429 with Retry-After, another valid key, acknowledgements in part: what is answered next,
    in which uploads and how long they are stays the same as of a device that is treated well. A server that tells no
    time can only have several closings drawn later: into the very uploads that they would have been in."""
    assert uploaded(steps) == uploaded([("well", wait) for _, wait in steps])


def test_what_a_server_refused_is_not_packed_with_what_is_answered_later(joined):
    """Sent again, after what was never refused, it is an envelope of its own, of the same size as at first."""
    _, device, server, _ = joined(PLAIN, server=Watched(PLAIN))
    for server.mode, period in (("refuses", 1), ("down", 2), ("well", 3)):
        device.at(START + 60 * period + 20).flush()
    sizes = [len(envelope) for envelope in server.envelopes]
    first, second, third = sizes[0], sizes[1], sizes[4]
    assert sizes == [first, second, first, second, third, first]


def test_trouble_does_not_keep_the_reporter_from_answering_in_time(joined):
    """However long it waits to try again, it does not sleep beyond the next closing: its answer would be packed with
    the one after it, and a server could bring that about."""
    _, device, server, clock = joined(PLAIN, server=Watched(PLAIN))

    def until_due():
        return device._device.next_due_ms() / 1000 - clock.now

    assert Reporter(device._device).step() == pytest.approx(until_due(), abs=0.01)
    clock.now, server.mode = START + 80, "down"
    reporter, waits = Reporter(device._device), []
    while clock.now < START + 400:
        waits.append(reporter.step())
        assert waits[-1] <= max(until_due(), 1) + 0.01
        clock.now += waits[-1]
    assert len(server.seen) <= 13, "and it asks no more often for that"


def test_what_waits_for_a_server_to_tell_the_time_does_not_make_the_reporter_ask_without_pause(joined):
    """A closing that may be past grace stays due until the server is heard; a server that is down is left in peace."""
    asked = replace(PLAIN, grace=90)
    _, device, server, clock = joined(asked, server=Watched(asked))
    server.mode, clock.now = "gone", START + 400
    reporter, waits = Reporter(device._device), []
    for _ in range(8):
        waits.append(reporter.step())
        assert device._device.next_due_ms() < 1000 * clock.now
        clock.now += waits[-1]
    assert len(server.seen) <= 8
    assert waits[0] >= 5
    assert waits == sorted(waits)
    assert waits[-1] > 500


def test_a_witness_that_fails_on_and_on_is_asked_less_and_less_often(joined, tmp_path):
    """Each wait is twice the one before, and no longer than a device sleeps; once it answers all is as before."""
    witness = Failing(tmp_path / "witness")
    _, device, _, clock = joined(replace(PLAIN, grace=10**6), witness=witness)
    clock.now, witness.error = START + 600, GONE
    reporter, waits = Reporter(device._device), []
    for _ in range(9):
        waits.append(reporter.step())
        clock.now += waits[-1]
    assert waits == pytest.approx([5, 10, 20, 40, 80, 160, 320, 640, 900], rel=0.01)
    witness.error = None
    assert reporter.step() == pytest.approx(900, rel=0.01)


def test_who_waits_for_another_process_that_reports_goes_on_soon_after_it_has_ended(joined):
    """However often it found the other at work: that is no trouble, and asks nobody anything."""
    _, device, server, clock = joined(PLAIN)
    clock.now = START + 80
    reporter, store = Reporter(device._device), device._device.store
    held = store.reporting._take()
    assert [reporter.step() for _ in range(14)] == [min(5.0 * number, 60.0) for number in range(1, 15)]
    assert not server.reports()
    store.reporting._give(held)
    reporter.step()
    assert server.reports()


def test_what_falls_due_while_others_are_answered_is_answered_at_once(joined):
    """The next entry of many waits for no server and no witness: the next flush is a second later, not twice as late
    as the one before."""
    _, device, _, clock = joined(PLAIN, entries=40)
    reporter, waits = Reporter(device._device), []
    clock.now, answering = START + 70, device._device.flush

    def slow(*args, **options):
        flushed = answering(*args, **options)
        clock.now += 1.5
        return flushed

    device._device.flush = slow
    while not waits or waits[-1] < 30:  # until the next closing
        waits.append(reporter.step())
        clock.now += waits[-1]
    assert waits[:-1] == [1.0] * len(waits[1:])
    assert len(waits) > 2
