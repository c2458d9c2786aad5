"""Sending, and a server's ways: kept until acknowledged or past grace, polite, and the same size whatever is said."""

import contextlib
import gzip
import threading
import time
from dataclasses import replace
from email.utils import formatdate

import httpx
import pytest
from changeling_client import BadSurvey, Client, ClientClosed, outbox
from changeling_protocol import decode, encode
from changeling_protocol.wire import MOST_BODY_BYTES, MOST_ENVELOPES_TAKEN
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..protocol.examples import AUTHORITY, PINNED, hierarchical, survey
from .device import (
    LATE,
    PLAIN,
    START,
    TRUTHFUL,
    URL,
    Clock,
    FakeServer,
    all_nodes,
    by_node,
    client,
    signed_key,
)
from .loopback import BAD, serving


def raising(error):
    def reply(_request):
        raise error

    return reply


def answering(status, **headers):
    return lambda _: httpx.Response(status, headers=headers, content=b"\xa0")


TROUBLES = {
    "429": (answering(429), "429"),
    "400": (answering(400), "400"),
    "500": (answering(500), "500"),
    "redirect": (answering(302, location="http://elsewhere.example"), "302"),
    "not MessagePack": (lambda _: httpx.Response(200, content=b"<html>"), "cannot be read"),
    "another map": (lambda _: httpx.Response(200, content=encode({"refused": 1})), "cannot be read"),
    "index past the end": (
        lambda _: httpx.Response(200, content=encode({"refused": [[9, "malformed"]]})),
        "cannot be read",
    ),
    "refused connection": (raising(httpx.ConnectError("secret detail")), "ConnectError"),
    "timeout": (raising(httpx.ReadTimeout("secret detail")), "ReadTimeout"),
    "cut off": (raising(httpx.RemoteProtocolError("secret detail")), "RemoteProtocolError"),
    "operating system": (raising(ConnectionResetError("secret detail")), "ConnectionResetError"),
    "a hook of the app's": (raising(KeyError("secret detail")), "KeyError"),
    "not a URL": (raising(httpx.InvalidURL("secret detail")), "InvalidURL"),
}


@pytest.mark.parametrize("on", ["/v1/keys", "/v1/uploads"])
@pytest.mark.parametrize("name", TROUBLES)
def test_no_trouble_with_the_server_loses_anything(tmp_path, name, on):
    """flush returns the trouble in words without detail, keeps all, and the next flush sends the same reports."""
    reply, words = TROUBLES[name]
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id).record("tea")
        clock.now = LATE
        server.reply = lambda request: reply(request) if request.url.path == on else None
        flushed = device.flush()
        answered = 8 if on == "/v1/uploads" else 0  # before a time was heard, several closings wait to be answered
        assert (flushed.sent, flushed.waiting, flushed.dropped) == (0, answered, 0)
        assert words in flushed.trouble
        assert "secret" not in flushed.trouble
        tried = server.answers()
        server.reply = lambda _: None
        server.bodies.clear()
        flushed = device.flush()
        assert (flushed.sent, flushed.waiting, flushed.trouble) == (8, 0, None)
    assert set(by_node(server)) == all_nodes(PLAIN)
    assert tried == [] or tried == server.answers()


def test_what_is_acknowledged_is_gone_and_not_sent_again(tmp_path):
    """A flush with nothing to send asks nobody."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = LATE
        device.flush()
        before = len(server.requests)
        assert device.flush().sent == 0
        assert len(server.requests) == before


def test_some_refused_means_the_others_are_done(tmp_path):
    """Only the uploads that the server lists are kept."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id, entries=3)
        clock.now = LATE
        server.refused = [[1, "malformed"]]
        flushed = device.flush()
        assert (flushed.sent, flushed.waiting, flushed.dropped) == (16, 8, 0)
        assert "malformed" in flushed.trouble
        assert [handle.ledger(entry).waiting for entry in range(3)] == [0, 8, 0]
        server.refused = []
        assert device.flush().sent == 8


