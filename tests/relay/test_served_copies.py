"""Surveys, keys and the time come from the relay: the same to all, whatever the server says meanwhile."""

from email.utils import parsedate_to_datetime
from itertools import pairwise
from random import Random

import pytest
from changeling_aggregator import SpoolError
from changeling_aggregator.relay.files import choose
from changeling_protocol import SealingKey, encode
from changeling_protocol.wire import decode_key_list

from ..protocol.examples import AUTHORITY
from .hand import ELSEWHERE, FIRST, KEY, NOW, OTHER_KEY, Hand, asked, sealed


def path(survey):
    return f"/v1/surveys/{survey.id.hex()}"


async def statuses(http):
    """What devices and operators are answered."""
    return {(await http.get(where)).status_code for where in (path(FIRST), "/v1/keys", "/readyz")}


async def test_no_request_of_a_device_reaches_the_server(tmp_path, upstream):
    """Surveys, keys and uploads of ten devices: the server sees what it saw before them."""
    hand = Hand(tmp_path, upstream)
    async with asked(hand) as http:
        before = len(upstream.seen)
        for _ in range(10):
            answers = [await http.get(path(FIRST)), await http.get("/v1/keys"), await http.get("/readyz")]
            answers.append(await http.post("/v1/uploads", content=encode({"envelopes": [sealed()]})))
            assert [answer.status_code for answer in answers] == [200] * 4
            assert answers[0].content == FIRST.signed_by(AUTHORITY)
        assert (await http.get(path(ELSEWHERE))).status_code == 404
        assert len(upstream.seen) == before


async def test_one_key_is_served_and_the_same_whatever_the_server_offers(tmp_path, upstream):
    """It offers two, in any order; then others, expiring sooner and later; then keys that nobody signed."""
    upstream.keys = [OTHER_KEY.signed_by(AUTHORITY), KEY.signed_by(AUTHORITY)]
    sooner = SealingKey(bytes([9] * 32), 0, 2**39)
    hand = Hand(tmp_path, upstream)
    served = []
    async with asked(hand) as http:
        for more in ([], [sooner.signed_by(AUTHORITY)], [b"rubbish", sooner.signed_by(AUTHORITY)[:-1] + b"\0"]):
            upstream.keys = [*more, *reversed(upstream.keys)]
            hand.now += 1000
            await hand.relay.refresh()
            served.append((await http.get("/v1/keys")).content)
    assert {tuple(decode_key_list(body)) for body in served} == {(KEY.signed_by(AUTHORITY),)}


async def test_there_is_a_key_also_while_another_takes_its_place(tmp_path, upstream, monkeypatch):
    """Keys are chosen in a thread of their own, beside the requests of devices."""
    hand, meanwhile = Hand(tmp_path, upstream), []

    def chosen(*offered):
        meanwhile.append(hand.relay.copies.key_at(hand.now))
        return choose(*offered)

    async with asked(hand):
        monkeypatch.setattr("changeling_aggregator.relay.files.choose", chosen)
        upstream.keys = [OTHER_KEY.signed_by(AUTHORITY)]
        hand.now += 10**6
        await hand.relay.refresh()
        assert hand.relay.copies.key_at(hand.now) == OTHER_KEY.id
    assert meanwhile
    assert None not in meanwhile


async def test_the_time_is_the_relays_own(tmp_path, upstream):
    """On every answer, errors too; a server with another clock changes nothing."""
    hand = Hand(tmp_path, upstream)
    async with asked(hand) as http:
        upstream.headers = {"date": "Thu, 01 Jan 1970 00:00:00 GMT"}
        for where in ("/readyz", "/v1/keys", "/nowhere", path(FIRST)):
            (date,) = (await http.get(where)).headers.get_list("date")
            assert parsedate_to_datetime(date).timestamp() == hand.now


async def test_the_last_good_copies_are_served_for_a_day(tmp_path, upstream):
    """The server is away: all goes on, by a new process too; after a day the relay says 503."""
    async with Hand(tmp_path, upstream):
        pass
    hand = Hand(tmp_path, upstream, away=True)
    async with asked(hand) as http:
        for age, status in ((0, 200), (86_400, 200), (1, 503)):
            hand.now += age
            assert await statuses(http) == {status}
            upload = await http.post("/v1/uploads", content=encode({"envelopes": []}))
            assert (upload.status_code, "retry-after" in upload.headers) == (status, status == 503)


