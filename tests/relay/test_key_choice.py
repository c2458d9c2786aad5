"""One key at a time, seldom another, whatever the server offers."""

import random
from itertools import pairwise

from changeling_aggregator.relay.copies import choose
from changeling_protocol import SealingKey

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