def test_trouble_with_one_body_is_told_though_the_next_goes_through(tmp_path):
    """Of 70 entries in two bodies the first body's refusal is in what flush returns."""
    server, clock = FakeServer(PLAIN), Clock()

    def refuse_the_first(request):
        if request.method == "POST" and len(server.bodies) == 1:
            return httpx.Response(200, content=encode({"refused": [[3, "too-large"]]}))
        return None

    server.reply = refuse_the_first
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id, entries=70)
        clock.now = LATE
        flushed = device.flush()
    assert (flushed.sent, flushed.waiting) == (69 * 8, 8)
    assert "too-large" in flushed.trouble


@pytest.mark.parametrize("reason", ["unknown-survey", "malformed", "too-large", "something new"])
def test_other_refusals_are_kept_until_past_grace(tmp_path, reason):
    """They are tried again, and dropped and counted once grace is over."""
    asked = replace(PLAIN, grace=600)
    server, clock = FakeServer(asked), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(asked.id)
        clock.now = LATE
        server.refused = [[0, reason]]
        for _ in range(3):
            assert device.flush().waiting == 8
        clock.now = asked.calendar.time(8) + 601
        flushed = device.flush()
        assert (flushed.sent, flushed.waiting, flushed.dropped) == (0, 0, 8)
        assert handle.ledger().dropped == 8


def test_closed_drops_and_counts(tmp_path):
    """A server that says the survey is over ends the waiting."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id, entries=2)
        clock.now = LATE
        server.refused = [[0, "closed"]]
        flushed = device.flush()
        assert (flushed.sent, flushed.waiting, flushed.dropped) == (8, 0, 8)
        assert [handle.ledger(entry).dropped for entry in range(2)] == [8, 0]


def test_closed_before_the_end_is_a_quarrel_about_the_time(tmp_path):
    """A server that says so while our calendar runs has not begun the survey, so the reports wait."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = START + 80
        server.refused = [[0, "closed"]]
        assert device.flush().waiting == 1
        server.refused = []
        assert device.flush().sent == 1


@pytest.mark.parametrize("reason", ["unknown-key", "expired-key"])
def test_a_stale_sealing_key_is_fetched_again(tmp_path, reason):
    """After such a refusal the next flush asks for the keys, and seals the same reports with the new one."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = LATE
        server.refused = [[0, reason]]
        assert device.flush().waiting == 8
        first = server.answers()
        server.private = X25519PrivateKey.generate()
        server.keys = [signed_key(server.private)]
        server.refused = []
        server.bodies.clear()
        assert device.flush().sent == 8
    assert server.answers() == first
    assert server.paths().count("/v1/keys") == 2


def test_the_newest_valid_key_of_the_authority_is_used_and_kept(tmp_path):
    """Keys of strangers, of the past and of the future are passed over; a kept key is not asked for again."""
    server, clock = FakeServer(PLAIN), Clock()
    newest = X25519PrivateKey.generate()
    stranger = Ed25519PrivateKey.generate()
    server.private = newest
    server.keys = [
        signed_key(X25519PrivateKey.generate(), 0, 2**32),
        signed_key(newest, 100, 2**32),
        signed_key(X25519PrivateKey.generate(), 200, START),
        signed_key(X25519PrivateKey.generate(), 2**31 - 1, 2**32),
        signed_key(X25519PrivateKey.generate(), 300, 2**32, authority=stranger),
        b"no key",
    ]
    for period in (1, 2, 3):
        with client(tmp_path, server, clock) as device:
            device.join(PLAIN.id)
            clock.now = START + 60 * period + 20
            assert device.flush().sent == 1
    assert len(server.reports()) > 0
    assert server.paths().count("/v1/keys") == 1


def test_without_a_valid_key_nothing_is_sent(tmp_path):
    """A server whose keys the authority did not sign gets nothing."""
    server, clock = FakeServer(PLAIN), Clock()
    server.keys = [signed_key(X25519PrivateKey.generate(), authority=Ed25519PrivateKey.generate())]
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = LATE
        flushed = device.flush()
    assert flushed.waiting == 8
    assert "sealing key" in flushed.trouble
    assert server.envelopes == []


def test_bodies_have_the_same_size_whatever_is_recorded(tmp_path):
    """Three devices with very different changelogs send bodies of the same sizes at the same times."""
    sizes = []
    for number, answers in enumerate(([], ["tea"], ["tea", "coffee", None, "neither", "tea"])):
        server, clock = FakeServer(PLAIN), Clock()
        (tmp_path / str(number)).mkdir()
        with client(tmp_path / str(number), server, clock) as device:
            handle = device.join(PLAIN.id, entries=2)
            for period in range(8):
                clock.now = START + 60 * period + 20
                device.flush()
                if period < len(answers):
                    handle.record(answers[period]) if answers[period] else handle.retract()
            clock.now = LATE
            device.flush()
        sizes.append([len(body) for body in server.bodies])
    assert len(sizes[0]) == 8
    assert sizes[0] == sizes[1] == sizes[2]


def test_two_entries_are_never_in_one_envelope(tmp_path):
    """Each envelope holds the answers of one entry: one report of each node; its ids appear nowhere else."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id, entries=5)
        clock.now = LATE
        device.flush()
    assert len(server.bodies) == 1
    for envelope in server.opened():
        assert len(envelope) == len({(report.track, report.node) for report, _, _ in envelope}) == 14
    assert len({closing.id for closing in server.closings()}) == 5 * 8


