"""At most 40 requests a device and day, whatever a server says: every status, refusal, header and exception.

A daily survey, a device that was offline for three days, and then a day of its background reporting on a clock that the
test moves. What a server can say is enumerated, each alone and each in turn; and servers that say any of it at random.
"""

import itertools
import random
from collections import defaultdict
from dataclasses import replace
from email.utils import formatdate
from inspect import isclass

import httpx
import pytest
from changeling_client import Callbacks, Status
from changeling_client.testing import ManualClock, let_report
from changeling_protocol import EarlyEnd, KaryResponse, MutationSpace, Refusal, Track, encode
from changeling_protocol.wire import KEYS, MOST_BODY_BYTES, UPLOADS, decode_upload_request, survey_path
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..protocol.examples import AUTHORITY
from .device import PRIVATE, START, TRUTHFUL, FakeServer, answering, asking, client, raising, signed_key

DAY = 86_400
MOST = 40
ASKED = asking(Track(1, KaryResponse(MutationSpace(3), TRUTHFUL), 0, 30), period=DAY, periods=30, grace=60 * DAY)
STRANGER = Ed25519PrivateKey.from_private_bytes(b"s" * 32)


def quick(device):
    """The device, without what takes most of the time and says nothing of requests."""
    with device.store._lock:
        device.store._connected().execute("PRAGMA synchronous = OFF")
    device.store.erase_past = lambda *_, **__: True
    return device


def lives_a_day(folder, server, *, first=3 * DAY, signed=True, **options):
    """Joined at the start, offline until `first`, then a day of reporting; treated well after it.

    Returns how many requests it made on that day, and the flush four hours later, by when it may ask again.
    """
    clock, times, reply = ManualClock(START), [], server.reply

    def counted(request):
        times.append(clock.now)
        return reply(request)

    server.reply = counted
    with client(folder, server, clock, strict=False, **options) as device:
        handle = quick(device).join(ASKED.id, **({} if signed else {"signed": None}))
        if signed:
            handle.record("tea")
        clock.now = START + first + 60
        let_report(device, clock)
        day = len(times)
        server.reply, server.headers, server.keys = lambda _: None, None, [signed_key(PRIVATE)]
        clock.advance(hours=4)
        return day, device.flush()


EXCEPTIONS = [
    *[kind("secret") for kind in vars(httpx).values() if isclass(kind) and issubclass(kind, httpx.TransportError)],
    *[ConnectionResetError(), BrokenPipeError(), TimeoutError(), PermissionError(), OSError(), KeyError("secret")],
    *[MemoryError(), SystemExit()],
]
NOW = formatdate(START + 3 * DAY + 60, usegmt=True)
HEADERS = [
    *({"retry_after": after} for after in ("0", "1", "-5", "soon", "1.5", NOW, formatdate(0, usegmt=True))),
    *({"date": date} for date in ("", "yesterday", NOW, formatdate(0, usegmt=True), formatdate(2**32, usegmt=True))),
    *({"date": NOW, "age": age} for age in ("1", "86400", "old")),
    {"content_encoding": "gzip", "date": NOW},
    {"location": "/v1/keys", "date": NOW},
]
BODIES = [b"", b"<html>", encode({}), encode({"refused": 1}), encode({"keys": [1]}), bytes(MOST_BODY_BYTES + 1)]


def in_turn(*replies):
    """A server that says each of these in turn, again and again."""
    turns = itertools.cycle(replies)
    return lambda request: next(turns)(request)


ALONE = {
    "nothing listens": raising(httpx.ConnectError("secret")),
    "never answers": raising(httpx.ReadTimeout("secret")),
    "500": answering(500),
    "404": answering(404),
    "413": answering(413),
    "429 without a time": answering(429),
    "503 again in no time": answering(503, retry_after="0"),
    "a page of a hotel": answering(200, b"<html>", date=NOW),
    "an empty 200": answering(200, b"", date=NOW),
    "everything refused in a 200 of no use": answering(200, encode({"refused": [[0, "malformed"]]}), date=NOW),
}
IN_TURN = {
    **{f"statuses from {first}": [answering(each) for each in range(first, min(first + 36, 600))]
       for first in range(200, 600, 36)},
    "every exception": [raising(each) for each in EXCEPTIONS],
    "every header on 200": [answering(200, **each) for each in HEADERS],
    "every header on 503": [answering(503, **each) for each in HEADERS],
    "every body": [answering(200, each, date=NOW) for each in BODIES],
}  # fmt: skip
REPLIES = {**ALONE, **{name: in_turn(*each) for name, each in IN_TURN.items()}}


ANYWHERE = "everywhere", "everywhere, to a device that lacks the survey"
PLACES = [(name, ANYWHERE[0]) for name in REPLIES]
PLACES += [(name, where) for name in REPLIES if name.startswith("every ") for where in (KEYS, UPLOADS)]
PLACES += [(name, ANYWHERE[1]) for name in ALONE]
PLACES += [pytest.param(name, where, marks=pytest.mark.heavy) for name in ALONE for where in (KEYS, UPLOADS)]


