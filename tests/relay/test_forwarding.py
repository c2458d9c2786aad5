"""What the server sees of a relay: shuffled batches in full bodies, in the same words, until it has taken all."""

import asyncio
import logging
import time
from types import SimpleNamespace

from changeling_protocol import HEAD_BYTES, SEAL_BYTES, Refusal, encode

from ..protocol.examples import AUTHORITY
from .hand import ELSEWHERE, FIRST, NOW, OTHER_KEY, SECOND, Hand, asked, number_of, sealed


async def test_positions_are_uniform_given_the_batch(tmp_path, upstream):
    """24 batches of 8 that came in one known order, two to a request: Pearson's statistic of places by arrivals.

    Rows and columns of the 8 by 8 table are fixed, so for uniform orders the statistic, times 7/8, has about 49 degrees
    of freedom; above 110 has a chance of about 1e-6. The seed is fixed. An order that is kept gives 1,176.
    """
    places = [[0] * 8 for _ in range(8)]
    async with Hand(tmp_path, upstream, batch=8) as hand:
        for _ in range(24):
            hand.now = NOW
            for first in range(0, 8, 2):
                assert await hand.take(sealed(number=first), sealed(number=first + 1)) == {}
            await hand.turn()
    assert [len(body) for body in upstream.bodies] == [8] * 24
    for body in upstream.bodies:
        for place, envelope in enumerate(body):
            places[number_of(envelope)][place] += 1
    expected = 24 / 8
    statistic = sum((count - expected) ** 2 / expected for row in places for count in row) * 7 / 8
    assert statistic < 110


async def test_fewer_than_a_batch_stay_until_the_longest_wait(tmp_path, upstream):
    """9 of 10 go nowhere for nine rounds, then together; the tenth of another survey does not help them out."""
    async with Hand(tmp_path, upstream) as hand:
        await hand.take(*(sealed(number=number) for number in range(9)), sealed(SECOND))
        for _ in range(9):
            await hand.turn()
            assert upstream.uploads == []
        await hand.turn()
    assert sorted(map(len, upstream.bodies)) == [1, 9]


async def test_a_body_is_of_one_survey_and_one_key_and_full(tmp_path, upstream):
    """25 of one survey and 13 of another, in mixed requests, batches of 10: bodies of 10, the rest waits; then the key
    changes, and what is sealed to either goes apart."""
    async with Hand(tmp_path, upstream, batch=10) as hand:
        for number in range(25):
            await hand.take(sealed(number=number), *([sealed(SECOND, number)] if number < 13 else []))
        await hand.turn()
        assert sorted(len(body) for body in upstream.bodies) == [10, 10, 10]
        upstream.keys = [OTHER_KEY.signed_by(AUTHORITY)]
        hand.now += 90
        await hand.relay.refresh()
        assert await hand.take(sealed(number=25)) == {0: Refusal.UNKNOWN_KEY}
        hand.now += 10
        await hand.relay.refresh()
        assert await hand.take(*(sealed(number=26 + number, key=OTHER_KEY) for number in range(10))) == {}
        await hand.turn()
    heads = [{envelope[:HEAD_BYTES] for envelope in body} for body in upstream.bodies]
    assert all(len(head) == 1 for head in heads)
    assert len(upstream.envelopes) == len(set(upstream.envelopes)) == 48


def test_nothing_but_the_envelopes_differs_from_upload_to_upload(tmp_path, upstream):
    """Headers, path and length are the same in every upload of envelopes of one length, also across restarts; the
    relay's own token goes with uploads, and with nothing else."""

    async def run(name):
        async with Hand(tmp_path / name, upstream, token="of the relay") as hand:
            for _ in range(3):
                await hand.take(*(sealed() for _ in range(10)))
                await hand.turn()

    asyncio.run(run("one"))
    asyncio.run(run("two"))
    assert len({(each.path, tuple(each.headers), len(each.body), each.peer) for each in upstream.uploads}) == 1
    names = [name.lower() for name, _ in upstream.uploads[0].headers]
    assert names.count("user-agent") == 1
    shown = {(each.method, dict(each.headers).get("authorization")) for each in upstream.seen}
    assert shown == {("POST", "Bearer of the relay"), ("GET", None)}
    assert not {"cookie", "x-forwarded-for", "forwarded", "date", "via"} & set(names)


async def test_devices_hear_the_same_whatever_the_server_refuses(tmp_path, upstream, caplog):
    """The server refuses 4 of 10, for two reasons and one that is none: counted, gone from the relay, and no device
    hears of it. What the server wrote is not in the log."""
    strange = SimpleNamespace(value="written by\nthe server")
    upstream.refused = {0: Refusal.EXPIRED_KEY, 4: Refusal.UNKNOWN_KEY, 7: Refusal.EXPIRED_KEY, 8: strange}
    async with Hand(tmp_path, upstream) as hand:
        heard = [await hand.take(sealed(number=number)) for number in range(10)]
        await hand.turn()
        heard += [await hand.take(sealed(number=number)) for number in range(10)]
        refused = hand.relay._forwarding[FIRST.id].refused
        assert len(hand.waiting()) == 10
    assert heard == [{}] * 20
    assert refused == {Refusal.EXPIRED_KEY: 2, Refusal.UNKNOWN_KEY: 1, None: 1}
    assert "of 10 the server refused 1 otherwise, 1 unknown-key, 2 expired-key" in caplog.text
    assert "written" not in caplog.text