@pytest.mark.parametrize(("most", "bodies"), [(MOST_ENVELOPES_TAKEN, [150]), (64, [64, 64, 22])])
def test_many_envelopes_share_bodies_within_the_limits(tmp_path, monkeypatch, most, bodies):
    """150 entries make one body, as a server takes 4,096, or as many as it would take; none has too many bytes."""
    monkeypatch.setattr(outbox, "MOST_ENVELOPES_TAKEN", most)
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id, entries=150)
        clock.now = LATE
        assert device.flush().sent == 150 * 8
    assert [len(decode(body)["envelopes"]) for body in server.bodies] == bodies
    assert MOST_ENVELOPES_TAKEN == 4096
    assert all(len(body) <= MOST_BODY_BYTES for body in server.bodies)


def test_a_long_offline_spell_is_cut_into_uploads_of_64_periods(tmp_path):
    """150 periods make three uploads, and every node is in one of them."""
    asked = survey(hierarchical(3, 150, (1, 50), TRUTHFUL), calendar=replace(PLAIN.calendar, periods=150), grace=10**6)
    server, clock = FakeServer(asked), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(asked.id)
        clock.now = START + 60 * 150 + 20
        assert device.flush().sent == 150
    assert [len({report.node for report, _, _ in e if report.track == 0}) for e in server.opened()] == [64, 64, 22]
    assert set(by_node(server)) == all_nodes(asked)


def test_a_device_ahead_of_the_server_waits_for_it(tmp_path):
    """What is due by a clock that is two minutes ahead waits until it is due by the server's, and no longer."""
    server, clock = FakeServer(PLAIN), Clock(START + 125)

    def the_server_says(seconds):
        server.headers = {"date": formatdate(START + seconds, usegmt=True)}

    the_server_says(5)
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id, signed=None)
        device.flush()
        clock.now = START + 185
        the_server_says(64)  # a second is lost to the date's rounding; at 65 nothing is due, whatever its delay
        assert device.flush().sent == 0
    with client(tmp_path, server, clock) as device:
        server.reply = answering(500)
        assert device.flush().sent == 0, "the lead outlives the process"
        server.reply = lambda _: None
        clock.now = START + 320
        the_server_says(200)
        assert device.flush().sent == 3, "nodes that closed before it joined by its own clock, not by the server's"
        clock.now = START + 260
        the_server_says(260)
        assert device.flush().sent == 1, "a clock that was set right is not held back"
    assert {node.end for _, node, _ in server.reports()} == {1, 2, 3, 4}


