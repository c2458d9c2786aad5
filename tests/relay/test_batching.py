"""When envelopes go, and how many: by the round and how many wait alone; and under which key, whatever is offered."""

import random
from dataclasses import replace
from itertools import pairwise, permutations, product

import pytest
from changeling_aggregator.relay import Batching, RelaySettings
from changeling_aggregator.relay.files import choose
from changeling_aggregator.relay.forwarding import shuffled
from changeling_protocol import SealingKey, SystemCoins
from changeling_protocol.wire import MOST_BODY_BYTES, encode_upload_request

from ..coins import ListedCoins
from ..protocol.examples import survey

BATCHING = Batching(batch=100, wait=10, most_wait=60)


def test_a_batch_goes_in_full_bodies_and_fewer_stay():
    """99 stay; of 100 and more those go that fill bodies of 40, and which of them go is for the shuffle to say."""
    assert [BATCHING.due([5] * count, 6, 60, 40) for count in (0, 99, 100, 119, 120, 161)] == [0, 0, 80, 80, 120, 160]


def test_nobody_waits_beyond_the_longest_wait():
    """What came at the very start of a round goes before it has waited 60 s, with all others: at 60 s, not at 70."""
    for later in range(1, 9):
        assert BATCHING.due([0, later - 1], later, 60, 40) == (2 if later >= 6 else 0)
    assert BATCHING.due([7], 8, 5, 40) == 1  # a longest wait that is shorter than a round


def test_what_came_in_a_far_future_is_not_kept_for_it():
    """A clock was set back a little: it waits. By more than the longest wait, or rounds were shorter once: it goes."""
    assert [BATCHING.due([8 + ahead, 7], 8, 60, 40) for ahead in (1, 6, 7, 10**6)] == [0, 0, 2, 2]


@pytest.mark.parametrize(("grace", "longest"), [(2 * 3600, 60), (135, 60), (75, 30), (16, 0)])
def test_waiting_leaves_half_of_the_grace_to_those_who_are_late(grace, longest):
    """A device may send until skew and spread are over, 15 s; of what is left of its grace the relay takes half."""
    assert BATCHING.longest(replace(survey(), grace=grace)) == longest


def test_a_full_body_of_the_longest_envelopes_is_one_that_a_server_takes():
    """For lengths from 100 bytes to the longest that a survey can have, and never more than a batch."""
    for most_bytes in (100, 5_000, 16_000, 17_000, 300_000, 2_000_000):
        count = BATCHING.at_once(most_bytes)
        assert count >= 1
        if count > 1:
            assert len(encode_upload_request([bytes(most_bytes)] * count)) <= MOST_BODY_BYTES
    assert BATCHING.at_once(100) == 64
    assert replace(BATCHING, batch=7).at_once(100) == 7


@pytest.mark.parametrize("numbers", [(0, 10, 60), (1, 0, 60), (1, 61, 60)])
def test_a_batch_that_cannot_be_is_refused(numbers):
    """No envelope, no round, a round that is longer than the longest wait."""
    with pytest.raises(ValueError, match="at least 1"):
        Batching(*numbers)


def test_of_all_draws_each_gives_another_order():
    """For 5 items all 120 draws, each as likely as the next, give all 120 orders, whatever they came in."""
    for given in ("abcde", "edcba"):
        orders = [tuple(shuffled(given, ListedCoins(draws))) for draws in product(*map(range, (5, 4, 3, 2)))]
        assert sorted(orders) == sorted(permutations("abcde"))


def test_the_draws_are_the_operating_systems():
    """Unless a test brings its own."""
    assert isinstance(RelaySettings([], Batching(1, 1, 1), None, "", 1).coins, SystemCoins)


REST = 100


def key(number: int, begins: int = 0, expires: int = 10_000) -> SealingKey:
    return SealingKey(bytes([number]) * 32, begins, expires)


def offer(*keys: SealingKey) -> dict[bytes, SealingKey]:
    return {each.public + each.expires.to_bytes(8): each for each in keys}


def test_the_key_that_expires_first_is_chosen_and_kept_whatever_is_added():
    """In any order of the offer; one that is added later, to expire sooner, is not taken while the first lasts."""
    first, second, third = key(1, expires=2000), key(2, expires=3000), key(3, expires=1500)
    chosen = choose(None, offer(second, first), 0, REST)
    assert chosen.key == first
    assert choose(None, offer(first, second), 0, REST) == chosen
    assert choose(chosen, offer(third, second, first), 500, REST) == chosen


def test_a_key_is_given_up_before_it_expires_if_there_is_another():
    """So that what is sealed to it has the time to wait; without another it is served to its last second."""
    first, second = key(1, expires=2000), key(2, expires=3000)
    chosen = choose(None, offer(first, second), 0, REST)
    assert choose(chosen, offer(first, second), 1900, REST) == chosen
    assert choose(chosen, offer(first, second), 1901, REST).key == second
    alone = choose(chosen, offer(first), 1950, REST)
    assert alone.serves_at(2000)
    assert not alone.serves_at(2001)


def test_a_key_that_the_server_withdraws_is_served_no_more_and_replaced_after_the_rest():
    """In between there is none, so devices keep what they have; if it is offered again, it is served again."""
    first, second = key(1, expires=2000), key(2, expires=3000)
    chosen = choose(None, offer(first), 1000, REST)
    without = choose(chosen, offer(second), 1050, REST)
    assert not without.serves_at(1050)
    assert choose(without, offer(first, second), 1060, REST).serves_at(1060)
    assert choose(without, offer(second), 1100, REST).key == second


def test_whatever_the_server_offers_the_key_changes_once_in_a_rest():
    """2,000 random offers of keys with random dates, asked at random times: between two keys that were served there is
    always a rest, and what is served is valid and was offered."""
    chance, now, chosen, taken = random.Random(7), 0, None, []
    for _ in range(2000):
        now += chance.randrange(20)
        dates = [sorted((chance.randrange(now + 1), now + 1 + chance.randrange(2 * REST))) for _ in range(4)]
        offered = offer(*(key(chance.randrange(1, 9), *each) for each in dates))
        chosen = choose(chosen, offered, now, REST)
        if chosen and chosen.serves_at(now):
            assert chosen.signed in offered
            assert chosen.key.valid_at(now)
            if not taken or taken[-1][1] != chosen.signed:
                taken.append((now, chosen.signed))
    assert len(taken) > 50
    assert min(later - earlier for (earlier, _), (later, _) in pairwise(taken)) >= REST
