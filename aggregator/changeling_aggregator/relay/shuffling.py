"""The order in which envelopes are forwarded: any order with the same chance."""

from collections.abc import Iterable
from typing import TypeVar

from changeling_protocol import Coins

_Item = TypeVar("_Item")


def shuffled(items: Iterable[_Item], coins: Coins) -> list[_Item]:
    """The items in an order that is uniform over all orders, whatever the one they come in."""
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        drawn = coins.below(last + 1)
        order[last], order[drawn] = order[drawn], order[last]
    return order
