"""What an upload costs a server at each stage: processor seconds, bytes and memory, with what they grow by.

A stage's cost of n uploads is start + each·n, and where what is stored is sorted into longer and longer runs, a term
growth·n·log2(n) besides. The coefficients are fitted to measured runs, and `MEASURED` are those of one machine:
`python -m benchmarks scale scale_capacity` measures them anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

import numpy as np


@dataclass(frozen=True, slots=True)
class Cost:
    """start + each·n + growth·n·log2(n), for n uploads: in processor seconds, or in bytes.

    >>> Cost(1.0, 0.5, 0.25).of(4)
    5.0
    """

    start: float
    each: float
    growth: float = 0.0

    def of(self, uploads: float) -> float:
        """What so many uploads cost together."""
        return self.start + self.marginal(uploads) * uploads

    def marginal(self, uploads: float) -> float:
        """What one of so many costs, the start left out."""
        return self.each + (self.growth * log2(uploads) if self.growth and uploads > 1 else 0.0)


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """The costs of one server's stages, for uploads that each are a request and answer one closing with one report.

    accept: checking, appending and acknowledging, in the server's process. opening: HPKE and columns, in processes of
    the fold. counting: checks, duplicates and tallies, in the fold's own process. All in processor seconds.
    stored: the store's files, log and ids, in bytes. server_memory, fold_memory: the most that each resides in, bytes.
    """

    accept: Cost
    opening: Cost
    counting: Cost
    stored: Cost
    server_memory: Cost
    fold_memory: Cost


def fitted(uploads: Sequence[float], measured: Sequence[float], growth: float = 0.0) -> Cost:
    """The cost that fits runs of several sizes best, by their relative errors; never one that falls with size.

    uploads: of each run, of two sizes at least. growth: of each upload's cost at the largest size, the share that goes
    with log2(n), where the stage is known to grow: runs of sizes so near each other cannot tell it.
    Raises ValueError for runs of one size.
    """
    n, y = np.asarray(uploads, float), np.asarray(measured, float)
    if len(set(n.tolist())) < 2:
        raise ValueError("a cost is fitted to runs of two sizes at least")
    shape = 1 - growth + growth * np.log2(n) / np.log2(n.max())
    columns = np.stack([np.ones(len(n)), n * shape], axis=1)
    (start, each), *_ = np.linalg.lstsq(columns / y[:, None], np.ones(len(n)), rcond=None)
    if start < 0 or each < 0:  # noise: the sizes differ by less than the runs do
        which = 1 if start < 0 else 0
        scaled = columns[:, which] / y
        only = float(scaled.sum() / (scaled @ scaled))
        start, each = (0.0, only) if which else (only, 0.0)
    return Cost(float(start), float(each * (1 - growth)), float(each * growth / np.log2(n.max())))


MEASURED = UnitCosts(
    accept=Cost(0.1, 110e-6),
    opening=Cost(0.2, 85e-6),
    counting=Cost(0.1, 5e-6, 0.2e-6),
    stored=Cost(500e3, 176.0),
    server_memory=Cost(132e6, 1.0),
    fold_memory=Cost(130e6, 8.0),
)
"""As benchmarks/scale_capacity.py measured them on SQLite, rounded, on two processors that other programs kept busy as
well: on idle ones an upload takes less."""

MEASURED_BYTES = 112.0
"""Of an envelope of those runs."""
