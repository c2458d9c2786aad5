"""Seals all envelopes of a fleet, then sends them on many connections, each when it is due.

They are sealed by as many processes as there are processors before the first one is sent, and held in memory, about 300
bytes each; so whoever sends them has nothing else to do. A request is timed from when it was due, so that a server that
falls behind looks as slow as it is. What was turned away is sent again; so is what was not answered, and that may then
be counted as a duplicate.
"""

import asyncio
import os
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from multiprocessing import get_context
from urllib.parse import urlsplit

import numpy as np
from changeling_protocol import MalformedBytes, SealingKey, Survey
from changeling_protocol.wire import (
    MOST_BODY_BYTES,
    MOST_ENVELOPES_TAKEN,
    MSGPACK,
    UPLOADS,
    ErrorAnswer,
    decode_acknowledgement,
    encode_acknowledgement,
    encode_upload_request,
)

from .devices import BLOCK_DEVICES, EnvelopeBlock, Times, Wishes, make_block
from .truth import Truth

_FRAME_BYTES, _HEAD_BYTES = 32, 5
"""What a request adds to its envelopes, and to each of them, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Sealed envelopes in the order in which they are due, in rising Unix seconds, and what they must come to."""

    due: Times
    envelopes: list[bytes]
    truth: Truth

    def __len__(self) -> int:
        return len(self.due)

    def requests(self, envelopes: int = 1) -> Iterator[tuple[float, bytes]]:
        """Upload requests of so many envelopes each, by when the last of them is due, in Unix seconds.

        Raises ValueError where so many do not fit into a request.
        """
        most = _FRAME_BYTES + envelopes * (int(np.median([*map(len, self.envelopes)])) + _HEAD_BYTES)
        if most > MOST_BODY_BYTES:
            raise ValueError(f"{envelopes} envelopes make a request of {most:,} bytes, of {MOST_BODY_BYTES:,} at most")
        waiting: list[bytes] = []
        size, due = _FRAME_BYTES, 0.0
        for moment, envelope in zip(self.due.tolist(), self.envelopes, strict=True):
            added = len(envelope) + _HEAD_BYTES
            if waiting and (len(waiting) == envelopes or size + added > MOST_BODY_BYTES):
                yield due, encode_upload_request(waiting)
                waiting, size = [], _FRAME_BYTES
            waiting.append(envelope)
            size += added
            due = moment
        if waiting:
            yield due, encode_upload_request(waiting)


def sealed(
    survey: Survey,
    key: SealingKey,
    wishes: Wishes,
    done: Callable[[int], None] = lambda _: None,
    processes: int | None = None,
) -> Load:
    """Makes a fleet's envelopes.

    done: called with how many devices have answered, again and again.
    processes: by default as many as there are processors.
    """
    count = ceil(wishes.devices / BLOCK_DEVICES)
    make = partial(_made, survey.payload, (key.public, key.begins, key.expires), wishes)
    truth, due, envelopes = Truth(survey.id.hex()), list[Times](), list[bytes]()
    with ProcessPoolExecutor(min(processes or os.cpu_count() or 1, count), get_context("spawn")) as pool:
        for number, block in enumerate(pool.map(make, range(count))):
            due.append(block.due)
            envelopes += block.envelopes
            truth += block.truth
            done(min((number + 1) * BLOCK_DEVICES, wishes.devices))
    moments = np.concatenate(due)
    order = np.argsort(moments, kind="stable")
    return Load(moments[order], [envelopes[place] for place in order.tolist()], truth)


def _made(payload: bytes, key: tuple[bytes, int, int], wishes: Wishes, number: int) -> EnvelopeBlock:
    return make_block(Survey.from_payload(payload), SealingKey(*key), wishes, number)


_ALL_TAKEN = encode_acknowledgement({})
_TAKEN, _TOO_MANY, _OVERLOADED = 200, 429, 503
_MOST_WAIT_SECONDS = 60.0
_PAUSE_SECONDS = 0.2
_MOST_SECONDS_WITHOUT = 60.0
"""So long no request may be answered, on any connection, before the server is given up: one that restarts is back."""


class SendingFailed(OSError):
    """The server cannot be sent anything, or refuses all of it; the sentence says why."""


@dataclass(slots=True)
class Sent:
    """The fate of requests.

    requests: how many were taken. told: envelopes that the server refused in its answers, by reason.
    turned_away: how often it asked to come again later. unsure: how often a request was sent again as its answer was
    lost, so that it may be there twice. seconds: all of it. latencies: in seconds, from when each was due.
    """

    requests: int = 0
    told: Counter[str] = field(default_factory=Counter)
    turned_away: int = 0
    unsure: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def latency(self, share: float) -> float:
        """The latency that this share of the requests does not exceed, in seconds; 0 where none was sent."""
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def send(
    requests: Iterator[tuple[float, bytes]],
    server: str,
    token: str | None = None,
    *,
    connections: int = 32,
    seconds_of_one: float = 0.0,
    done: Callable[[int], None] = lambda _: None,
) -> Sent:
    """Send requests until all are taken.

    requests: when each is due, in seconds from any moment on, rising, and its body. server: a base URL.
    token: shown with each. seconds_of_one: so long a second of theirs takes here; 0 sends each as soon as a connection
    is free. done: called with how many requests are taken, again and again. Raises SendingFailed.
    """
    return asyncio.run(_Sender(requests, server, token, seconds_of_one, done).run(connections))


