"""What a server can do to a relay by its answers: be too slow, too long or unreadable, and nothing worse."""

import asyncio
import gzip
import time
from collections.abc import Iterable
from contextlib import suppress

import pytest
from changeling_aggregator.errors import UpstreamTrouble
from changeling_aggregator.relay import Upstream
from changeling_aggregator.relay import forwarding as upstream


@pytest.mark.parametrize("url", ["http://server.example", "server.example", "ftp://x", "https://a/?b", "https://"])
def test_a_server_is_https_or_on_loopback(url):
    """Envelopes are sealed, but their heads are not, and nobody else is to see how many there are."""
    with pytest.raises(ValueError, match="the server's URL must be"):
        Upstream(url)


def answered(parts: Iterable[bytes], pause: float) -> str:
    """What the relay says of a server that answers a request for keys by these parts, with pauses between them."""

    ended = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)
        except ConnectionError:
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            ended.set()

    async def run() -> str:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        asked = Upstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(UpstreamTrouble) as trouble:
            await asked.keys()
        await asked.close()
        server.close()
        await ended.wait()  # else a socket may be left open
        return str(trouble.value)

    return asyncio.run(run())


@pytest.mark.timed
def test_an_answer_that_never_ends_is_given_up(monkeypatch):
    """A byte every 20 ms, each within what a read may take: all in all it takes no longer than an exchange may."""
    monkeypatch.setattr(upstream, "TIMEOUT_SECONDS", 0.5)
    begun = time.monotonic()
    told = answered([b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", *[b"x"] * 1000], 0.02)
    assert told == "the server could not be reached: TimeoutError"
    assert time.monotonic() - begun < 5


def test_an_answer_that_is_too_long_is_given_up():
    """A mebibyte is read, and no more."""
    told = answered([b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 2**16] * 40], 0)
    assert told == "the server's answer is longer than 1048576 bytes"


def test_an_answer_is_not_unpacked():
    """100 MB of zeros in 100 kB are those 100 kB, which are no list of keys."""
    packed = gzip.compress(bytes(100_000_000))
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(packed)}\r\n\r\n"
    assert answered([head.encode(), packed], 0) == "the server's list of keys cannot be read"
