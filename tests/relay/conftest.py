"""A server that notes what it sees, with two surveys that declare the relay and one that declares another."""

import asyncio

import pytest
from changeling_aggregator.relay import forwarding

from ..protocol.examples import AUTHORITY
from .hand import ELSEWHERE, FIRST, KEY, SECOND, watching


@pytest.fixture
def upstream():
    with watching() as told:
        told.surveys, told.keys = [FIRST, SECOND, ELSEWHERE], [KEY.signed_by(AUTHORITY)]
        yield told


@pytest.fixture(autouse=True)
def by_hand(monkeypatch):
    """Pauses of milliseconds; and rounds begin when a test says so, not by the clock."""

    async def wait(_):
        await asyncio.Event().wait()

    monkeypatch.setattr(forwarding.Forwarding, "run", wait)
    monkeypatch.setattr(forwarding, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(forwarding, "MOST_PAUSE_SECONDS", 0.05)
