"""What a server sees of a relay: shuffled batches in full bodies, in the same words, until it has taken all; also where
it tries to tell devices apart, or to hold the relay up."""

import gzip
import logging
import time
from dataclasses import replace
from itertools import permutations, product
from random import Random
from types import SimpleNamespace

import pytest
from changeling_aggregator import UpstreamTrouble
from changeling_aggregator.relay import Batching, RelaySettings, Upstream, forwarding
from changeling_aggregator.relay.forwarding import shuffled
from changeling_protocol import HEAD_BYTES, SEAL_BYTES, Refusal, SystemCoins, encode
from changeling_protocol.wire import (
    MOST_BODY_BYTES,
    decode_upload_request,
    encode_acknowledgement,
    encode_upload_request,
)

from ..client_sdk.loopback import answering, dripping, serving
from ..coins import ListedCoins
from ..protocol.examples import AUTHORITY, survey
from .hand import ELSEWHERE, FIRST, KEY, NOW, OTHER_KEY, SECOND, Hand, asked, number_of, sealed, watching

BATCHING = Batching(batch=100, wait=10, most_wait=60)


def test_a_batch_goes_in_full_bodies_and_nobody_waits_beyond_the_longest_wait():
    """99 stay; of 100 and more those go that fill bodies of 40, and which of them go is for the shuffle to say. What
    came at the very start of a round goes before it has waited 60 s, with all others: at 60 s, not at 70. What came in
    the future, as a clock was set back a little, waits; in a far one, by a clock or rounds that were others once, it
    goes."""
    assert [BATCHING.due([5] * count, 6, 60, 40) for count in (0, 99, 100, 119, 120, 161)] == [0, 0, 80, 80, 120, 160]
    for later in range(1, 9):
        assert BATCHING.due([0, later - 1], later, 60, 40) == (2 if later >= 6 else 0)
    assert BATCHING.due([7], 8, 5, 40) == 1  # a longest wait that is shorter than a round
    assert [BATCHING.due([8 + ahead, 7], 8, 60, 40) for ahead in (1, 6, 7, 10**6)] == [0, 0, 2, 2]


def test_waiting_leaves_half_of_the_grace_to_those_who_are_late():
    """A device may send until skew and spread are over, 15 s; of what is left of its grace the relay takes half. No
    envelope, no round, and a round that is longer than the longest wait are refused."""
    for grace, longest in ((2 * 3600, 60), (135, 60), (75, 30), (16, 0)):
        assert BATCHING.longest(replace(survey(), grace=grace)) == longest
    for numbers in ((0, 10, 60), (1, 0, 60), (1, 61, 60)):
        with pytest.raises(ValueError, match="at least 1"):
            Batching(*numbers)


def test_a_full_body_of_the_longest_envelopes_is_one_that_a_server_takes():
    """For lengths from 100 bytes to the longest that a survey can have, and never more than a batch."""
    for most_bytes in (100, 5_000, 16_000, 17_000, 300_000, 2_000_000):
        count = BATCHING.at_once(most_bytes)
        assert count >= 1
        if count > 1:
            assert len(encode_upload_request([bytes(most_bytes)] * count)) <= MOST_BODY_BYTES
    assert BATCHING.at_once(100) == 64
    assert replace(BATCHING, batch=7).at_once(100) == 7


def test_of_all_draws_each_gives_another_order():
    """For 5 items all 120 draws, each as likely as the next, give all 120 orders, whatever they came in. The draws are
    the operating system's, unless a test brings its own."""
    for given in ("abcde", "edcba"):
        orders = [tuple(shuffled(given, ListedCoins(draws))) for draws in product(*map(range, (5, 4, 3, 2)))]
        assert sorted(orders) == sorted(permutations("abcde"))
    assert isinstance(RelaySettings([], Batching(1, 1, 1), None, "", 1).coins, SystemCoins)


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


async def test_nothing_but_the_envelopes_differs_from_upload_to_upload(tmp_path, upstream):
    """Headers, path and length are the same in every upload of envelopes of one length, also across restarts; the
    relay's own token goes with uploads, and with nothing else."""
    for name in ("one", "two"):
        async with Hand(tmp_path / name, upstream, token="of the relay") as hand:
            for _ in range(3):
                await hand.take(*(sealed() for _ in range(10)))
                await hand.turn()
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


