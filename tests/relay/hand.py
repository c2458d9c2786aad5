"""A relay whose rounds a test turns by hand, and what looks like envelopes from outside."""

import os
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
from changeling_aggregator.relay import Batching, Relay, RelaySettings, Upstream, make_app
from changeling_protocol import HEAD_BYTES, VERSION, SealingKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..coins import SeededCoins
from ..protocol.examples import PINNED, survey

HERE = "https://relay.example"
NOW = 1_800_000_100
KEY = SealingKey(X25519PrivateKey.from_private_bytes(bytes([1] * 32)).public_key().public_bytes_raw(), 0, 2**40)
OTHER_KEY = SealingKey(X25519PrivateKey.from_private_bytes(bytes([2] * 32)).public_key().public_bytes_raw(), 0, 2**41)
FIRST = replace(survey(), relay=HERE + "/")
SECOND = FIRST.asking(question="And who asks?")
ELSEWHERE = FIRST.asking(question="Another's?", relay="https://other.example")


class Hand:
    """A relay whose rounds a test turns by hand; each lasts 10 s."""

    def __init__(
        self,
        folder,
        upstream,
        *,
        batch=10,
        most_wait=100,
        room=2**20,
        seed=1,
        surveys=None,
        authority=PINNED,
        rate=0,
        token=None,
    ):
        self.now = NOW
        batching = Batching(batch, 10, most_wait)
        settings = RelaySettings(authority, batching, surveys, HERE, room, rate, lambda: self.now, SeededCoins(seed))
        self.relay = Relay(folder, Upstream(upstream.url, token), settings)

    async def __aenter__(self):
        await self.relay.refresh()
        return self

    async def __aexit__(self, *_):
        await self.relay.close()

    async def take(self, *envelopes):
        return await self.relay.intake.take(envelopes)

    async def turn(self, seconds=10):
        """The next round begins: forward what is due."""
        self.now += seconds
        for forwarded in self.relay._forwarding.values():
            await forwarded.forward_due(self.now // 10)


@asynccontextmanager
async def asked(hand, host="127.0.0.1"):
    """The relay's application, as devices at this address ask it."""
    transport = httpx.ASGITransport(make_app(hand.relay), client=(host, 1))
    async with hand, httpx.AsyncClient(transport=transport, base_url="http://relay") as http:
        yield http


def sealed(asked=FIRST, number=0, key=KEY, length=200):
    """What looks like an envelope from outside; its number can be read."""
    return VERSION.to_bytes(1) + asked.id + key.id + number.to_bytes(4) + os.urandom(length)


def number_of(envelope):
    return int.from_bytes(envelope[HEAD_BYTES : HEAD_BYTES + 4])
