"""What every request passes first: limits of one client and of one network, trusted proxies, TLS, headers."""

import asyncio
import logging
import select
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack

import httpx
import pytest
from changeling_aggregator import TurnedDown
from changeling_aggregator.server import Bodies, Rates, network_of, real_time, requests
from changeling_aggregator.server import http as limits
from changeling_aggregator.server.requests import read_from
from changeling_aggregator.store import TokenScope
from changeling_protocol import VERSION, SealingKey
from changeling_protocol.wire import MSGPACK, UPLOADS, encode_upload_request

from .devices import body, envelope, report
from .hostile import HOSTILE_HEADS, answer_of, connected, push, resident, slow_body
from .serving import ServerHere, ServerProcess, certified, eventually

BEHIND_PROXY = ["127.0.0.1"]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("own")) as running:
        yield running


def test_what_is_no_body_takes_no_memory(own):
    """Of 64 MiB of it the server takes a little, closes, holds no more memory, and answers others. A head of 32
    kibibytes is read, as nginx and httpx send them at most."""
    assert own.http.get("/v1/surveys", headers={"x": "y" * 32_000}).status_code == 200
    before = resident(own)
    for kind, (first, piece) in HOSTILE_HEADS.items():
        with connected(own) as connection:
            connection.settimeout(2)
            connection.sendall(first)
            assert push(connection, piece, 64 * 2**20) < 16 * 2**20, kind  # most in the buffers of the two systems
        assert resident(own) - before < 8 * 2**20, kind
        assert own.http.get("/v1/surveys").status_code == 200


@pytest.mark.timed
@pytest.mark.heavy
def test_slow_bodies_hold_bounded_memory_and_end(own):
    """With 200 MiB of them under way the server holds its bound of them, and turns away what is more: 503."""
    with ExitStack() as stack:
        slow = [stack.enter_context(slow_body(own)) for _ in range(200)]
        refused, _, _ = select.select(slow, [], [], 60)
        assert {answer_of(each).split()[1] for each in refused} == {b"503"}
        assert resident(own) < 600 * 2**20
        assert own.http.get("/v1/surveys").status_code == 200
    assert eventually(lambda: own.http.post("/v1/uploads", content=b"no upload").status_code, 400)


@pytest.mark.timed
@pytest.mark.heavy
def test_silent_connections_refuse_nobody_while_there_is_room(own):
    """Nine hundred of them: every request is answered, and soon."""
    with ExitStack() as stack:
        for _ in range(900):
            stack.enter_context(connected(own))
        for _ in range(20):
            began = time.monotonic()
            assert own.http.get("/v1/surveys", headers={"connection": "close"}).status_code == 200
            assert time.monotonic() - began < 2