@pytest.mark.parametrize(("name", "where"), PLACES)
def test_whatever_is_answered_a_device_asks_at_most_40_times_a_day(tmp_path, name, where):
    """On every path, on the keys alone, and on uploads alone; what waits is kept. Or whatever it answers to a device
    that lacks the survey, and has nothing else to ask."""
    server, signed = FakeServer(ASKED), where != ANYWHERE[1]
    server.reply = lambda request: REPLIES[name](request) if where in (request.url.path, *ANYWHERE) else None
    asked, recovered = lives_a_day(tmp_path, server, signed=signed)
    assert 1 + signed <= asked <= MOST
    assert not signed or (recovered.sent, recovered.waiting) == (4, 0)


def refusing(*reasons):
    """Refuses every envelope, for each of these reasons in turn."""
    turns = itertools.cycle(reasons)

    def reply(request):
        if request.url.path != UPLOADS:
            return None
        refused = [[index, next(turns)] for index, _ in enumerate(decode_upload_request(request.content))]
        return httpx.Response(200, content=encode({"refused": refused}), headers={"date": NOW})

    return reply


REASONS = [*(each.value for each in Refusal), "something new"]
OF_NO_USE = {
    **{reason: {"reply": refusing(reason)} for reason in REASONS},
    "every reason in turn": {"reply": refusing(*REASONS)},
    "no key": {"keys": []},
    "a key that has expired": {"keys": [signed_key(PRIVATE, 0, START - 1)]},
    "a key of the future": {"keys": [signed_key(PRIVATE, 2**32 - 1, 2**32)]},
    "a key that another authority signed": {"keys": [signed_key(PRIVATE, authority=STRANGER)]},
    "rubbish for keys": {"keys": [b"no key", b""]},
    "no time": {"headers": {}},
    "rubbish for a time": {"headers": {"date": "some day"}},
    "a cached time": {"headers": {"date": NOW, "age": "1"}},
}


@pytest.mark.parametrize("name", OF_NO_USE)
def test_a_200_of_no_use_feeds_the_backoff(tmp_path, name):
    """Envelopes refused for any reason; keys that no device may use; and no time, for which it is not asked again and
    again though there is nothing but that to ask, as uploads are taken."""
    server = FakeServer(ASKED)
    vars(server).update(OF_NO_USE[name])
    asked, recovered = lives_a_day(tmp_path, server)
    assert 2 <= asked <= MOST
    assert recovered.waiting == 0


def test_a_clock_that_stays_wrong_does_not_ask_without_end(tmp_path):
    """Ten days ahead of the server's, for good; what is due by the server's clock is sent all the same."""
    server = FakeServer(ASKED)
    server.reply = lambda _: server.headers.update(date=formatdate(server.clock() - 10 * DAY, usegmt=True))
    server.headers = {}
    asked, _ = lives_a_day(tmp_path, server, first=15 * DAY)
    assert 2 <= asked <= MOST


def test_a_witness_that_cannot_be_asked_costs_no_request_and_where_all_is_well_few_are_made(tmp_path):
    """Of a locked keychain, say, nothing can be answered, so nobody is asked for anything. A device that was offline
    for three days asks for the time and the keys, and sends an upload a day."""

    def locked():
        raise OSError

    for name, witness, most in (("locked", Callbacks(locked, lambda _: None), 0), ("well", None, 4)):
        asked, _ = lives_a_day(tmp_path / name, FakeServer(ASKED), witness=witness)
        assert asked <= most


def test_an_early_end_is_learnt_of_and_obeyed(tmp_path):
    """Signed by the authority and past its grace: the device drops what waits, forgets, and asks nothing more."""
    asked = replace(ASKED, grace=DAY)
    server = FakeServer(asked)
    ended = EarlyEnd(asked.id, 1)
    path = survey_path(asked.id.hex()) + "/end"
    said = {"end": ended.signed_by(STRANGER)}
    refuse = refusing("closed")

    def reply(request):
        if request.url.path == path:
            return httpx.Response(200, content=said["end"], headers={"date": formatdate(clock.now, usegmt=True)})
        return refuse(request)

    server.reply, clock = reply, ManualClock(START)
    with client(tmp_path, server, clock) as device:
        handle = device.join(asked.id)
        handle.record("tea")
        assert device.at(START + DAY + 60).flush().waiting == 1
        assert handle.status is Status.JOINED, "a stranger's end is none"
        said["end"] = ended.signed_by(AUTHORITY)
        device.flush()
        assert handle.status is Status.JOINED, "what counts is not dropped before its grace is over"
        flushed = device.at(START + 2 * DAY + 60).flush()
        assert (handle.status, flushed.waiting, handle.answer()) == (Status.ENDED, 0, None)
        assert device.ledger().spent == asked.epsilon
        asked_before = len(server.requests)
        let_report(device, clock)
        assert len(server.requests) == asked_before


