"""When envelopes go, and how many: by the round and by how many wait, and by nothing else."""

from dataclasses import replace
from itertools import permutations, product

import pytest
from changeling_aggregator.relay import Batching, RelaySettings
from changeling_aggregator.relay.forwarding import shuffled
from changeling_protocol import SystemCoins
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
