"""Bodies that come slowly, or not at all."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from types import SimpleNamespace
from typing import Any

import pytest
from changeling_aggregator.errors import TurnedDown
from changeling_aggregator.server import bodies, requests
from changeling_aggregator.server.limits import Bodies
from changeling_protocol.wire import HTTP_STATUS
from starlette.requests import Request
from starlette.types import Receive


def refusal(messages: AsyncIterator[MutableMapping[str, Any]]) -> int:
    """The status that a body of these messages is refused with."""

    async def receive() -> MutableMapping[str, Any]:
        return await anext(messages)

    with pytest.raises(TurnedDown) as refused:
        asyncio.run(requests.read_body(asked(receive, SimpleNamespace(bodies=Bodies())), 100))
    return HTTP_STATUS[refused.value.code]


def asked(receive: Receive, service: object) -> Request:
    app = SimpleNamespace(state=SimpleNamespace(service=service))
    return Request({"type": "http", "method": "POST", "headers": [], "app": app}, receive)


def test_a_body_that_does_not_end_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a byte of it arrives, it is held in memory for so long only: 408."""
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)

    async def dripping() -> AsyncIterator[MutableMapping[str, Any]]:
        while True:
            await asyncio.sleep(0.01)
            yield {"type": "http.request", "body": b"x", "more_body": True}

    assert refusal(dripping()) == 408


def test_a_body_that_breaks_off_is_no_failure_of_the_server() -> None:
    """Whoever goes away in the middle leaves no trace of an exception in the log."""

    async def broken() -> AsyncIterator[MutableMapping[str, Any]]:
        yield {"type": "http.request", "body": b"x", "more_body": True}
        yield {"type": "http.disconnect"}

    assert refusal(broken()) == 400


def test_a_body_that_pauses_for_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes at a kilobyte a second or more has time to the end: nobody has who sends a byte now and then."""
    monkeypatch.setattr(bodies, "SLOW_SECONDS", 0.05)
    monkeypatch.setattr(bodies, "LEAST_BYTES_A_SECOND", 100)

    async def coming(size: int) -> AsyncIterator[MutableMapping[str, Any]]:
        for _ in range(10):
            yield {"type": "http.request", "body": b"x" * size, "more_body": True}
            await asyncio.sleep(0.02)
        yield {"type": "http.request", "body": b"", "more_body": False}

    assert refusal(coming(1)) == 408
    steady = coming(1000)  # ten seconds for each, which no busy machine takes
    service = SimpleNamespace(bodies=Bodies())
    assert asyncio.run(requests.read_body(asked(lambda: anext(steady), service), 10_000)) == b"x" * 10_000


def test_a_body_that_finds_no_room_takes_that_of_the_slowest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those on their way the one that held most for longest goes, 408; whoever is done gives back what it held."""
    monkeypatch.setattr(bodies, "MOST_BODIES_BYTES", 250)
    service = SimpleNamespace(bodies=Bodies())

    async def body(last: asyncio.Event, size: int = 100) -> bytes:
        parts = iter([b"x" * size, b""])

        async def receive() -> MutableMapping[str, Any]:
            if not (part := next(parts)):
                await last.wait()
            return {"type": "http.request", "body": part, "more_body": bool(part)}

        return await requests.read_body(asked(receive, service), 100)

    async def four() -> None:
        last = asyncio.Event()
        slow = []
        for size in (1, 100, 100):
            slow.append(asyncio.create_task(body(last, size)))
            await asyncio.sleep(0.02)
        newest = asyncio.create_task(body(last))
        await asyncio.sleep(0.02)
        last.set()
        with pytest.raises(TurnedDown) as told:
            await slow[1]
        assert HTTP_STATUS[told.value.code] == 408
        assert await asyncio.gather(slow[0], slow[2], newest) == [b"x", b"x" * 100, b"x" * 100]

    asyncio.run(four())
    assert service.bodies.size == 0