@pytest.mark.parametrize("seed", range(4))
def test_a_server_that_says_anything_at_random_gains_nothing(tmp_path, seed):
    """It also takes an upload now and then, and gives good keys, dates and surveys."""
    chance = random.Random(seed)
    says = [*ALONE.values(), *(each for several in IN_TURN.values() for each in several), refusing(*REASONS)]
    server = FakeServer(ASKED)
    server.reply = lambda request: None if chance.random() < 0.3 else chance.choice(says)(request)
    asked, _ = lives_a_day(tmp_path, server)
    assert asked <= MOST


def test_an_app_that_flushes_every_minute_is_held_to_the_budget_too(tmp_path):
    """A flush that somebody asked for passes over our pauses, not over the budget."""
    server, clock = FakeServer(ASKED), ManualClock(START)
    server.reply = answering(503)
    with client(tmp_path, server, clock) as device:
        device.join(ASKED.id)
        for minute in [*range(20), *range(30, 24 * 60, 30)]:  # which is enough to use all of it up
            device.at(START + DAY + 60 + 60 * minute).flush()
    assert len(server.requests) == 12 + 23


def test_processes_whose_clocks_differ_a_little_share_one_budget(tmp_path):
    """Pods of one store, say, of which one is a twentieth of a second behind: what the other has paid then lies so much
    farther ahead of it than the whole budget, and is owed all the same."""
    server, clocks = FakeServer(ASKED), (ManualClock(START), ManualClock(START))
    server.reply = answering(503)
    with client(tmp_path, server, clocks[0]) as one, client(tmp_path, server, clocks[1]) as behind:
        one.join(ASKED.id)
        for hour in range(24):
            now = START + DAY + 60 + (3600 - 0.05) * hour  # as soon as one more may be asked in vain
            for _ in range(12):
                one.at(now).flush()
                behind.at(now - 0.05).flush()
    assert len(server.requests) <= IN_VAIN


IN_VAIN = 36
REFUSED = {
    "a page of a hotel": answering(200, b"<html>", date=NOW),
    "a survey that a stranger signed": answering(200, ASKED.signed_by(STRANGER), date=NOW),
    "a survey that is too costly": lambda _: None,
}


def taking(times, clock, take, reason="unknown-key"):
    """Answers uploads: each of their envelopes is refused for a reason, but for those that `take` names."""

    def reply(request):
        times[request.url.path].append(clock.now)
        if request.url.path != UPLOADS:
            return None
        count = len(decode_upload_request(request.content))
        taken = take(count)
        if taken is None:
            times["in vain"].append(clock.now)
            return httpx.Response(413)
        refused = [[index, reason] for index in range(count) if index not in taken]
        times["in vain"] += [clock.now] * (len(refused) == count)
        date = formatdate(clock.now, usegmt=True)
        return httpx.Response(200, content=encode({"refused": refused}), headers={"date": date})

    return reply


@pytest.mark.parametrize("name", REFUSED)
def test_an_app_that_starts_in_a_loop_asks_for_a_refused_survey_within_the_budget(tmp_path, name):
    """Each start asks to join again what was refused; twenty starts in twenty minutes make twelve requests."""
    server, clock = FakeServer(ASKED), ManualClock(START + 3 * DAY)
    server.reply = REFUSED[name]
    for _ in range(20):
        with client(tmp_path, server, clock, max_epsilon=0.001) as device:
            quick(device).join(ASKED.id, signed=None)
            device.flush()
        clock.now += 60
    assert len(server.requests) == 12


def test_what_is_refused_is_in_vain_also_if_something_is_taken_after_it(tmp_path):
    """Forty entries, and a server that takes one envelope a request, and only every third: flushed every minute for an
    hour, at most 13 uploads come to nothing, which is what the budget holds and regains."""
    server, clock = FakeServer(ASKED), ManualClock(START)
    times = defaultdict(list)
    turn = iter(range(10**6))
    every_third = lambda count: None if count > 1 else {0} if next(turn) % 3 == 2 else set()  # noqa: E731
    server.reply = taking(times, clock, every_third, "malformed")
    with client(tmp_path, server, clock) as device:
        quick(device).join(ASKED.id, entries=40)
        for minute in range(60):
            device.at(START + DAY + 60 + 60 * minute).flush()
    assert 6 < len(times["in vain"]) <= 13


def test_each_upload_that_is_taken_lets_a_server_be_asked_at_most_twice_more(tmp_path):
    """It refuses everything for weeks, and then takes one upload at a time and asks for new keys each time. So a device
    may ask it more than 40 times on that day, but never more than it asks in vain and twice for each upload taken."""
    server, clock, taken = FakeServer(ASKED), ManualClock(START), []
    times = defaultdict(list)
    server.reply = taking(times, clock, lambda _: set())
    with client(tmp_path, server, clock) as device:
        quick(device).join(ASKED.id)
        for day in range(1, 29):
            device.at(START + day * DAY + 60).flush()
        assert device.flush().waiting == 28

        def take(_count):
            taken.append(clock.now)
            return {0}

        server.reply = taking(times, clock, take)
        begun = clock.now
        let_report(device, clock)
    asked = sum(begun < each <= begun + DAY for path in (UPLOADS, "/v1/keys") for each in times[path])
    assert asked <= IN_VAIN + 2 * len(taken)
    assert asked > MOST
