"""What waits is on disk, and its places tell neither an order nor who came together; nothing acknowledged is lost where
the disk fails, or a process ends between any two writes."""

import asyncio
import os
from collections import Counter
from itertools import product
from unittest.mock import Mock

import pytest
from changeling_aggregator import Overloaded
from changeling_aggregator.relay.files import SHARE, Spool
from changeling_protocol import HEAD_BYTES, SEAL_BYTES

from ..aggregator.devices import body
from ..coins import ListedCoins, SeededCoins
from .hand import FIRST, SECOND, Hand, asked, at, sealed

MOST = HEAD_BYTES + SEAL_BYTES + 10
SLOT = MOST + 28
NETWORK, OTHER = "192.0.2.0/24", "198.51.100.0/24"


def an_envelope(number, length=MOST):
    return bytes([number]) * length


def put(spool, *envelopes, network=None, round_=3):
    placed = spool.place(envelopes, network, round_)
    spool.write(placed, round_)
    spool.flush()
    spool.admit(placed, round_)
    return placed.slots


def has_room(spool, count=1, network=NETWORK, round_=3):
    """Whether so many more of a network would be taken; none are."""
    try:
        spool.give_back(spool.place([an_envelope(1)] * count, network, round_))
    except Overloaded:
        return False
    return True


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spool"


def test_the_file_is_the_same_whatever_came_first_and_whatever_came_together(path):
    """Over all draws of places, for three envelopes: a file is as likely for every order, in one request or three."""
    a, b, c = an_envelope(1), an_envelope(2, MOST - 5), an_envelope(3)

    def files(*requests):
        found = Counter()
        for draws in product(range(4), range(3), range(2)):
            path.unlink(missing_ok=True)
            spool = Spool(path, MOST, 4 * SLOT, ListedCoins(draws))
            for envelopes in requests:
                put(spool, *envelopes)
            spool.close()
            found[path.read_bytes()] += 1
        return found

    together = files([a, b, c])
    assert len(together) == 24
    assert together == files([a], [b], [c]) == files([c], [b], [a]) == files([b, c], [a]) == files([c, a, b])


def test_what_was_flushed_is_there_after_a_restart_with_its_round_and_key(path):
    """And nothing else is; places that are free again can be taken."""
    spool = Spool(path, MOST, 10 * SLOT, SeededCoins(1))
    put(spool, an_envelope(1), round_=8)
    gone = put(spool, an_envelope(2), an_envelope(4))
    put(spool, an_envelope(3, MOST - 1), round_=9)
    spool.erase(gone)
    spool.close()
    spool = Spool(path, MOST, 10 * SLOT, SeededCoins(2))
    waiting = spool.waiting()
    kept = dict(zip(spool.read([each.slot for each in waiting]), waiting, strict=True))
    assert set(kept) == {an_envelope(1), an_envelope(3, MOST - 1)}
    assert (kept[an_envelope(1)].round, kept[an_envelope(1)].key) == (8, bytes([1]) * 16)
    put(spool, *(an_envelope(number) for number in range(10, 18)))
    spool.close()


def test_an_envelope_torn_at_any_byte_is_none_and_harms_no_other(path):
    """A crash left any number of the bytes of a record, which nobody was told of: it is not found, its bytes go."""
    spool = Spool(path, MOST, 2 * SLOT, ListedCoins([0, 0]))
    put(spool, an_envelope(1))
    put(spool, an_envelope(2))
    spool.close()
    whole = path.read_bytes()
    for torn in range(SLOT):
        path.write_bytes(whole[:torn] + bytes(SLOT - torn) + whole[SLOT:])
        spool = Spool(path, MOST, 2 * SLOT, SeededCoins(1))
        (left,) = spool.waiting()
        assert spool.read([left.slot]) == [whole[SLOT + 28 :]]
        spool.close()
        assert path.read_bytes()[:SLOT] == bytes(SLOT)


