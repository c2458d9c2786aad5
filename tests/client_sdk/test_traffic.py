"""What leaves a device, and when, hangs neither on what is recorded nor, once answered, on how a server treats it."""

import tempfile
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from changeling_client import outbox
from changeling_client.device import RETRY_SECONDS, Reporter
from changeling_protocol import TimeBounded, encode
from changeling_protocol.wire import KEYS, UPLOADS, encode_key_list
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.coins import SeededCoins

from .device import PLAIN, START, Clock, FakeServer, client, signed_key

YEAR = 365 * 86_400
RELAY = "https://relay.example"
FIRST = PLAIN.asking(grace=200, constraint=TimeBounded(130), epsilon_micro=10**9)
"""Its constraint asks for the time, so that some records are pending; its grace is short, so that some are too late."""
OTHER = FIRST.asking(question="And through a relay?", relay=RELAY)


class Apart:
    """Coins of which those below one number never hang on those below another, such as delays on symbols."""

    def __init__(self) -> None:
        self._coins: dict[int, SeededCoins] = {}

    def below(self, n: int) -> int:
        return self._coins.setdefault(n, SeededCoins(n)).below(n)


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
    server, clock, coins, flushed = Watched(first, second), Clock(START + 1), Apart(), []
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
            clock.now += 70
            flushed.append(device.flush())
            for handle in handles:
                does(handle, 7)
        device.close()
    return server.seen, flushed


@pytest.mark.heavy
@pytest.mark.parametrize("relayed", [False, True], ids=["origin", "relay"])
@settings(max_examples=15)
@given(steps=STEPS, leaps=LEAPS)
def test_what_is_recorded_steers_no_request(relayed, steps, leaps):
    """By the same clock, however it leaps, with the same failures, starts and coins for delays: whoever never answers,
    changes, retracts, answers late or wrongly sends the same requests, headers and sizes at the same times, enrols in
    a second survey as they do, and each flush tells the same. Some of the records are pending meanwhile."""
    reference = lived(DOES["never"], steps, leaps, relayed)
    assert reference[0]
    for name in ("changes", "retracts", "late", "wrong"):
        assert lived(DOES[name], steps, leaps, relayed) == reference


def test_a_clock_that_stepped_back_by_a_moment_makes_no_request_after_a_record():
    """Five milliseconds are enough to doubt the time, if they were seen; a record is not what has seen it."""
    steps = [(64, "well", True, False), (0, "well", True, False), (31, "well", True, False)]
    leaps = [(1, -0.005)]
    reference = lived(DOES["never"], steps, leaps, relayed=False)
    assert lived(DOES["changes"], steps, leaps, relayed=False) == reference


def answered(modes, waits):
    """The batches that a device answers under this treatment, and once it is treated well at the end: of which entry
    and periods, and how long in bytes. Restarted before each flush, it knows no more than what is on its disk."""
    asked = replace(PLAIN, grace=10**6)
    server, clock, coins, batches = Watched(asked), Clock(START + 1), Apart(), []

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
                clock.now += wait
                device.flush()
    return batches


TREATMENTS = st.lists(st.tuples(st.sampled_from(MODES), st.sampled_from([1, 20, 61, 150])), min_size=4, max_size=9)


@pytest.mark.heavy
@settings(max_examples=25)
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
            clock.now = START + 60 * period + 20
            device.flush()
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
