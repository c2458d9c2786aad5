"""Bodies that come slowly, or not at all."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest
from changeling_aggregator.server import requests
from starlette.exceptions import HTTPException
from starlette.requests import Request


def refusal(messages: AsyncIterator[MutableMapping[str, Any]]) -> int:
    """The status that a body of these messages is refused with."""

    async def receive() -> MutableMapping[str, Any]:
        return await anext(messages)

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(HTTPException) as refused:
        asyncio.run(requests.read_body(request, 100))
    return refused.value.status_code


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