def test_a_lead_heard_while_sending_is_kept_for_the_next_process(tmp_path):
    """What an acknowledgement says of the time holds back what a restarted device would answer too early."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = START + 80
        server.headers = {"date": formatdate(START + 20, usegmt=True)}
        assert device.flush().sent == 1
    with client(tmp_path, server, clock) as device:
        clock.now = START + 140
        server.reply = answering(500)
        flushed = device.flush()
        assert (flushed.sent, flushed.waiting) == (0, 0)
        server.reply = lambda _: None
        server.headers = {"date": formatdate(START + 140, usegmt=True)}
        assert device.flush().sent == 1


def test_a_device_behind_the_server_is_not_hurried(tmp_path):
    """A server whose Date is years ahead opens no node early."""
    server, clock = FakeServer(PLAIN), Clock()
    server.headers = {"date": formatdate(START + 10**8, usegmt=True)}
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = START + 60 + 4
        assert device.flush().sent == 0
        clock.now = START + 60 + 20
        assert device.flush().sent == 1
        clock.now = START + 120 + 4
        assert device.flush().sent == 0


def test_a_packed_answer_is_not_unpacked(tmp_path):
    """A kilobyte that unpacks to a megabyte was not asked for."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = START + 80
        packed = gzip.compress(encode({"keys": server.keys}))
        server.reply = lambda _: httpx.Response(200, content=packed, headers={"content-encoding": "gzip"})
        assert "packed" in device.flush().trouble


def test_a_date_means_the_same_in_every_time_zone(tmp_path, monkeypatch):
    """Also one that names none: -0000 is UTC, not the zone the device is in."""
    server, clock = FakeServer(PLAIN), Clock()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        with client(tmp_path, server, clock) as device:
            server.headers = {"date": formatdate(START)}
            device.join(PLAIN.id)
            clock.now = START + 80
            server.headers = {"date": formatdate(START + 80)}
            assert device.flush().sent == 1
            clock.now = START + 140
            assert device.flush().sent == 1
    finally:
        monkeypatch.undo()
        time.tzset()


def test_clocks_that_agree_delay_nothing(tmp_path):
    """A Date is rounded down to a second; that is no lead."""
    server, clock = FakeServer(PLAIN), Clock(START + 0.999)
    server.headers = {"date": formatdate(START, usegmt=True)}
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = START + 75
        assert device.flush().sent == 1


@pytest.mark.parametrize(
    "url",
    ["http://statistics.example", "ftp://x", "statistics.example", "https://", "https://a/?q=1", "http://10.0.0.1"],
)
def test_the_server_is_https_but_on_loopback(tmp_path, url):
    """Anything else is refused before a store is made."""
    with pytest.raises(ValueError, match="https"):
        Client(path=tmp_path / "store.db", server=url, authority=PINNED, max_epsilon=1)
    assert not (tmp_path / "store.db").exists()


def test_credentials_in_the_url_are_refused_and_not_repeated(tmp_path):
    """They would name the user to the server, and show in logs."""
    with pytest.raises(ValueError, match="credentials") as error:
        Client(
            path=tmp_path / "store.db",
            server="https://alice:hunter2@statistics.example",
            authority=PINNED,
            max_epsilon=1,
        )
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:1/", "http://[::1]:9", URL + "/base/"])
def test_loopback_and_paths_are_fine(tmp_path, url):
    """A development server on loopback needs no certificate."""
    Client(path=tmp_path / "store.db", server=url, authority=PINNED, max_epsilon=1).close()


