"""Noise drawn before it is asked for, by the thousand: OpenDP's samplers cost ten times less a draw that way.

What was handed out is wiped; what is still held was seen by nobody and is forgotten with the process, so it belongs to
no state. No draw is handed out twice, be it to two threads or after a fork.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from changeling_statistics import Counts

from .noise import Noise

LEAST = 16
"""Draws that are fetched first: of a law that is asked for once, few are for nothing."""


@dataclass(slots=True)
class Pool:
    """Draws of one law and scale; the first `used` of them were handed out, and are wiped."""

    draws: Counts
    used: int = 0


@dataclass(slots=True)
class PooledNoise:
    """Draws from `source` for each law and scale: as many as are asked for, then ever more, up to `batch` at a time.

    most: how many laws and scales are held.
    """

    source: Noise
    batch: int = 1024
    most: int = 64
    _pools: dict[tuple[str, float], Pool] = field(default_factory=dict, init=False)
    _process: int = field(default_factory=os.getpid, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def laplace(self, scale: float, size: int) -> Counts:
        """Draws of the discrete Laplace law that nobody was handed before."""
        return self._handed("laplace", self.source.laplace, scale, size)

    def gaussian(self, scale: float, size: int) -> Counts:
        """Draws of the discrete Gaussian law that nobody was handed before."""
        return self._handed("gaussian", self.source.gaussian, scale, size)

    def _handed(self, law: str, draw: Callable[[float, int], Counts], scale: float, size: int) -> Counts:
        if size > self.batch:
            return draw(scale, size)
        if self._process != os.getpid():  # a child process would repeat its parent's draws
            self._pools, self._process, self._lock = {}, os.getpid(), Lock()
        with self._lock:
            pool = self._pools.get((law, scale))
            if pool is None or pool.used + size > len(pool.draws):
                if pool is None and len(self._pools) >= self.most:
                    self._pools.clear()
                grown = LEAST if pool is None else 4 * len(pool.draws)
                fetched = min(self.batch, max(size, grown))
                pool = self._pools[law, scale] = Pool(np.array(draw(scale, fetched), np.int64))
            begin = pool.used
            pool.used = end = begin + size
            handed = pool.draws[begin:end].copy()
            pool.draws[begin:end] = 0
        return handed