def test_nothing_of_what_left_is_in_the_file(path):
    """All zeros once everything is erased; and it is its owner's alone."""
    spool = Spool(path, MOST, 5 * SLOT, SeededCoins(1))
    spool.erase(put(spool, *(an_envelope(number) for number in range(1, 5))))
    spool.close()
    assert not any(path.read_bytes())
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_spool_takes_nothing_and_loses_nothing(path):
    """Its room is taken from the disk at the start, so it holds what it says."""
    spool = Spool(path, MOST, 3 * SLOT + 1, SeededCoins(1))
    assert os.stat(path).st_blocks * 512 >= 3 * SLOT
    put(spool, an_envelope(1), an_envelope(2))
    with pytest.raises(Overloaded):
        spool.place([an_envelope(3), an_envelope(4)], None, 3)
    spool.give_back(spool.place([an_envelope(3)], None, 3))
    put(spool, an_envelope(3))
    assert len(spool.waiting()) == 3
    spool.close()


def test_a_disk_without_room_is_named(path):
    """At the start, with the file, and not when envelopes come."""
    with pytest.raises(OSError, match="no room of") as refused:
        Spool(path, MOST, 2**55, SeededCoins(1))
    assert refused.value.filename == str(path)


def test_no_network_fills_a_spool_over_many_starts(path):
    """What was there at a start is nobody's: shares are of the rest, until it has left."""
    for kept in (0, 2, 3):  # an eighth of 16, of 14
        spool = Spool(path, MOST, 16 * SLOT, SeededCoins(1))
        assert len(spool.waiting()) == kept
        taken = 0
        while has_room(spool):
            put(spool, an_envelope(1), network=NETWORK)
            taken += 1
        assert taken == (16 - kept) // 8
        spool.close()
    spool = Spool(path, MOST, 16 * SLOT, SeededCoins(1))
    spool.erase([each.slot for each in spool.waiting()])
    put(spool, an_envelope(1), an_envelope(2), network=NETWORK, round_=4)
    assert not has_room(spool, round_=4)
    spool.close()


def test_a_network_has_its_share_of_all_rounds_that_wait(path):
    """Whatever it puts in and when; what left with its round makes room again, and so does what was not put in. A share
    is one envelope at least."""
    spool, one = Spool(path, MOST, 10 * SHARE * SLOT, SeededCoins(1)), an_envelope(1)
    first = put(spool, *[one] * 6, network=NETWORK, round_=1)
    assert not has_room(spool, 5)
    second = put(spool, *[one] * 4, network=NETWORK, round_=2)
    assert (has_room(spool), has_room(spool, 10, OTHER)) == (False, True)
    spool.erase(first)
    spool.forget_shares(4)
    assert not has_room(spool), "the round before the first that waits counts as well"
    spool.erase(second)
    spool.forget_shares(9)
    assert has_room(spool, 10, round_=9)
    spool.close()
    smallest = Spool(path.with_name("smallest"), MOST, SLOT, SeededCoins(1))
    put(smallest, one, network=NETWORK, round_=1)
    smallest.close()


async def test_a_flood_from_one_network_leaves_room_for_the_others(tmp_path, upstream):
    """It hears 503 with Retry-After at its share, others are taken; once its envelopes went it has a share again."""
    hand = Hand(tmp_path / "relay", upstream, room=2**17)
    async with asked(hand, "192.0.2.7") as http:
        taken = 0
        while (answer := await http.post("/v1/uploads", content=body(sealed()))).status_code == 200:
            taken += 1
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        copy = hand.relay.copies.surveys[FIRST.id]
        assert taken == 2**17 // copy.spool._slot_bytes // SHARE
        assert (await http.post("/v1/uploads", content=body(sealed(SECOND)))).status_code == 200
        for neighbour, status in (("192.0.2.200", 503), ("198.51.100.1", 200), ("2001:db8:1:2::3", 200)):
            async with at(http._transport.app, neighbour) as other:
                answer = await other.post("/v1/uploads", content=body(sealed()))
                assert answer.status_code == status, neighbour
        assert (await http.post("/v1/uploads", content=body(sealed()))).status_code == 503
        while copy.spool.waiting():
            await hand.turn()
        await hand.turn()
        assert (await http.post("/v1/uploads", content=body(sealed()))).status_code == 200


class Disk:
    """Writes and syncs of this process; from the one that is counted on they fail. after: how many still succeed."""

    def __init__(self, monkeypatch):
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
