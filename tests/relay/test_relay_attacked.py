"""A server that tries to tell devices apart through a relay, and what it could show for it."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from changeling_protocol import VERSION, Refusal
from changeling_protocol.wire import decode_upload_request, encode_acknowledgement

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
