"""A disk that fails, and processes that end between any two writes: nothing acknowledged is lost."""

import asyncio
import os
from unittest.mock import Mock

import pytest
from changeling_aggregator import Overloaded
from changeling_aggregator.relay.files import Spool

from ..aggregator.devices import body
from .hand import FIRST, Hand, asked, sealed


class Disk:
    """Writes and syncs of this process; from the one that is counted on they fail. after: how many still succeed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.after = 10**9
        for name in ("pwrite", "fdatasync"):
            monkeypatch.setattr(os, name, self.failing(getattr(os, name)))

    def failing(self, call):
        def called(*arguments):
            self.after -= 1
            if self.after < 0:
                raise OSError("the disk is gone")
            return call(*arguments)

        return called


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


async def test_what_cannot_be_kept_is_not_acknowledged_and_takes_no_room(tmp_path, upstream, disk):
    """Five requests meet a disk that fails: 503 with Retry-After. Once it works again there is room as before."""
    most = 600
    hand = Hand(tmp_path, upstream, room=4 * most)
    async with asked(hand) as http:
        free = len(hand.relay.copies.surveys[FIRST.id].spool._free)
        disk.after = 0
        answers = [await http.post("/v1/uploads", content=body(sealed())) for _ in range(5)]
        disk.after = 10**9
        assert await hand.take(*(sealed() for _ in range(free))) == {}
        with pytest.raises(Overloaded):
            await hand.take(sealed())
    assert {(answer.status_code, answer.headers["retry-after"]) for answer in answers} == {(503, "5")}


async def test_what_cannot_be_erased_is_whole_or_gone(tmp_path, upstream, disk):
    """The disk fails when one of three is overwritten: nothing waits, and what is left of the others is forwarded again
    by the next process, which the server drops by its id."""
    async with Hand(tmp_path, upstream, batch=3) as hand:
        await hand.take(*(sealed(number=number) for number in range(3)))
        disk.after = 1
        with pytest.raises(OSError, match="the disk is gone"):
            await hand.turn()
        disk.after = 10**9
        await hand.turn()
        assert hand.waiting() == []
    async with Hand(tmp_path, upstream) as hand:
        await hand.turn(200)
    assert [len(body) for body in upstream.bodies] == [3, 2]
    assert len(set(upstream.envelopes)) == 3


@pytest.mark.heavy
def test_a_process_that_ends_before_any_write_loses_nothing_that_it_acknowledged(tmp_path, upstream, disk):
    """Two requests are taken and forwarded, and the process ends before its first write, its second, … its last; the
    next process forwards what was acknowledged, if it was not before, and nothing that nobody sent."""

    async def live(folder, writes):
        acknowledged, sent = [], [sealed(number=number) for number in range(5)]
        upstream.seen.clear()
        async with Hand(folder, upstream, batch=5, room=10_000, surveys=frozenset([FIRST.id])) as hand:
            disk.after = writes
            try:
                for request in (sent[:2], sent[2:]):
                    await hand.take(*request)
                    acknowledged += request
                await hand.turn()
            except (OSError, Overloaded):
                pass
            ended, disk.after = disk.after < 0, 10**9
        async with Hand(folder, upstream, batch=5, room=10_000, surveys=frozenset([FIRST.id])) as hand:
            await hand.turn(200)
        assert set(acknowledged) <= set(upstream.envelopes) <= set(sent)
        return ended

    lives = [asyncio.run(live(tmp_path / f"{writes}", writes)) for writes in range(14)]
    assert lives == [True] * 13 + [False]  # 5 writes and 2 syncs of what came, 5 and 1 as it left


async def test_a_disk_without_room_for_a_survey_keeps_no_other_from_being_relayed(tmp_path, upstream, monkeypatch):
    """Nor the keys from being asked for; it is tried again."""
    real, failing = Spool.__init__, {f"{FIRST.id.hex()}.spool"}

    def init(self, path, *rest):
        if path.name in failing:
            raise OSError(28, "no room")
        real(self, path, *rest)

    monkeypatch.setattr(Spool, "__init__", init)
    async with Hand(tmp_path, upstream) as hand:
        assert hand.relay.is_ready
        assert len(hand.relay.copies.surveys) == 1
        failing.clear()
        await hand.relay.refresh()
        assert await hand.take(sealed()) == {}


async def test_a_full_disk_takes_what_it_took_before_and_keys_are_served_on(tmp_path, upstream, monkeypatch):
    """Places for envelopes are reserved; only what the server newly tells cannot be kept, so a restart forgets it."""
    full = OSError(28, "no space left on device")
    hand = Hand(tmp_path, upstream)
    async with asked(hand) as http:
        monkeypatch.setattr(os, "fsync", Mock(side_effect=full))
        hand.now += 86_000
        await hand.relay.refresh()
        hand.now += 1000
        answers = [await http.get(where) for where in ("/v1/keys", "/readyz")]
        answers.append(await http.post("/v1/uploads", content=body(sealed())))
        monkeypatch.undo()
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert os.path.getsize(tmp_path / "sealing-keys") > 0
