"""A server that tries to tell devices apart through a relay, or to hold it up by answers that are slow or endless."""

import asyncio
import gzip
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from changeling_aggregator import UpstreamTrouble
from changeling_aggregator.relay import Upstream, forwarding
from changeling_protocol import VERSION, Refusal
from changeling_protocol.wire import decode_upload_request, encode_acknowledgement

from ..client_sdk.loopback import answering, dripping, serving
from ..protocol.examples import AUTHORITY
from .hand import FIRST, KEY, OTHER_KEY, Hand, Seen, Watching, watching

ROUNDS = 6
MOST_OF_A_DEVICE = 3


@dataclass
class Hostile:
    """Answers as it likes: fails, takes small bodies alone, refuses some of what it sees."""

    chance: Random
    honest: Any

    def answer(self, seen: Seen) -> tuple[int, bytes]:
        if seen.method != "POST":
            status, content = self.honest(seen)
            return (503, b"") if self.chance.random() < 0.1 else (status, content)
        if self.chance.random() < 0.3:
            return self.chance.choice([500, 503, 400, 413]), b""
        places = range(len(decode_upload_request(seen.body)))
        return 200, encode_acknowledgement({each: Refusal.LATE for each in places if self.chance.random() < 0.2})


def envelope(number: int) -> bytes:
    return VERSION.to_bytes(1) + FIRST.id + KEY.id + number.to_bytes(4) + bytes([number % 251]) * 200


def one_life(folder: Path, told: Watching, moves: Random, devices: Random) -> list[Refusal | None]:
    """What devices hear of each envelope. moves: what the server does, and how many envelopes come in a round.

    devices: who sends them: how many in one request, and when within the round.
    """
    heard: list[Refusal | None] = []
    sent = 0

    async def run() -> None:
        nonlocal sent
        async with Hand(folder, told, batch=6) as hand:
            told.answer = Hostile(moves, told.answer).answer  # type: ignore[method-assign]
            for _ in range(ROUNDS):
                begin, until = hand.now, sent + moves.randrange(12)
                while sent < until:
                    hand.now = devices.randrange(hand.now, begin + 10)
                    together = min(until - sent, devices.randint(1, MOST_OF_A_DEVICE))
                    refused = await hand.take(*(envelope(sent + each) for each in range(together)))
                    heard.extend(refused.get(each) for each in range(together))
                    sent += together
                hand.now = begin
                offered = moves.choice([[KEY], [KEY], [KEY, OTHER_KEY], []])
                told.keys = [key.signed_by(AUTHORITY) for key in offered]
                await hand.relay.refresh()
                await hand.turn(moves.choice([10, 10, 40]))

    asyncio.run(run())
    return heard


@pytest.mark.parametrize("seed", range(2))
def test_a_hostile_server_sees_the_same_whoever_sent_what_and_when_in_a_round(tmp_path: Path, seed: int) -> None:
    """It fails, refuses, asks for smaller bodies, offers and withdraws keys. Whether the envelopes of a round came of
    one device or of many, and at which second of it, changes no byte of what it sees, and nothing that devices hear."""
    worlds = []
    for devices in range(2):
        with watching() as told:
            told.surveys, told.keys = [FIRST], [KEY.signed_by(AUTHORITY)]
            heard = one_life(tmp_path / str(devices), told, Random(seed), Random(devices))
            worlds.append((heard, [(seen.method, seen.path, seen.body) for seen in told.seen]))
    assert len(told.uploads) >= 3
    assert None in heard
    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("url", ["http://server.example", "server.example", "ftp://x", "https://a/?b", "https://"])
def test_a_server_is_https_or_on_loopback(url: str) -> None:
    """Envelopes are sealed, but their heads are not, and nobody else is to see how many there are."""
    with pytest.raises(ValueError, match="the server's URL must be"):
        Upstream(url)


def endless(connection: Any, _stop: object) -> None:
    connection.request()
    connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.send(bytes(2**16))


PACKED = gzip.compress(bytes(10_000_000))
ANSWERS = {
    "a byte now and then": (dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", b"x"), "TimeoutError"),
    "more than a mebibyte": (endless, "the server's answer is longer than 1048576 bytes"),
    "packed, which is not unpacked": (answering(PACKED, b"content-encoding: gzip\r\n"), "cannot be read"),
}


@pytest.mark.timed
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_no_server_gives_is_given_up(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """All in all it takes no longer, and no more memory, than an exchange may."""
    monkeypatch.setattr(forwarding, "TIMEOUT_SECONDS", 0.5)
    behave, words = ANSWERS[name]

    async def ask(url: str) -> None:
        upstream = Upstream(url)
        try:
            await upstream.keys()
        finally:
            await upstream.close()

    with serving(behave) as server:
        begun = time.monotonic()
        with pytest.raises(UpstreamTrouble, match=words):
            asyncio.run(ask(server.url))
        assert time.monotonic() - begun < 5