async def test_a_relay_whose_token_the_server_does_not_take_says_so_at_its_start(tmp_path, upstream, caplog):
    """Once, before anything came; until it is taken."""
    upstream.status = 401
    async with Hand(tmp_path, upstream, token="revoked") as hand:
        for _ in range(2):
            await hand.relay.try_token()
        assert "token" in hand.relay.notice
        assert upstream.seen[-1].body == encode_upload_request([])
        [said] = caplog.messages
        assert "status 401" in said
        upstream.status = 200
        await hand.relay.try_token()
        assert hand.relay.notice == "ok"


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


async def one_life(folder, told, moves, devices):
    """What devices hear of each envelope, in six rounds. moves: what the server does: it fails, takes small bodies
    alone, refuses some of what it sees, offers and withdraws keys; and how many envelopes come in a round. devices: who
    sends them: how many in one request, and when within the round."""
    heard, honest = [], told.answer

    def answer(seen):
        if seen.method != "POST":
            return (503, b"") if moves.random() < 0.1 else honest(seen)
        if moves.random() < 0.3:
            return moves.choice([500, 503, 400, 413]), b""
        places = range(len(decode_upload_request(seen.body)))
        return 200, encode_acknowledgement({each: Refusal.LATE for each in places if moves.random() < 0.2})

    async with Hand(folder, told, batch=6) as hand:
        told.answer = answer
        for _ in range(6):
            begin, until = hand.now, len(heard) + moves.randrange(12)
            while (sent := len(heard)) < until:
                hand.now = devices.randrange(hand.now, begin + 10)
                numbers = range(sent, min(until, sent + devices.randint(1, 3)))
                refused = await hand.take(*(sealed(number=each, content=bytes([each]) * 200) for each in numbers))
                heard += [refused.get(each) for each in range(len(numbers))]
            hand.now = begin
            told.keys = [key.signed_by(AUTHORITY) for key in moves.choice([[KEY], [KEY], [KEY, OTHER_KEY], []])]
            await hand.relay.refresh()
            await hand.turn(moves.choice([10, 10, 40]))
    return heard


@pytest.mark.parametrize("seed", range(2))
async def test_a_hostile_server_sees_the_same_whoever_sent_what_and_when_in_a_round(tmp_path, seed):
    """Whether the envelopes of a round came of one device or of many, and at which second of it, changes no byte of
    what it sees, and nothing that devices hear."""
    worlds = []
    for devices in range(2):
        with watching() as told:
            told.surveys, told.keys = [FIRST], [KEY.signed_by(AUTHORITY)]
            heard = await one_life(tmp_path / str(devices), told, Random(seed), Random(devices))
            worlds.append((heard, [(seen.method, seen.path, seen.body) for seen in told.seen]))
    assert len(told.uploads) >= 3
    assert None in heard
    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("url", ["http://server.example", "server.example", "ftp://x", "https://a/?b", "https://"])
def test_a_server_is_https_or_on_loopback(url):
    """Envelopes are sealed, but their heads are not, and nobody else is to see how many there are."""
    with pytest.raises(ValueError, match="the server's URL must be"):
        Upstream(url)


def endless(connection, _stop):
    connection.request()
    connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.send(bytes(2**16))


PACKED = gzip.compress(bytes(10_000_000))
ANSWERS = {
    "a byte now and then": (dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", b"x"), "TimeoutError"),
    "more than a mebibyte": (endless, "the server's answer is longer than 1048576 bytes"),
    "packed, which is not unpacked": (answering(PACKED, b"content-encoding: gzip\r\n"), "cannot be read"),
}


@pytest.mark.timed
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_that_no_server_gives_is_given_up(monkeypatch, name):
    """All in all it takes no longer, and no more memory, than an exchange may."""
    monkeypatch.setattr(forwarding, "TIMEOUT_SECONDS", 0.5)
    behave, words = ANSWERS[name]

    with serving(behave) as server:
        upstream, begun = Upstream(server.url), time.monotonic()
        with pytest.raises(UpstreamTrouble, match=words):
            await upstream.keys()
        assert time.monotonic() - begun < 5
        await upstream.close()
