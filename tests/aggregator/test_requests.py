"""Bodies that come slowly, or not at all."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from types import SimpleNamespace
from typing import Any

import pytest
from changeling_aggregator.errors import Overloaded, TurnedDown
from changeling_aggregator.server import requests
from changeling_protocol.wire import STATUS
from starlette.requests import Request
from starlette.types import Receive


def refusal(messages: AsyncIterator[MutableMapping[str, Any]]) -> int:
    """The status that a body of these messages is refused with."""

    async def receive() -> MutableMapping[str, Any]:
        return await anext(messages)

    with pytest.raises(TurnedDown) as refused:
        asyncio.run(requests.read_body(asked(receive, SimpleNamespace(body_bytes=0)), 100))
    return STATUS[refused.value.code]


def asked(receive: Receive, service: object) -> Request:
    app = SimpleNamespace(state=SimpleNamespace(service=service))
    return Request({"type": "http", "method": "POST", "headers": [], "app": app}, receive)


def test_a_body_that_does_not_end_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a byte of it arrives, it is held in memory for so long only: 408."""
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.05)

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


def test_slow_bodies_share_what_memory_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that would exceed it is told to come again; whoever is done gives back what it held."""
    monkeypatch.setattr(requests, "MOST_BODIES_BYTES", 250)
    service = SimpleNamespace(body_bytes=0)

    async def body(last: asyncio.Event) -> bytes:
        parts = iter([b"x" * 100, b""])

        async def receive() -> MutableMapping[str, Any]:
            if not (part := next(parts)):
                await last.wait()
            return {"type": "http.request", "body": part, "more_body": bool(part)}

        return await requests.read_body(asked(receive, service), 100)

    async def three() -> None:
        last = asyncio.Event()
        slow = [asyncio.create_task(body(last)) for _ in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(Overloaded):
            await body(last)
        last.set()
        assert await asyncio.gather(*slow) == [b"x" * 100] * 2
        assert await body(last) == b"x" * 100

    asyncio.run(three())
    assert service.body_bytes == 0
