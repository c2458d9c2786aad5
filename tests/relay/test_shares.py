"""No network can fill a relay's room and shut the others out; and whose envelope is where is not remembered."""

import asyncio

import httpx
from changeling_aggregator.relay.spool import SHARE, NetworkShares

from ..aggregator.devices import body
from .hand import Hand, asked, sealed

NETWORK, OTHER = "192.0.2.0/24", "198.51.100.0/24"


def test_a_network_has_its_share_of_all_rounds_that_wait() -> None:
    """Whatever it puts in and when; what left with its round makes room again, and so does what was not put in."""
    shares = NetworkShares(10 * SHARE)
    assert shares.take(NETWORK, 6, 1)
    assert not shares.take(NETWORK, 5, 2)
    assert shares.take(NETWORK, 4, 2)
    assert not shares.take(NETWORK, 1, 3)
    assert shares.take(OTHER, 10, 3)
    shares.give_back(NETWORK, 3, 2)
    assert shares.take(NETWORK, 3, 3)
    shares.forget_gone([2, 3], 4)
    assert not shares.take(NETWORK, 1, 4)
    shares.forget_gone([3, 4], 5)
    assert shares.take(NETWORK, 6, 5)
    assert not shares.take(NETWORK, 1, 5)
    shares.forget_gone([], 9)
    assert shares.take(NETWORK, 10, 9)


def test_the_smallest_room_has_a_place_for_every_network() -> None:
    """A share is at least one envelope."""
    shares = NetworkShares(1)
    assert shares.take(NETWORK, 1, 1)
    assert shares.take(OTHER, 1, 1)
    assert not shares.take(OTHER, 1, 1)


def test_a_flood_from_one_network_leaves_room_for_the_others(tmp_path, upstream) -> None:
    """It hears 503 with Retry-After at its share, others are taken; once its envelopes went it has a share again."""

    async def run() -> None:
        hand = Hand(tmp_path / "relay", upstream)
        async with asked(hand, "192.0.2.7") as http:
            taken = 0
            while (answer := await http.post("/v1/uploads", content=body(sealed()))).status_code == 200:
                taken += 1
            assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
            (copy,) = [copy for copy in hand.relay.copies.surveys.values() if copy.spool.waiting()]
            assert taken == 2**20 // copy.spool._slot_bytes // SHARE
            for neighbour, status in (("192.0.2.200", 503), ("198.51.100.1", 200), ("2001:db8:1:2::3", 200)):
                transport = httpx.ASGITransport(http._transport.app, client=(neighbour, 1))
                async with httpx.AsyncClient(transport=transport, base_url="http://relay") as other:
                    answer = await other.post("/v1/uploads", content=body(sealed()))
                    assert answer.status_code == status, neighbour
            assert (await http.post("/v1/uploads", content=body(sealed()))).status_code == 503
            while copy.spool.waiting():
                await hand.turn()
            assert (await http.post("/v1/uploads", content=body(sealed()))).status_code == 200

    asyncio.run(run())