def test_a_body_that_is_too_large_goes_in_parts(tmp_path):
    """A proxy that takes fewer bytes than the protocol allows holds nothing up, but for an upload that is alone."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id, entries=10)
        clock.now = LATE
        most = 0
        server.reply = lambda request: httpx.Response(413) if len(request.content) > most else None
        assert device.flush().waiting == 80
        most = max(map(len, server.bodies)) // 3
        server.bodies.clear()
        assert device.flush().sent == 80
    assert len({closing.id for closing in server.closings()}) == 80


def asking(tmp_path, server, clock, **options):
    """A client that has asked for PLAIN and not got it, so that each flush asks the server for that alone."""
    device = client(tmp_path, server, clock, **options)
    device.join(PLAIN.id, signed=None)
    return device


TODAY = formatdate(START, usegmt=True)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"date": ""},
        {"date": "yesterday"},
        {"date": "Sun, 99 Foo 2026 08:49:37 GMT"},
        {"date": TODAY, "age": "1"},
        {"date": TODAY, "age": "86400"},
        {"date": TODAY, "age": "0, 7"},
        {"date": TODAY, "age": "old"},
    ],
)
def test_an_answer_without_a_date_of_its_own_tells_no_time(tmp_path, headers):
    """None, one that cannot be read, or one of a cached answer: by the device's clock alone nothing is joined."""
    server = FakeServer(PLAIN)
    with asking(tmp_path, server, Clock()) as device:
        server.headers = headers
        assert device.flush().trouble == "the server told no time"
        server.headers = {"date": TODAY, "age": "0"}
        assert device.flush().trouble is None


@pytest.mark.parametrize("status", [200, 302, 404, 429, 503])
def test_any_fresh_answer_tells_the_time(tmp_path, status):
    """Whatever its status: a device that is a minute ahead answers nothing more before the server's time comes."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = START + 80
        server.reply = lambda _: httpx.Response(status, headers={"date": formatdate(START + 20, usegmt=True)})
        assert device.flush().waiting == 1
        clock.now = START + 140
        server.reply = raising(httpx.ConnectError(""))
        assert device.flush().waiting == 1


def test_a_clock_that_is_set_back_meanwhile_makes_no_false_lead(tmp_path):
    """The device's time when it asked is what the present clock would have shown then, at the latest."""
    server, clock = FakeServer(PLAIN), Clock(START + 10**8)

    def set_right(_request):
        clock.now = START
        server.headers = {"date": TODAY}

    server.reply = set_right
    with asking(tmp_path, server, clock) as device:
        assert device.flush().trouble is None
        server.reply = lambda _: None
        server.headers, clock.now = None, START + 80
        assert device.flush().sent == 1


def test_every_server_is_left_in_peace_by_itself(tmp_path):
    """What a relay asked for does not silence the app's own server."""
    relayed, urls = replace(PLAIN, relay="https://relay.example/"), []
    server, clock = FakeServer(relayed, PLAIN), Clock()

    def reply(request):
        urls.append(request.url.host)
        busy = request.url.host == "relay.example"
        return httpx.Response(503, headers={"retry-after": "60"}) if busy else None

    server.reply = reply
    with client(tmp_path, server, clock) as device:
        device.join(relayed.id)
        device.join(PLAIN.id)
        clock.now = LATE
        assert device.flush().sent == 8
        clock.now += 1
        assert "left alone" in device.flush().trouble
    assert urls.count("relay.example") == 1


