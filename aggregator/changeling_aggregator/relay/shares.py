"""How much of a spool's room the envelopes of one network may take: so that none can shut the others out.

A network is known, in memory alone, by a keyed hash of its address's prefix, under a key of each round that is kept
nowhere else and goes with the round. Which envelope came from where is not remembered, only how many of a round did.
"""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock

SHARE = 8
"""One network has at most this part of the room."""
MOST_NETWORKS = 100_000
"""So many are remembered of a round, those that sent last."""


@dataclass(slots=True)
class _Round:
    key: bytes = field(default_factory=lambda: os.urandom(32))
    taken: Counter[bytes] = field(default_factory=Counter)

    def name(self, network: str) -> bytes:
        return blake2b(network.encode(), key=self.key, digest_size=16).digest()


class Shares:
    """The shares of all networks in one spool. Threads may share it.

    slots: how many envelopes the spool holds. nameless: how many were there at the start, of networks that nobody knows
    any more: shares are of the rest, so that no network fills the room over many starts.
    """

    def __init__(self, slots: int, nameless: int = 0) -> None:
        self._slots, self._nameless = slots, nameless
        self._lock = Lock()
        self._rounds: dict[int, _Round] = {}

    def take(self, network: str, count: int, round_: int) -> bool:
        """Whether a network may put in so many more in this round, which then counts until the round has gone."""
        with self._lock:
            taken = sum(each.taken[each.name(network)] for each in self._rounds.values())
            if taken + count > max(1, (self._slots - self._nameless) // SHARE):
                return False
            now = self._rounds.setdefault(round_, _Round())
            name = now.name(network)
            now.taken[name] = now.taken.pop(name, 0) + count
            if len(now.taken) > MOST_NETWORKS:
                del now.taken[next(iter(now.taken))]
            return True

    def give_back(self, network: str, count: int, round_: int) -> None:
        """What was taken was not put in."""
        with self._lock:
            if (there := self._rounds.get(round_)) is not None:
                there.taken[there.name(network)] -= count

    def nameless_gone(self, count: int) -> None:
        """So many have left of those that were there at the start."""
        with self._lock:
            self._nameless -= count

    def forget_gone(self, waiting: Iterable[int], now: int) -> None:
        """Forget the rounds of which nothing is left. waiting: those of which something waits. now: the present one.

        The round before the first of these is kept, as what took a share in it may have been written in the next.
        """
        with self._lock:
            first = min([*waiting, now])
            for gone in [each for each in self._rounds if each < first - 1]:
                del self._rounds[gone]
