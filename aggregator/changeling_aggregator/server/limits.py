"""Bounds on strangers: how much of their bodies is in memory, and how many requests a network sends.

Behind an address may stand one person or many, so limits are per network, and nothing is kept of the address itself:
a network is known by a keyed hash of its prefix, under a key that is drawn anew every day and kept nowhere else.
"""

import ipaddress
import os
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

BODY_SECONDS = 60.0
"""A body that takes longer is refused: what has arrived of it is in memory meanwhile."""
MOST_BODIES_BYTES = 128 * 2**20
"""The most bytes in memory of all bodies that have not arrived whole."""
IPV4_BITS, IPV6_BITS = 24, 48
"""How much of an address names its network."""
DAY_SECONDS = 86_400.0
BURST_SECONDS = 20.0
"""A network that was silent may send what it is allowed in so many seconds at once."""
MOST_NETWORKS = 100_000
"""So many are remembered, those that sent last; each takes some 150 bytes."""


class Bodies:
    """The memory that bodies take which have not arrived whole. size: in bytes."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


def network_of(host: str) -> str | None:
    """The network of an address, such as 192.0.2.0/24; None for this machine itself, on which there are no limits.

    What is no address, as a proxy may send it, is in a network of its own name.

    >>> network_of("192.0.2.7"), network_of("::1")
    ('192.0.2.0/24', None)
    """
    if host == "127.0.0.1":  # a proxy on this machine brings every request: spare them the parsing
        return None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_loopback:
        return None
    bits = IPV4_BITS if address.version == 4 else IPV6_BITS
    return str(ipaddress.ip_network(f"{address}/{bits}", strict=False))


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