@pytest.mark.parametrize("age", ["5", None], ids=["cached", "without a date"])
def test_by_a_clock_a_year_ahead_nothing_is_dropped_before_the_time_was_heard(tmp_path, age):
    """A server that answers and does not tell the time is no reason to drop: all waits until it tells it."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id)
        clock.now = LATE
        server.reply = lambda request: httpx.Response(503) if request.method == "POST" else None
        assert device.flush().waiting == 8
        clock.now = LATE + 365 * 86_400
        server.headers = {"date": formatdate(clock.now, usegmt=True), "age": age} if age else {"date": ""}
        flushed = device.flush()
        assert (flushed.waiting, flushed.dropped) == (8, 0)
        server.headers, server.reply = {"date": formatdate(LATE, usegmt=True)}, lambda _: None
        assert device.flush().sent == 8
        assert handle.ledger().dropped == 0


def test_no_status_drops_anything(tmp_path):
    """For every status that means something, in a row, on the keys and on uploads: all is kept, and sent at last."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = LATE
        server.refused = [[0, "unknown-key"]]
        assert device.flush().waiting == 8
        server.refused = []
        for path in ("/v1/keys", "/v1/uploads"):
            for status in [201, 204, 304, *range(400, 430), 451, *range(500, 512)]:
                server.reply = lambda request: httpx.Response(status) if request.url.path == path else None  # noqa: B023
                clock.now += 3600  # there is a budget for what comes to nothing
                flushed = device.flush()
                assert (flushed.sent, flushed.waiting, flushed.dropped) == (0, 8, 0)
                assert str(status) in flushed.trouble
        server.reply = lambda _: None
        assert device.flush().sent == 8


@pytest.mark.parametrize("relay", ["http://relay.example", "relay.example", "https://alice@relay.example", "ftp://x"])
def test_a_relay_is_https_or_on_loopback_like_a_server(tmp_path, relay):
    """A survey's word for it is not enough: a survey with another is refused."""
    bad = replace(PLAIN, relay=relay)
    with client(tmp_path, FakeServer(bad), Clock()) as device, pytest.raises(BadSurvey, match="the server's URL must"):
        device.join(bad.id)


def test_a_survey_with_a_relay_goes_there_alone(tmp_path):
    """Its envelopes, the keys and the time; another survey of the same store goes to the server."""
    asked, urls = replace(PLAIN, relay="https://relay.example/"), []
    server, clock = FakeServer(asked, PLAIN), Clock()
    server.reply = lambda request: urls.append(str(request.url))
    with client(tmp_path, server, clock) as device:
        device.join(asked.id)
        clock.now = LATE
        assert device.flush().sent == 8
        assert set(urls) == {"https://relay.example/v1/keys", "https://relay.example/v1/uploads"}
        urls.clear()
        clock.now = START
        device.join(PLAIN.id)
        clock.now = LATE
        assert device.flush().sent == 8
        assert set(urls) == {f"{URL}/v1/keys", f"{URL}/v1/uploads"}


def test_a_servers_wish_for_silence_outlives_the_client(tmp_path):
    """Though the survey itself could not be fetched; a clock that is set back ends the wait."""
    server, clock = FakeServer(PLAIN), Clock()
    server.reply = lambda _: httpx.Response(503, headers={"retry-after": "3600"})
    for passed in (0, 10, 3599):
        clock.now = START + passed
        with client(tmp_path, server, clock) as device:
            device.join(PLAIN.id, signed=None)
            assert ("503" if passed == 0 else "left alone") in device.flush().trouble
    assert len(server.requests) == 1
    server.reply = lambda _: None
    clock.now = START - 1
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id, signed=None)
        assert device.flush().trouble is None


