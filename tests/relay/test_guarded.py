"""A relay is open to all, so it is guarded as a server is: limits on networks, and on what a client may keep open."""

import json
from dataclasses import replace
from time import monotonic

import httpx
import pytest
from changeling_aggregator.server import BURST_SECONDS
from changeling_aggregator.testing.serving import free_port

from ..aggregator.devices import body
from ..aggregator.hostile import HOSTILE_HEADS, connected, push, resident
from ..protocol.examples import AUTHORITY
from .hand import FIRST, KEY, Hand, asked, at, sealed, watching
from .relaying import RelayProcess


@pytest.mark.timed
async def test_a_network_that_sends_too_much_waits_and_keeps_nobody_else_from_sending(tmp_path, upstream):
    """429 with Retry-After once it has sent what it may at once; nothing of what was too early is kept."""
    envelope = sealed()
    hand = Hand(tmp_path / "relay", upstream, requests_a_second=1)
    async with asked(hand, "192.0.2.1") as http:
        began, answers = monotonic(), list[httpx.Response]()
        while not answers or answers[-1].status_code == 200:
            answers.append(await http.post("/v1/uploads", content=body(envelope)))
        taken = len(answers) - 1
        assert BURST_SECONDS <= taken <= BURST_SECONDS + monotonic() - began + 1
        assert answers[-1].status_code == 429
        assert int(answers[-1].headers["retry-after"]) >= 1
        (copy,) = [copy for copy in hand.relay.copies.surveys.values() if copy.spool.waiting()]
        assert len(copy.spool.waiting()) == taken
        async with at(http._transport.app, "198.51.100.1") as other:
            assert (await other.get("/v1/keys")).status_code == 200


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """A relay process behind a proxy on this machine, which may speak for networks of a request a second."""
    port = free_port()
    with watching() as upstream:
        upstream.keys = [KEY.signed_by(AUTHORITY)]
        upstream.surveys = [replace(FIRST, relay=f"http://127.0.0.1:{port}")]
        options = ("--proxy", "127.0.0.1", "--rate", "1")
        folder = tmp_path_factory.mktemp("relay")
        with RelayProcess(folder, upstream.url, *options, port=port) as running:
            yield running
        assert [json.loads(line)["event"] for line in running.complained.splitlines()] == ["denied"]


def test_what_is_no_body_takes_no_memory(relay):
    """Of 64 MiB of it the relay takes a little, closes, holds no more memory, and answers others."""
    first, piece = HOSTILE_HEADS["trailers"]
    before = resident(relay)
    with connected(relay) as connection:
        connection.sendall(first)
        assert push(connection, piece, 64 * 2**20) < 16 * 2**20  # most of that in the buffers of the two systems
    assert resident(relay) - before < 8 * 2**20
    assert relay.health() == {"status": "ok"}


def test_whom_a_proxy_speaks_for_is_limited(relay):
    """Each network by itself; what stands before the last address anybody may have written."""

    def statuses(forwarded, times):
        headers = {"x-forwarded-for": forwarded}
        return {relay.http.get("/v1/keys", headers=headers).status_code for _ in range(times)}

    assert statuses("192.0.2.1", 30) == {200, 429}
    assert 429 in statuses("198.51.100.1, 192.0.2.200", 3)  # one of them may come as the next second begins
    assert statuses("192.0.2.1, 198.51.100.1", 1) == {200}