@pytest.mark.heavy
def test_a_server_has_no_more_connections_than_it_may_have_files(tmp_path):
    """Beyond that it answers 503 with what it keeps for itself, and goes on when connections are closed."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400));"
    server = ServerProcess(tmp_path)
    run = f"{limited} import sys; from changeling_commands import main; sys.exit(main({server.arguments!r}))"
    with subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE, text=True) as process:
        try:
            server.process, server.url = process, process.stdout.readline().split()[3].rstrip(";")
            with ExitStack() as silent:
                for _ in range(200):
                    silent.enter_context(connected(server))
                assert eventually(lambda: httpx.get(f"{server.url}/v1/surveys", timeout=100).status_code, 503)
            assert eventually(lambda: httpx.get(f"{server.url}/v1/surveys", timeout=100).status_code, 200)
        finally:
            process.terminate()
            process.communicate(timeout=100)


def test_bodies_are_bounded_in_time_and_together(monkeypatch):
    """One is held in memory for so long only, however often a byte of it arrives: 408. One that breaks off is no
    failure of the server. What is more than is kept of all of them is turned away, and gives back what it held."""
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(requests, "MOST_BODIES_BYTES", 250)
    bodies = Bodies()
    bodies.size = 200

    async def coming(pieces, pause, ends):
        for number, piece in enumerate(pieces, 1):
            await asyncio.sleep(pause)
            yield {"type": "http.request", "body": piece, "more_body": number < len(pieces) or not ends}
        yield {"type": "http.disconnect"}

    def read(*pieces, pause=0.0, ends=True):
        messages = coming(pieces, pause, ends)
        return asyncio.run(read_from(lambda: anext(messages), b"", bodies, 100))

    for status, pieces, how in (
        (408, [b"x"] * 90, {"pause": 0.01}),
        (400, [b"x"], {"ends": False}),
        (503, [b"x" * 30] * 2, {}),
    ):
        with pytest.raises(TurnedDown) as refused:
            read(*pieces, **how)
        assert (refused.value.code.status, bodies.size) == (status, 200)
    assert read(b"x" * 30, b"x" * 20) == b"x" * 50
    assert bodies.size == 200


def test_an_address_is_known_by_its_network():
    """24 bits of IPv4, 48 of IPv6; this machine has none."""
    for host, network in (
        ("192.0.2.77", "192.0.2.0/24"),
        ("::ffff:192.0.2.77", "192.0.2.0/24"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        *((each, None) for each in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")),
        ("not an address", "not an address"),
    ):
        assert network_of(host) == network


def test_a_network_is_limited_and_others_are_not():
    """After a burst it may go on at the rate; what is too early is not counted, and told how long to wait. Many at
    once count as many and never as more than a burst: so a large upload of a network that was silent is taken, behind
    the request for its head, and the next waits."""
    now = 0.0
    rates = Rates(2, lambda: now)
    assert [rates.wait_of("a") for _ in range(40)] == [0.0] * 40
    assert (rates.wait_of("a"), rates.wait_of("b", 30)) == (pytest.approx(0.5), 0)
    assert (rates.wait_of("b", 11), rates.wait_of("b", 10)) == (pytest.approx(0.5), 0)
    assert (rates.wait_of("c"), rates.wait_of("c", 10_000), rates.wait_of("c")) == (0, 0, pytest.approx(0.5))
    now = 1.0
    assert [rates.wait_of("a") > 0 for _ in range(3)] == [False, False, True]


def test_a_fine_is_a_burst_more_and_envelopes_are_counted_until_the_day_is_over():
    """Whatever a network sent before, it waits for as long as a burst of requests takes; where there is no limit not
    at all. Envelopes that do not fit are not counted, and told how long the day lasts; requests alone go on."""
    now = 0.0
    rates, free = Rates(2, lambda: now), Rates(0, lambda: now, 10)
    for each in (rates, free):
        each.fine("a")
    assert rates.wait_of("a") == pytest.approx(0.5)
    rates.fine("a")
    assert (rates.wait_of("a"), rates.wait_of("b")) == (pytest.approx(20.5), 0)
    assert (free.wait_of("a", 1, 9), free.wait_of("a", 1, 2), free.wait_of("a", 1, 1)) == (0, limits.DAY_SECONDS, 0)
    assert (free.wait_of("a"), free.wait_of("b", 1, 10)) == (0, 0)
    now = limits.DAY_SECONDS
    assert free.wait_of("a", 1, 10) == 0


def test_nothing_of_an_address_is_kept_and_a_new_day_begins_anew(monkeypatch):
    """Memory holds hashes under a key that changes daily, of so many networks at most."""
    monkeypatch.setattr(limits, "MOST_NETWORKS", 100)
    now = 0.0
    rates = Rates(1, lambda: now)
    for number in range(1000):
        rates.wait_of(f"198.51.{number}.0/24")
    known = set(rates._sent)
    assert len(known) == 100
    assert all(isinstance(each, bytes) and b"198.51" not in each for each in known)
    now = limits.DAY_SECONDS
    rates.wait_of("198.51.999.0/24")
    assert len(rates._sent) == 1
    assert not known & set(rates._sent)


@pytest.mark.timed
@pytest.mark.parametrize("limit", [{"requests_a_second": 1}, {"envelopes_a_day": 2000}], ids=str)
def test_a_network_pays_for_what_it_uploads_but_with_a_token(tmp_path, limit):
    """Two thousand envelopes at once are taken, and nothing more for a while, by their bytes, or for a day, by their
    number; who shows an upload token goes on, and other networks are not touched."""
    server = ServerHere(tmp_path, proxies=BEHIND_PROXY, **limit)
    server.add_token("of a backend", TokenScope.UPLOAD)
    many, few = encode_upload_request([bytes([VERSION]) + bytes(199)] * 2000), encode_upload_request([b"no envelope"])

    def uploads(network, content, **shown):
        headers = {"x-forwarded-for": network, "content-type": MSGPACK, **shown}
        return server.http.post(UPLOADS, content=content, headers=headers).status_code

    with server:
        assert [uploads(f"192.0.2.{at}", each) for at, each in enumerate((many, many, few))] == [200, 429, 429]
        assert uploads("198.51.100.1", many) == 200
        token = {"authorization": "Bearer of a backend"}
        assert [uploads(f"203.0.113.{at}", each, **token) for at, each in enumerate((many, many, few))] == [200] * 3


def test_what_does_not_open_costs_its_network(tmp_path):
    """Garbage is answered as sound uploads are, and its network is silent for a while, however it cuts it up; what is
    sealed to a key that has expired, or that nobody knows, costs what it always does. Of 900 garbled envelopes none is
    drawn once in a million times.
    """
    with ServerHere(tmp_path, proxies=BEHIND_PROXY, requests_a_second=50, envelopes_a_day=250_000) as server:
        expired = server.new_key(expires=server.now + 10)
        key = server.new_key(begins=server.now + 10)
        survey = server.new_survey()
        server.move_clock(survey.calendar.time(1) + 16)
        sound = envelope(survey, key, [report(1)])
        garbled = sound[:-1] + bytes([sound[-1] ^ 1])
        others = [envelope(survey, each, [report(1)]) for each in (expired, SealingKey(bytes(31) + b"\1", 0, 1))]

        def uploads(network, each, copies=64):
            return server.http.post(UPLOADS, content=body(*[each] * copies), headers={"x-forwarded-for": network})

        answers = [uploads(f"192.0.{number}.1", each) for number, each in enumerate([sound, garbled])]
        told = [(each.status_code, each.content, [*each.headers], len(f"{each.headers}")) for each in answers]
        assert told[0] == told[1]
        for number, each in enumerate(others, 2):
            assert uploads(f"192.0.{number}.1", each).status_code == 200
        assert [uploads(f"192.0.{each}.1", sound).status_code for each in range(4)] == [200, 429, 200, 200]
        assert 429 in (uploads("198.51.100.1", garbled, 1).status_code for _ in range(900))


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxied")
    with ServerHere(folder, proxies=BEHIND_PROXY, requests_a_second=1, clock=real_time) as running:
        yield running


def statuses(server, forwarded, times=30):
    return {server.http.get("/v1/surveys", headers={"x-forwarded-for": forwarded}).status_code for _ in range(times)}


def troubles(server):
    return {each["name"] for each in server.http.get("/readyz").json()["troubles"]}


def test_a_proxy_is_believed_whom_it_speaks_for(behind_proxy):
    """The last address that is no proxy of ours: what stands before it anybody may have written."""
    assert statuses(behind_proxy, "192.0.2.1") == {200, 429}
    assert statuses(behind_proxy, "198.51.100.1, 192.0.2.200, 127.0.0.1", 1) == {429}
    assert statuses(behind_proxy, "192.0.2.1, 198.51.100.1", 1) == {200}
    refused = behind_proxy.http.get("/v1/surveys", headers={"x-forwarded-for": "192.0.2.1"})
    assert (refused.json()["code"], refused.headers["retry-after"]) == ("too_many_requests", "1")
    assert "proxy" not in troubles(behind_proxy)


def test_a_proxy_that_nobody_named_is_not_believed_and_told_of(tmp_path):
    """Without --proxy a header is no address, and this machine is not limited; it stands among the troubles. Nor does a
    server close handlers of its process, such as one of absl, which then closes the process's own standard error."""
    closed = []

    class Host(logging.Handler):
        def close(self):
            closed.append(self)

    handler = Host()
    with ServerHere(tmp_path, requests_a_second=1, clock=real_time) as server:
        assert "proxy" not in troubles(server)
        assert statuses(server, "192.0.2.1") == {200}
        assert "proxy" in troubles(server)
    assert handler not in closed


