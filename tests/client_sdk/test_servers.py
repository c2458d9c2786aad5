"""A server as a device speaks with it: what it hears of the time, how it is left in peace, and relays."""

import contextlib
import threading
import time
from dataclasses import replace
from email.utils import formatdate

import httpx
import pytest
from changeling_client import BadSurvey, Client, ClientClosed, ServerTrouble
from changeling_client.clock import Heard
from changeling_client.delivery import Server
from changeling_client.exchange import Deadline
from changeling_client.obstacles import Obstacle
from changeling_client.patience import NEVER_FAILED, Patience
from changeling_client.route import Route
from changeling_client.servers import Lines
from changeling_client.store import Store
from changeling_protocol import encode
from changeling_protocol.wire import encode_key_list

from ..coins import SeededCoins
from ..protocol.examples import AUTHORITY, PINNED
from .device import LATE, PLAIN, START, URL, Clock, FakeServer, client
from .loopback import BAD, serving

KEYS = httpx.Response(200, content=encode_key_list([b"key"]))
TODAY = formatdate(START, usegmt=True)


class Asked:
    """A server behind a transport that answers as the test says."""

    def __init__(self) -> None:
        self.clock, self.urls, self.reply = Clock(), [], KEYS
        self.route = Route("https://main.example/base/", transport=httpx.MockTransport(self._serve))
        self.server = Server(self.route, self.clock, SeededCoins(1))

    def answers(self, status: int = 200, content: bytes = encode_key_list([b"key"]), **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.reply = httpx.Response(status, content=content, headers=named)

    def keys(self, server: Server | None = None) -> list[bytes] | Obstacle:
        try:
            return (server or self.server).sealing_keys(Deadline.after(5))
        except ServerTrouble as trouble:
            return trouble.obstacle

    def _serve(self, request):
        self.urls.append(str(request.url))
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


@pytest.fixture
def asked():
    return Asked()


@pytest.mark.parametrize("status", [200, 302, 404, 429, 503])
def test_any_fresh_answer_tells_the_time(asked, status):
    """Whatever its status; the clock hears it with the device's time when it asked."""
    asked.answers(status, date=TODAY, age="0")
    asked.keys()
    assert asked.server.heard == Heard(START * 1000, START * 1000)


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
def test_an_answer_without_a_date_of_its_own_tells_no_time(asked, headers):
    """None, one that cannot be read, or one of a cached answer."""
    asked.answers(**headers)
    assert asked.keys() == [b"key"]
    assert asked.server.heard is None


def test_no_answer_tells_no_time(asked):
    """Nor does a server that is not even asked."""
    asked.answers(503, date=TODAY, retry_after="60")
    asked.keys()
    asked.server.heard = None
    assert asked.keys() is Obstacle.LEFT_ALONE
    assert asked.server.heard is None
    asked.clock.now += 60
    asked.reply = httpx.ConnectError("secret")
    assert asked.keys() is Obstacle.UNREACHABLE
    assert asked.server.heard is None


def test_a_clock_that_is_set_back_meanwhile_makes_no_false_lead(asked):
    """The device's time when it asked is what the present clock would have shown then, at the latest."""
    asked.clock.now = START + 10**8
    serve = asked._serve

    def set_right(request):
        asked.clock.now = START
        return serve(request)

    asked.answers(date=TODAY)
    server = Server(Route(URL, transport=httpx.MockTransport(set_right)), asked.clock, SeededCoins(1))
    asked.keys(server)
    assert server.heard == Heard(START * 1000, START * 1000)


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
def test_retry_after_is_honoured(asked, status, after, date, silence):
    """On any status but 200, in seconds or as a date by the server's own clock, for a day at the most."""
    told = {} if date is None else {"date": formatdate(date, usegmt=True)}
    asked.reply = httpx.Response(status, headers=[*told.items(), ("retry-after", after.encode("utf-8"))])
    asked.keys()
    asked.answers()
    if silence:
        asked.clock.now += silence - 0.001
        assert asked.keys() is Obstacle.LEFT_ALONE
        asked.clock.now += 0.001
    assert len(asked.urls) == 1
    assert asked.keys() == [b"key"]


def test_silence_and_failures_outlive_the_process(asked):
    """As four integers that whoever keeps them gives to the next server object."""
    for _ in range(3):
        asked.answers(503, retry_after="100")
        asked.keys()
        asked.clock.now += 100
    row = asked.server.patience.as_row()
    assert all(type(number) is int for number in row)
    again = Server(asked.route, asked.clock, SeededCoins(2))
    again.patience = Patience(*row)
    asked.clock.now -= 1
    assert asked.keys(again) is Obstacle.LEFT_ALONE
    asked.clock.now += 1
    assert asked.keys(again) is Obstacle.BUSY
    assert again.patience.failures == 4


def test_a_success_ends_all_patience(asked):
    """Also after many failures."""
    asked.answers(500)
    for _ in range(5):
        assert asked.keys() is Obstacle.BROKEN
    assert asked.server.patience.failures == 5
    assert asked.server.patience.wait_ms(int(asked.clock() * 1000)) >= 80_000
    asked.answers()
    assert asked.keys() == [b"key"]
    assert asked.server.patience == NEVER_FAILED


def test_what_we_ended_ourselves_is_no_failure_of_the_servers(asked):
    """Neither is a server that was not asked."""
    asked.server.close()
    assert asked.keys() is Obstacle.ENDED
    assert asked.server.patience == NEVER_FAILED


def test_an_answer_that_cannot_be_read_is_a_failure(asked):
    """Such as the page of a hotel's network."""
    asked.answers(content=b"<html>")
    assert asked.keys() is Obstacle.UNREADABLE
    assert asked.server.patience.failures == 1
    with pytest.raises(ServerTrouble, match="cannot be read"):
        asked.server.upload([b"envelope"], Deadline.after(5))


def test_every_status_has_a_name_and_nearly_none_is_unexpected():
    """Whatever a server or a proxy may answer; 5xx are the server's, and what no one sends is unexpected."""
    named = {status: Obstacle.of(status) for status in range(100, 1000) if status != 200}
    assert named[429] is named[503] is Obstacle.BUSY
    assert all(named[status] not in (Obstacle.UNEXPECTED, Obstacle.MALFORMED) for status in range(500, 600))
    assert {named[status] for status in range(300, 400)} == {Obstacle.UNEXPECTED}
    assert all(
        named[status] is not Obstacle.UNEXPECTED for status in (400, 401, 403, 404, 405, 408, 410, 413, 415, 422)
    )


def test_no_status_drops_anything(tmp_path):
    """For every status that means something, in a row, on the keys and on uploads: all is kept, and sent at last."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        clock.now = LATE
        for path in ("/v1/keys", "/v1/uploads"):
            for status in [201, 204, 304, *range(400, 430), 451, *range(500, 512)]:
                server.reply = lambda request: httpx.Response(status) if request.url.path == path else None  # noqa: B023
                flushed = device.flush()
                assert (flushed.sent, flushed.waiting, flushed.dropped) == (0, 8, 0)
                assert str(status) in flushed.trouble
        server.reply = lambda _: None
        assert device.flush().sent == 8


@pytest.fixture
def lines(asked, tmp_path):
    def connect(url):
        return Server(replace(asked.route, url=url), asked.clock, SeededCoins(1))

    store = Store(tmp_path / "store.db")
    yield Lines(store, connect, [], asked.clock)
    store.close()


def test_a_relay_is_asked_at_the_same_paths(asked, lines):
    """For a survey, for keys, and with envelopes."""
    relay = lines.to("https://relay.example/to").server
    asked.keys(relay)
    asked.answers(content=b"signed")
    assert relay.survey(PLAIN.id, Deadline.after(5)) == b"signed"
    asked.answers(content=encode({"refused": [[1, "late"]]}))
    assert relay.upload([b"1", b"2"], Deadline.after(5)) == {1: "late"}
    behind = "https://relay.example/to/v1"
    assert asked.urls == [f"{behind}/keys", f"{behind}/surveys/{PLAIN.id.hex()}", f"{behind}/uploads"]


def test_every_base_url_is_one_server_with_one_patience(asked, lines):
    """What one of them asked for does not silence another."""
    relay, main = lines.to("https://relay.example").server, lines.to("https://main.example/base").server
    assert lines.to("https://relay.example").server is relay
    asked.answers(503, retry_after="60")
    assert asked.keys(relay) is Obstacle.BUSY
    asked.answers()
    assert asked.keys(relay) is Obstacle.LEFT_ALONE
    assert asked.keys(main) == [b"key"]


@pytest.mark.parametrize("relay", ["http://relay.example", "relay.example", "https://alice@relay.example", "ftp://x"])
def test_a_relay_is_https_or_on_loopback_like_a_server(tmp_path, relay):
    """A survey's word for it is not enough: a survey with another is refused."""
    bad = replace(PLAIN, relay=relay)
    with client(tmp_path, FakeServer(bad), Clock()) as device, pytest.raises(BadSurvey, match="the server's URL must"):
        device.join(bad.id)


def test_closing_closes_all_of_them(asked, lines):
    """No exchange with any of them begins afterwards, nor with one that is spoken of for the first time."""
    servers = [lines.to(url).server for url in ("https://main.example", "https://relay.example")]
    lines.close()
    servers.append(lines.to("https://later.example").server)
    for server in servers:
        assert asked.keys(server) is Obstacle.ENDED
    assert asked.urls == []


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
