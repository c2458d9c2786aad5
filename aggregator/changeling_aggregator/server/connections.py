"""Which connections are kept open: so many, and one that keeps the server waiting makes room for another.

A connection waits for its client (to ask, to go on asking, to read the answer) or for the server. One that waits for
the server is never closed. Of the others each has a deadline, and where there is no room for a new one the one that has
waited longest goes: among those of the same network where that has its share already, else among all. So ten thousand
silent connections refuse nobody.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Protocol

from .refusals import Refused, count_refused

AGAIN_SECONDS = 1.0
"""After so long one that was told to close, and has not, is told again."""


class Caller(Protocol):
    """A connection."""

    network: str | None
    """Where it comes from; None for this machine or a proxy of ours, which have no share of their own."""

    def end(self) -> None:
        """Close it now."""
        ...


class Connections:
    """The open connections of a process.

    most, most_of_a_network: how many there is room for. clock: seconds of a clock that nobody sets.
    """

    def __init__(self, most: int, most_of_a_network: int, clock: Callable[[], float]) -> None:
        self._most, self._most_of_a_network, self._clock = most, most_of_a_network, clock
        self._open: set[Caller] = set()
        self._of_network: Counter[str] = Counter()
        self._waiting: OrderedDict[Caller, float] = OrderedDict()
        """Those that wait for their client, the longest first, each with its deadline."""
        self._waiting_of: defaultdict[str, OrderedDict[Caller, None]] = defaultdict(OrderedDict)

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, caller: Caller) -> bool:
        """Take a new connection in, if need be in another's place; False where there is no room at all."""
        network = caller.network
        if network is not None and self._of_network[network] >= self._most_of_a_network:
            if not self._displace(next(iter(self._waiting_of[network]), None)):
                return False
        elif len(self._open) >= self._most and not self._displace(next(iter(self._waiting), None)):
            return False
        self._open.add(caller)
        if network is not None:
            self._of_network[network] += 1
        return True

    def leave(self, caller: Caller) -> None:
        """It is closed."""
        if caller not in self._open:
            return
        self.serve(caller)
        self._open.remove(caller)
        if (network := caller.network) is not None:
            self._of_network[network] -= 1
            if not self._of_network[network]:
                del self._of_network[network]
                self._waiting_of.pop(network, None)

    def wait(self, caller: Caller, seconds: float) -> None:
        """From now on it waits for its client, for so long at most."""
        if caller in self._open:
            self._waiting[caller] = self._clock() + seconds
            self._waiting.move_to_end(caller)
            if caller.network is not None:
                self._waiting_of[caller.network][caller] = None
                self._waiting_of[caller.network].move_to_end(caller)

    def wait_on(self, caller: Caller, seconds: float) -> None:
        """It goes on waiting for its client, from now for so long at most, and keeps its place in their order."""
        if caller in self._waiting:
            self._waiting[caller] = self._clock() + seconds

    def serve(self, caller: Caller) -> None:
        """From now on it waits for the server."""
        if self._waiting.pop(caller, None) is not None and caller.network is not None:
            self._waiting_of[caller.network].pop(caller, None)

    def end_overdue(self) -> None:
        """Close those whose client has kept them waiting for too long."""
        now = self._clock()
        for caller in [caller for caller, until in self._waiting.items() if until <= now]:
            count_refused(Refused.OVERDUE)
            self._waiting[caller] = now + AGAIN_SECONDS
            caller.end()

    def _displace(self, caller: Caller | None) -> bool:
        if caller is None:
            return False
        count_refused(Refused.DISPLACED)
        self.leave(caller)
        caller.end()
        return True
