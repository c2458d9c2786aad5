"""Exact uniform integers, fresh from the operating system: the only source of chance on a device.

A chance is taken when it is needed, and what follows from it is stored before anything leaves the device. Nothing is
derived from a secret, so that nothing on a device opens a report that was sent, or one that will be.
"""

import secrets
from typing import Protocol


class Coins(Protocol):
    """Where chances come from. Tests bring coins of their own; a device has `SystemCoins`."""

    def below(self, n: int) -> int:
        """A uniform integer in [0, n), exact for every n >= 1. Raises ValueError for a smaller n."""
        ...


class SystemCoins:
    """The operating system's generator: integers of as many bits as n has, until one is below n."""

    __slots__ = ()

    def below(self, n: int) -> int:
        """A uniform integer in [0, n). Raises ValueError for n < 1."""
        return secrets.randbelow(n)