def test_a_request_names_its_host_once(behind_proxy):
    """Else a cache, a proxy and a server might each take another."""
    for hosts, status in ((), b"400"), (("one", "two"), b"400"), (("one", "one"), b"400"), (("one",), b"200"):
        head = "".join(f"Host: {host}\r\n" for host in hosts)
        with connected(behind_proxy) as connection:
            connection.sendall(f"GET /v1/surveys HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
            assert connection.recv(1000).split()[1] == status


def test_nobody_is_sent_on_to_the_host_that_a_request_names(behind_proxy):
    """A path with a slash too many is not there: an address made of the request may be another's, or without TLS."""
    for path in ("/v1/surveys/", "/v1/keys/", "/v1/uploads/", "/page/session/"):
        answer = behind_proxy.http.get(path, headers={"host": "elsewhere.example"})
        assert (answer.status_code, answer.headers.get("location")) == (404, None)


def test_every_answer_has_an_id_a_date_and_security_headers(behind_proxy):
    """Errors too; no two have one id. Transport security is for what came over TLS."""
    answers = [behind_proxy.http.get(path) for path in ("/v1/surveys", "/nothing", "/v1/uploads", "/v1/keys")]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "date" in answer.headers
        assert "server" not in answer.headers
        assert "strict-transport-security" not in answer.headers
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)
    secure = behind_proxy.http.get("/v1/surveys", headers={"x-forwarded-proto": "https"})
    assert "max-age" in secure.headers["strict-transport-security"]


@pytest.mark.heavy
def test_a_server_speaks_tls_by_itself(tmp_path):
    """With a certificate of its own; it prints https."""
    certificate, key = certified(tmp_path)
    with ServerProcess(tmp_path, "--certificate", str(certificate), "--certificate-key", str(key)) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(certificate))
        answer = httpx.get(f"{server.url}/v1/surveys", verify=trusted, timeout=100)
        assert answer.status_code == 200
        assert "strict-transport-security" in answer.headers