async def test_a_relay_that_never_reached_its_server_takes_nothing(tmp_path, upstream):
    """503 on all paths for devices, and in health."""
    async with asked(Hand(tmp_path, upstream, away=True)) as http:
        assert await statuses(http) == {503}


async def test_two_relays_do_not_share_a_folder(tmp_path, upstream):
    """The second is told so by name; once the first has gone it may."""
    async with Hand(tmp_path, upstream):
        with pytest.raises(SpoolError, match="another relay runs on"):
            Hand(tmp_path, upstream)
    async with Hand(tmp_path, upstream):
        pass


async def test_a_survey_that_the_server_does_not_have_keeps_nothing_else_from_being_served(tmp_path, upstream):
    """One of two that are named is not published yet: the other, and the key, are there."""
    async with asked(Hand(tmp_path, upstream, surveys=frozenset([FIRST.id, bytes(16)]))) as http:
        assert await statuses(http) == {200}


async def test_another_authority_takes_over_no_survey_and_no_key(tmp_path, upstream):
    """A relay that is started without the key that signed its surveys says which file that is; without surveys, it
    forgets the sealing keys that the other authority signed."""
    async with Hand(tmp_path, upstream):
        pass
    other = [bytes([7] * 32)]
    with pytest.raises(SpoolError, match=r"\.survey is no survey of the authority"):
        Hand(tmp_path, upstream, authority=other)
    for file in tmp_path.glob("*.survey"):
        file.unlink()
    async with Hand(tmp_path, upstream, authority=other) as hand:
        assert hand.relay.copies.key_at(hand.now) is None


SHORT = SealingKey(bytes([3] * 32), 0, NOW + 2000)
LIVES = {
    "given up before it expires, as there is another": [
        (0, [KEY, SHORT], SHORT),
        (1900, [KEY, SHORT], SHORT),
        (1901, [KEY, SHORT], KEY),
    ],
    "served to its last second, as there is no other": [
        (0, [SHORT], SHORT),
        (2000, [SHORT], SHORT),
        (2001, [SHORT], None),
    ],
    "withdrawn, offered again, and at last replaced": [
        (0, [KEY], KEY),
        (50, [OTHER_KEY], None),
        (60, [KEY, OTHER_KEY], KEY),
        (100, [OTHER_KEY], OTHER_KEY),
    ],
}
"""Of a key, where an envelope waits for 100 s at most: after how many seconds the server offers what, and what is
served."""


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
async def test_a_key_is_served_as_long_as_it_may_and_the_next_after_a_rest(tmp_path, upstream, life):
    """So that what is sealed to it has the time to wait. Where none is served devices keep what they have."""
    upstream.keys = [each.signed_by(AUTHORITY) for each in life[0][1]]
    hand = Hand(tmp_path, upstream, most_wait=100)
    async with asked(hand) as http:
        for seconds, keys, served in life:
            hand.now, upstream.keys = NOW + seconds, [each.signed_by(AUTHORITY) for each in keys]
            await hand.relay.refresh()
            found = decode_key_list((await http.get("/v1/keys")).content)
            assert found == ([] if served is None else [served.signed_by(AUTHORITY)]), seconds


def test_whatever_the_server_offers_the_key_changes_once_in_a_rest():
    """2,000 random offers of keys with random dates, asked at random times: between two keys that were served there is
    always a rest."""
    chance, rest, now, chosen, taken = Random(7), 100, 0, None, []
    for _ in range(2000):
        now += chance.randrange(20)
        dates = [sorted((chance.randrange(now + 1), now + 1 + chance.randrange(2 * rest))) for _ in range(4)]
        keys = [SealingKey(bytes([chance.randrange(1, 9)]) * 32, *each) for each in dates]
        offered = {each.public + each.expires.to_bytes(8): each for each in keys}
        chosen = choose(chosen, offered, now, rest)
        served = chosen and chosen.signed in offered and chosen.key.valid_at(now)
        if served and (not taken or taken[-1][1] != chosen.signed):
            taken.append((now, chosen.signed))
    assert len(taken) > 50
    assert min(later - earlier for (earlier, _), (later, _) in pairwise(taken)) >= rest