async def test_a_server_that_fails_gets_the_same_body_again_until_it_takes_it(tmp_path, upstream, caplog):
    """503 with Retry-After, 500, then 200: after the silence that was asked for, the very same bytes, once kept. Of a
    device, and of what it sent, taken or refused or rubbish, nothing is logged."""
    caplog.set_level(logging.DEBUG, "changeling_aggregator")
    planned, noticed, honest = [(503, {"retry-after": "1"}), (500, {}), (200, {})], [], upstream.answer
    envelopes, hand = [sealed() for _ in range(10)], Hand(tmp_path, upstream)

    def answer(seen):
        if seen.method == "POST":
            noticed.append((hand.relay.notice, hand.relay.trouble, time.monotonic()))
            upstream.status, upstream.headers = planned.pop(0)
        return honest(seen)

    upstream.answer = answer
    async with asked(hand) as http:
        for content in (encode({"envelopes": [*envelopes, b"", envelopes[0][:60]]}), b"\xff" * 100):
            await http.post("/v1/uploads", content=content)
        await hand.turn()
        assert (hand.relay.notice, hand.waiting()) == ("ok", [])
    notices, troubles, times = zip(*noticed, strict=True)
    assert notices == ("ok", *["forwarding fails at present: what comes is kept"] * 2)
    assert troubles == (None,) * 3
    assert times[1] - times[0] >= 1
    assert len({seen.body for seen in upstream.uploads}) == 1
    assert caplog.records
    assert not [word for word in ("127.0.0.1", envelopes[0][33:].hex(), "\\x") if word in caplog.text]


async def test_a_server_that_takes_smaller_bodies_gets_halves(tmp_path, upstream):
    """413 for more than 3 envelopes: each of 10 arrives once."""
    upstream.most_envelopes = 3
    async with Hand(tmp_path, upstream) as hand:
        await hand.take(*(sealed(number=number) for number in range(10)))
        await hand.turn()
    taken = [number_of(envelope) for body in upstream.bodies if len(body) <= 3 for envelope in body]
    assert sorted(taken) == list(range(10))


async def test_what_waits_survives_a_restart_and_a_clock_that_is_set_back(tmp_path, upstream):
    """A new process on the folder, its clock a minute behind: nothing goes at the start, all in the next round."""
    async with Hand(tmp_path, upstream) as hand:
        await hand.take(*(sealed(number=number) for number in range(12)))
    hand = Hand(tmp_path, upstream, batch=12, away=True)
    hand.now -= 60
    async with hand:
        assert hand.relay.is_ready
        assert len(hand.waiting()) == 12
        assert upstream.uploads == []

    async with Hand(tmp_path, upstream, batch=12) as hand:
        hand.now -= 60
        await hand.turn()
    assert sorted(map(number_of, upstream.envelopes)) == list(range(12))


async def test_only_what_can_be_seen_from_outside_is_refused(tmp_path, upstream):
    """Rubbish, another version, a survey of another relay, a strange key, a survey not begun, and one byte too many."""
    async with Hand(tmp_path, upstream) as hand:
        most = hand.relay.copies.surveys[FIRST.id].most_bytes
        good = sealed()
        longest = good + bytes(most - len(good))
        refused = await hand.take(
            b"",
            good[: HEAD_BYTES + SEAL_BYTES],
            b"\xff" + good[1:],
            sealed(ELSEWHERE),
            sealed(key=OTHER_KEY),
            longest,
            longest + b"\0",
            good,
        )
        for hand.now in (FIRST.calendar.start - 1, FIRST.calendar.time(8) + FIRST.grace + 1):
            assert await hand.take(good) == {0: Refusal.CLOSED}
    malformed = dict.fromkeys(range(3), Refusal.MALFORMED)
    assert refused == {**malformed, 3: Refusal.UNKNOWN_SURVEY, 4: Refusal.UNKNOWN_KEY, 6: Refusal.TOO_LARGE}


async def test_a_survey_that_is_over_leaves_no_file_once_nothing_of_it_waits(tmp_path, upstream):
    """And it is not fetched again."""
    async with Hand(tmp_path, upstream, surveys=frozenset([FIRST.id])) as hand:
        await hand.take(sealed())
        hand.now = FIRST.calendar.time(8) + FIRST.grace + 3601
        await hand.relay.refresh()
        assert FIRST.id in hand.relay.copies.surveys
        await hand.turn()
        await hand.relay.refresh()
        await hand.relay.refresh()
        assert hand.relay.copies.surveys == {}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["lock", "sealing-keys"]
    assert len(upstream.envelopes) == 1
