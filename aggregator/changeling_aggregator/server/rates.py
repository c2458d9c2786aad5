"""How many requests a network sends, in memory alone.

A network is known by a keyed hash of its address's prefix, under a key that is drawn anew every day and kept nowhere
else. So what is in memory names nobody, and nothing of yesterday can be laid beside today.
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

DAY_SECONDS = 86_400.0
BURST_SECONDS = 20.0
"""A network that was silent may send what it is allowed in so many seconds at once."""
MOST_NETWORKS = 100_000
"""So many are remembered, those that sent last; each takes some 150 bytes."""


class Rates:
    """The rates of all networks. most: requests a second of one of them. clock: seconds of a clock that nobody sets."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._pause, self._clock = 1 / most, clock
        self._since = clock()
        self._key = os.urandom(32)
        self._due: OrderedDict[bytes, float] = OrderedDict()
        """When all that a network has sent would have been sent at the allowed rate."""

    def wait_of(self, network: str) -> float:
        """Count a request of a network; returns 0, or for how many seconds it is too early, and is not counted."""
        now = self._clock()
        if now - self._since >= DAY_SECONDS:
            self._since, self._key = now, os.urandom(32)
            self._due.clear()
        name = blake2b(network.encode(), key=self._key, digest_size=16).digest()
        due = max(self._due.get(name, now), now) + self._pause
        if (early := due - now - BURST_SECONDS) > 0:
            return early
        self._due[name] = due
        self._due.move_to_end(name)
        if len(self._due) > MOST_NETWORKS:
            self._due.popitem(last=False)
        return 0.0