class _Sender:
    def __init__(
        self,
        requests: Iterator[tuple[float, bytes]],
        server: str,
        token: str | None,
        seconds_of_one: float,
        done: Callable[[int], None],
    ) -> None:
        parts = urlsplit(server)
        self._host, self._tls = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        shown = f"authorization: Bearer {token}\r\n" if token else ""
        self._head = (
            f"POST {parts.path.rstrip('/')}{UPLOADS} HTTP/1.1\r\nhost: {parts.netloc.rpartition('@')[2]}\r\n{shown}"
            f"content-type: {MSGPACK}\r\ncontent-length: "
        ).encode()
        self._requests, self._speed, self._done = requests, seconds_of_one, done
        self._again: deque[tuple[float, bytes]] = deque()
        self._sent = Sent()
        self._first: float | None = None
        self._begin = self._open_at = 0.0
        self._failing_since: float | None = None

    async def run(self, connections: int) -> Sent:
        self._begin = self._open_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(connections):
                    workers.create_task(self._work())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        self._sent.seconds = asyncio.get_running_loop().time() - self._begin
        return self._sent

    def _next(self) -> tuple[float, bytes] | None:
        if self._again:
            return self._again.popleft()
        coming = next(self._requests, None)
        if coming is not None and self._first is None:
            self._first = coming[0]
        return coming

    async def _work(self) -> None:
        """Sends on one connection, and on another where that one breaks."""
        loop = asyncio.get_running_loop()
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while (coming := self._next()) is not None:
                due, body = coming
                moment = self._begin + self._speed * (due - (self._first or 0.0)) if self._speed else loop.time()
                while (wait := max(moment, self._open_at) - loop.time()) > 0:
                    await asyncio.sleep(wait)
                begun = False
                try:
                    if streams is None:
                        streams = await asyncio.open_connection(
                            self._host, self._port, ssl=ssl.create_default_context() if self._tls else None
                        )
                    begun = True
                    status, headers, content = await self._ask(*streams, body)
                except (OSError, EOFError, asyncio.LimitOverrunError) as error:
                    self._failed(error)
                    self._sent.unsure += begun
                    self._again.append(coming)
                    await _close(streams)
                    streams = None
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                self._failing_since = None
                if status == _TAKEN:
                    self._taken(content)
                    self._sent.latencies.append(loop.time() - moment)
                else:
                    self._turned_away(status, headers, content)
                    self._again.append(coming)
                if b"connection: close" in headers:
                    await _close(streams)
                    streams = None
        finally:
            await _close(streams)

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes
    ) -> tuple[int, bytes, bytes]:
        """Returns the status, the headers in lower case, and the body."""
        writer.write(self._head + b"%d\r\n\r\n" % len(body) + body)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length:")[2].partition(b"\r")[0]
        return int(head[9:12]), head, await reader.readexactly(int(length or 0))

    def _taken(self, content: bytes) -> None:
        self._sent.requests += 1
        self._done(self._sent.requests)
        if content == _ALL_TAKEN:
            return
        try:
            refused = decode_acknowledgement(content, MOST_ENVELOPES_TAKEN)
        except MalformedBytes as error:
            raise SendingFailed("who answers there is no server of ours") from error
        self._sent.told.update(refused.values())

    def _turned_away(self, status: int, headers: bytes, content: bytes) -> None:
        """Waits with all connections, as the server asks. Raises SendingFailed where waiting is no use."""
        if status not in (_TOO_MANY, _OVERLOADED):
            detail = f"status {status}"
            with suppress(MalformedBytes):
                detail = ErrorAnswer.decode(content).detail
            raise SendingFailed(f"the server takes no such requests: {detail}")
        asked = headers.partition(b"retry-after:")[2].partition(b"\r")[0].strip()
        wait = float(asked) if asked.isdigit() else 1.0
        self._sent.turned_away += 1
        self._open_at = max(self._open_at, asyncio.get_running_loop().time() + min(wait, _MOST_WAIT_SECONDS))

    def _failed(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= _MOST_SECONDS_WITHOUT:
            raise SendingFailed(f"the server cannot be reached for {_MOST_SECONDS_WITHOUT:g} s: {error}") from error


async def _close(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None) -> None:
    if streams is not None:
        streams[1].close()
        with suppress(OSError):
            await streams[1].wait_closed()
