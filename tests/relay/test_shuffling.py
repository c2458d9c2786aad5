"""Every order is as likely as any other."""

from itertools import permutations, product

from changeling_aggregator.relay import Batching, RelaySettings
from changeling_aggregator.relay.forwarding import shuffled
from changeling_protocol import SystemCoins

from ..coins import ListedCoins


def test_of_all_draws_each_gives_another_order():
    """For 5 items all 120 draws, each as likely as the next, give all 120 orders, whatever they came in."""
    for given in ("abcde", "edcba"):
        orders = [tuple(shuffled(given, ListedCoins(draws))) for draws in product(*map(range, (5, 4, 3, 2)))]
        assert sorted(orders) == sorted(permutations("abcde"))


def test_the_draws_are_the_operating_systems():
    """Unless a test brings its own."""
    assert isinstance(RelaySettings([], Batching(1, 1, 1), None, "", 1).coins, SystemCoins)