class Slow:
    """Coins that take their time, as a store of many entries does."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def below(self, n):
        time.sleep(0.25)
        self.seconds += 0.25
        return n // 2


@pytest.mark.timed
def test_the_timeout_is_the_networks_and_answering_is_not_counted(tmp_path):
    """A flush that answers for longer than the network may take sends what it answered all the same."""
    server, clock, coins = FakeServer(PLAIN), Clock(), Slow()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        device._device.coins = coins
        clock.now = START + 60 + 20
        assert device.flush(timeout=0.5).sent == 1
    assert coins.seconds > 0.5


@pytest.mark.timed
def test_a_flush_has_one_timeout_and_closing_ends_it(tmp_path):
    """Whatever the server does; the client closes at once, from another thread, and everything is kept."""
    with serving(BAD["102 without end"]) as slow:
        options = {"path": tmp_path / "store.db", "server": slow.url, "authority": PINNED, "max_epsilon": 10_000}
        clock = Clock()
        options |= {"clock": clock, "background": False, "witness": None}
        device = Client(**options)
        device.join(PLAIN.id, signed=PLAIN.signed_by(AUTHORITY))
        clock.now = LATE
        begun = time.monotonic()
        assert "in time" in device.flush(timeout=0.2).trouble
        assert time.monotonic() - begun < 1.5
        slow.reached.clear()

        def flush():
            with contextlib.suppress(ClientClosed):
                device.flush()

        flushing = threading.Thread(target=flush)
        flushing.start()
        assert slow.reached.wait(5)
        begun = time.monotonic()
        device.close()
        flushing.join(5)
        assert time.monotonic() - begun < 1
    server = FakeServer(PLAIN)
    server.clock = clock
    with Client(transport=server.transport(), **options) as device:
        assert device.flush().sent == 8


@pytest.mark.parametrize("status", [429, 500, 503, 599, 302, 404])
@pytest.mark.parametrize(
    ("after", "date", "silence"),
    [
        ("120", None, 120),
        ("0", None, 0),
        ("86401", None, 86_400),
        ("9" * 30, None, 86_400),
        (formatdate(START + 300, usegmt=True), None, 300),
        (formatdate(START + 300, usegmt=True), START + 100, 200),
        (formatdate(START - 300, usegmt=True), None, 0),
        (formatdate(START + 10**8, usegmt=True), None, 86_400),
        ("soon", None, 0),
        ("-5", None, 0),
        ("1.5", None, 0),
        ("²", None, 0),
        ("", None, 0),
    ],
)
def test_retry_after_is_honoured(tmp_path, status, after, date, silence):
    """On any status but 200, in seconds or as a date by the server's own clock, for a day at the most."""
    told = {} if date is None else {"date": formatdate(date, usegmt=True)}
    server, clock = FakeServer(PLAIN), Clock()
    server.reply = lambda _: httpx.Response(status, headers=[*told.items(), ("retry-after", after.encode("utf-8"))])
    with asking(tmp_path, server, clock) as device:
        assert str(status) in device.flush().trouble
        server.reply = lambda _: None
        if silence:
            clock.now += silence - 0.001
            assert "left alone" in device.flush().trouble
            clock.now += 0.001
        assert len(server.requests) == 1
        assert device.flush().trouble is None


@pytest.mark.parametrize("relay", ["", "https://relay.example"])
def test_uploads_to_the_apps_own_server_alone_carry_the_token(tmp_path, relay):
    """Not what is fetched from it, and nothing that goes to a relay which the survey declares."""
    asked, shown = replace(PLAIN, relay=relay), set()
    server, clock = FakeServer(asked), Clock()
    server.reply = lambda request: shown.add((request.method, request.headers.get("authorization")))
    with client(tmp_path, server, clock, upload_token="of-the-app") as device:
        device.join(asked.id, signed=None)
        device.flush()
        clock.now = LATE
        assert device.flush().sent == 8
    assert shown == {("GET", None), ("POST", None if relay else "Bearer of-the-app")}


def test_a_list_of_thousands_of_signed_keys_costs_a_few_signatures(tmp_path):
    """A device looks at sixty-four of them, and keeps no more."""
    server, clock, private = FakeServer(PLAIN), Clock(START + 1), FakeServer().private
    server.keys = [signed_key(private), *(signed_key(private, expires=2**32 + 1 + each) for each in range(200))]
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = START + 80
        assert device.flush().sent == 1
        with device.store.transaction() as db:
            assert db.execute("SELECT count(*) FROM sealing_keys").fetchone() == (64,)
