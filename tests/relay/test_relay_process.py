"""Devices, a relay and a server, each a process on loopback; and what guards a relay, as it is open to all."""

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from threading import Timer

import httpx
import pytest
from changeling_aggregator.server import real_time
from changeling_aggregator.testing.serving import free_port
from changeling_client import Client
from changeling_protocol import Calendar

from ..aggregator.devices import body, envelope, report
from ..aggregator.hostile import HOSTILE_HEADS, connected, push, resident
from ..aggregator.serving import ServerHere, eventually
from ..protocol.examples import AUTHORITY, PINNED, survey
from .hand import FIRST, KEY, RelayProcess, sealed, watching

QUICK = ("--batch", "4", "--wait", "1s", "--most-wait", "3s")
GRACE = 3600


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """By the real clock, as the relay is."""
    with ServerHere(tmp_path_factory.mktemp("server"), clock=real_time) as running:
        running.key = running.new_key()
        yield running


def relayed_survey(server, relay_url, question):
    """It began five minutes ago."""
    calendar = Calendar(int(time.time()) - 300, 60, 8)
    return server.publish(survey(calendar=calendar, grace=GRACE).asking(question=question, relay=relay_url))


@pytest.mark.heavy
def test_real_clients_report_through_a_relay(tmp_path, server):
    """Six devices join, record and flush: the relay acknowledges each of their closings, and the server counts it.

    Three fetch the survey from the server; three know the relay alone, and speak with nobody else.
    """
    port = free_port()
    asked = relayed_survey(server, f"http://127.0.0.1:{port}", "Relayed?")
    clock = [asked.calendar.start + 1.0]
    options = {"authority": PINNED, "max_epsilon": 100, "witness": None, "background": False, "clock": lambda: clock[0]}
    relay = RelayProcess(tmp_path / "relay", server.url, *QUICK, port=port)
    with relay, ExitStack() as stack:
        clients = [
            stack.enter_context(Client(server=of.url, path=tmp_path / f"{number}.db", **options))
            for number, of in enumerate([server, relay] * 3)
        ]
        handles = [client.join(asked.id) for client in clients]
        for client in clients:
            client.flush()
        for handle, answer in zip(handles, ["tea", "coffee"] * 3, strict=True):
            handle.record(answer)
        closed = asked.calendar.closed(time.time() - asked.skew - asked.spread)
        assert closed >= 4
        clock[0] = asked.calendar.time(closed) + asked.skew + asked.spread + 0.01  # however long each waits
        for client in clients:
            client.flush()
        assert {(handle.ledger().answered_period, handle.ledger().waiting) for handle in handles} == {(closed, 0)}
        counted = {(0, period): 6 for period in range(1, closed + 1)}
        assert eventually(lambda: {key: n for key, n in server.reports(asked).items() if key in counted}, counted)
    assert relay.complained == ""


@pytest.mark.heavy
def test_what_was_acknowledged_survives_kills_and_counts_once(tmp_path, server):
    """Two SIGKILLs at random moments while four devices upload and the relay forwards; a device sends again until it
    is acknowledged, and never after. In the end each of their uploads is counted once, and nothing else."""
    port, chance = free_port(), random.Random(11)
    asked = relayed_survey(server, f"http://127.0.0.1:{port}", "Killed?")
    relay = RelayProcess(tmp_path / "relay", server.url, *QUICK, port=port)
    sent = 0
    waiting = []
    for _ in range(2):
        with relay, ThreadPoolExecutor(4) as devices:
            timer = Timer(0.5 + 2 * chance.random(), relay.process.kill)
            timer.start()

            def live(left, relay=relay):
                """Until the relay dies: what is left unacknowledged, and how many were made."""
                made = 0
                while True:
                    if not left:
                        left, made = [envelope(asked, server.key, [report(1, made % 13)])], made + 1
                    try:
                        assert relay.upload(*left) == {}
                    except httpx.HTTPError:
                        return left, made
                    left = []

            lives = [devices.submit(live, [each] if each else []) for each in (waiting or [None] * 4)]
            outcomes = [life.result() for life in lives]
            timer.join()
        waiting = [left[0] for left, _ in outcomes]
        sent += sum(made for _, made in outcomes)
    with relay:
        assert relay.upload(*waiting) == {}
        assert sent > 30
        assert eventually(lambda: server.reports(asked).get((0, 1)), sent)
        time.sleep(3)  # the longest wait, after which nothing is left
        assert server.reports(asked)[0, 1] == sent


