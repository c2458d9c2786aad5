"""Servers that try to be asked more often than the budget allows, and apps that start again and again."""

from collections import Counter
from email.utils import formatdate

import httpx
import pytest
from changeling_client.testing import ManualClock, let_report
from changeling_protocol import encode
from changeling_protocol.wire import UPLOADS, decode_upload_request

from .device import START, FakeServer, client
from .test_retry_budget import ASKED, DAY, MOST, NOW, STRANGER, answering

IN_VAIN = 36
REFUSED = {
    "a page of a hotel": answering(200, b"<html>", date=NOW),
    "a survey that a stranger signed": answering(200, ASKED.signed_by(STRANGER), date=NOW),
    "a survey that is too costly": lambda _: None,
}


def quick(device):
    """The device, without what takes most of the time and says nothing of requests."""
    with device.store._lock:
        device.store._connected().execute("PRAGMA synchronous = OFF")
    device.store.erase_past = lambda *_, **__: True
    return device


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
    times = {path: [] for path in (UPLOADS, "/v1/keys", "in vain")}
    turn = iter(range(10**6))
    every_third = lambda count: None if count > 1 else {0} if next(turn) % 3 == 2 else set()  # noqa: E731
    server.reply = taking(times, clock, every_third, "malformed")
    with client(tmp_path, server, clock) as device:
        quick(device).join(ASKED.id, entries=40)
        for minute in range(60):
            clock.now = START + DAY + 60 + 60 * minute
            device.flush()
    assert 6 < len(times["in vain"]) <= 13


def test_each_upload_that_is_taken_lets_a_server_be_asked_at_most_twice_more(tmp_path):
    """It refuses everything for weeks, and then takes one upload at a time and asks for new keys each time. So a device
    may ask it more than 40 times on that day, but never more than it asks in vain and twice for each upload taken."""
    server, clock, taken = FakeServer(ASKED), ManualClock(START), []
    times = {path: [] for path in (UPLOADS, "/v1/keys", "in vain")}
    server.reply = taking(times, clock, lambda _: set())
    with client(tmp_path, server, clock) as device:
        quick(device).join(ASKED.id)
        for day in range(1, 29):
            clock.now = START + day * DAY + 60
            device.flush()
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


AFTER = ["0", "-1", "1e9", "NaN", "inf", "9" * 400, "\u0663", "+5", "1.5", "", formatdate(0, usegmt=True),
         "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 -2359", "Mon, 01 Jan 0001 00:00:00 +2359",
         "Sat, 00 Foo 99999 99:99:99 ZZZ", "12:00:00 PM"]  # fmt: skip


@pytest.mark.parametrize("date", [NOW, "", "Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_no_time_that_a_server_asks_for_stops_a_device_for_longer_than_a_day(tmp_path, date):
    """Nor does any fail, or make it ask before the pause that it was told; numbers and dates, beside any date."""
    server, clock, times = FakeServer(ASKED), ManualClock(START), Counter()
    with client(tmp_path, server, clock) as device:
        quick(device).join(ASKED.id)
        for day, after in enumerate(AFTER):
            clock.now = START + DAY * (2 * day + 1) + 60
            told = [("retry-after", after.encode()), *([("date", date)] if date else [])]
            server.reply = lambda _, told=told: httpx.Response(503, headers=told)
            for _ in range(3):
                before = len(server.requests)
                assert device.flush().trouble is not None
                times[after] += len(server.requests) - before
            clock.now += DAY
            before = len(server.requests)
            device.flush()
            assert len(server.requests) > before
    assert times["9" * 400] == 1
    assert min(times["0"], times["-1"], times["NaN"]) >= 3
