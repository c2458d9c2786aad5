"""What waits is on disk, and its places tell neither an order nor who came together."""

import os
from collections import Counter
from itertools import product

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


def an_envelope(number: int, length: int = MOST) -> bytes:
    return bytes([number]) * length


def put(spool: Spool, *envelopes: bytes, network: str | None = None, round_: int = 3) -> list[int]:
    placed = spool.place(envelopes, network, round_)
    spool.write(placed, round_)
    spool.flush()
    spool.admit(placed, round_)
    return placed.slots


def has_room(spool: Spool, count: int = 1, network: str = NETWORK, round_: int = 3) -> bool:
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


def test_a_network_has_its_share_of_all_rounds_that_wait(path) -> None:
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


async def test_a_flood_from_one_network_leaves_room_for_the_others(tmp_path, upstream) -> None:
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