@pytest.mark.heavy
def test_the_server_sees_the_relays_address_and_waits_are_not_cut_short_by_stopping(tmp_path):
    """The relay stops and starts with fewer than a batch: nothing goes until the longest wait. Devices name themselves
    in headers, and stand behind proxies that tell who they are: none of it is in what the server sees, nor in what the
    relay says. Its settings may stand in a file; figures are of the process, of requests, and of its troubles alone."""
    port, metrics = free_port(), free_port()
    settings = tmp_path / "relay.toml"
    settings.write_text(
        f'metrics-address = "127.0.0.1:{metrics}"\nbatch = 50\nwait = "1s"\nmost-wait = "6s"\nport = {port}\n'
    )
    calendar = Calendar(int(time.time()) - 60, 60, 8)
    asked = replace(survey(calendar=calendar, grace=GRACE), relay=f"http://127.0.0.1:{port}")
    with watching() as upstream:
        upstream.keys, upstream.surveys = [KEY.signed_by(AUTHORITY)], [asked]
        relay = RelayProcess(tmp_path / "relay", upstream.url, "--settings", str(settings), port=port)
        begun = time.time()
        with relay:
            for number in range(3):
                telling = {"x-forwarded-for": f"192.0.2.{number}", "user-agent": f"device {number}", "cookie": "a=b"}
                telling |= {"forwarded": "for=192.0.2.77", "x-request-id": f"{number}"}
                answer = relay.http.post("/v1/uploads", content=body(sealed(asked, number)), headers=telling)
                assert answer.status_code == 200
                assert "set-cookie" not in answer.headers
            figures = httpx.get(f"http://127.0.0.1:{metrics}/metrics", timeout=100).raise_for_status().text
        assert "what waits is kept" in relay.said
        with relay:
            while time.time() < begun + 4:
                assert upstream.uploads == []
                time.sleep(0.1)
            assert eventually(lambda: len(upstream.envelopes), 3)
        (seen,) = upstream.uploads
        assert seen.peer == "127.0.0.1"
        assert {name.lower() for name, _ in seen.headers} == {
            *("host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length"),
        }
        assert len({each.path for each in upstream.seen}) == 4
    for told in (f"{seen.headers}", relay.complained, relay.said):
        assert not any(text in told for text in ("192.0.2", "device 1", "a=b"))
    names = {line.split()[2] for line in figures.splitlines() if line.startswith("# TYPE changeling")}
    requests = {f"changeling_{name}" for name in ("requests_total", "request_seconds", "upload_bytes_total")}
    assert names == {"changeling_info", *requests, "changeling_relay_trouble", "changeling_relay_failing"}
    assert 'changeling_requests_total{method="POST",route="/v1/uploads",status="200"} 3.0' in figures
    assert "changeling_relay_trouble 0.0" in figures


def test_what_is_no_body_takes_no_memory_and_whom_a_proxy_speaks_for_is_limited(tmp_path):
    """Of 64 MiB of it the relay takes a little, closes, holds no more memory, and answers others. Behind a proxy each
    network is limited by itself; what stands before the last address anybody may have written."""
    port, (first, piece) = free_port(), HOSTILE_HEADS["trailers"]
    with watching() as upstream:
        upstream.keys, upstream.surveys = [KEY.signed_by(AUTHORITY)], [replace(FIRST, relay=f"http://127.0.0.1:{port}")]
        relay = RelayProcess(tmp_path / "relay", upstream.url, "--proxy", "127.0.0.1", "--rate", "1", port=port)

        def statuses(forwarded, times):
            headers = {"x-forwarded-for": forwarded}
            return {relay.http.get("/v1/keys", headers=headers).status_code for _ in range(times)}

        with relay:
            before = resident(relay)
            with connected(relay) as connection:
                connection.sendall(first)
                assert push(connection, piece, 64 * 2**20) < 16 * 2**20  # most in the buffers of the two systems
            assert resident(relay) - before < 8 * 2**20
            assert relay.health() == {"status": "ok"}
            assert statuses("192.0.2.1", 30) == {200, 429}
            assert 429 in statuses("198.51.100.1, 192.0.2.200", 3)  # one of them may come as the next second begins
            assert statuses("192.0.2.1, 198.51.100.1", 1) == {200}
    assert [json.loads(line)["event"] for line in relay.complained.splitlines()] == ["denied"]
