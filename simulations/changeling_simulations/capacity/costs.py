"""What an upload costs a server at each stage: processor seconds, bytes and memory, with what they grow by.

A stage's cost of n uploads is start·times + each·n: a fold takes something however little there is to count, and each
upload the same again, however many there were. The coefficients are fitted to measured runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Cost:
    """start·times + each·n, for n uploads at so many times: in processor seconds, or in bytes.

    >>> Cost(1.0, 0.5).of(4, times=3)
    5.0
    """

    start: float
    each: float

    def of(self, uploads: float, times: float = 1.0) -> float:
        """What so many uploads cost together, in so many folds where it is folds that start."""
        return self.start * times + self.each * uploads


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """The costs of one server's stages, for uploads that each are a request and answer one closing with one report.

    accept: checking, appending and acknowledging, in the server's process. opening: HPKE and columns, in processes of
    the fold, once for each fold. counting: checks, duplicates and tallies, in the fold's own process, once for each
    fold as well. All in processor seconds. stored: files of log and ids, in bytes.
    server_memory, fold_memory: the most memory that each process has, in bytes.
    """

    accept: Cost
    opening: Cost
    counting: Cost
    stored: Cost
    server_memory: Cost
    fold_memory: Cost


@dataclass(frozen=True, slots=True)
class SparkCosts:
    """What a run of the fold on Spark takes, in processor seconds of all its processes.

    run: whatever it counts. envelope: each that is opened. closing: each that an envelope answers beyond the first.
    id: each of an open closing that was counted before, as a run reads and writes them all.
    shuffled, shuffled_id: bytes on the disks of workers for each closing and each such id. memory: of a core, bytes.
    """

    run: float
    envelope: float
    closing: float
    id: float
    shuffled: float
    shuffled_id: float
    memory: float


@dataclass(frozen=True, slots=True)
class ObjectCost:
    """What an object of a log adds to the costs of what is in it, in processor seconds.

    written: of the server. read: of the fold, which also writes each sixteen of them anew.
    """

    written: float
    read: float


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """What one answer costs. seconds: of the server's processor. bytes: of its head and content."""

    seconds: float
    bytes: float


def fitted(uploads: Sequence[float], measured: Sequence[float], times: Sequence[float] | None = None) -> Cost:
    """The cost that fits runs best, by their relative errors; no part of it is below zero.

    uploads, times: of each run; without times each run is one. Raises ValueError where all runs have as many uploads,
    or one of them cost nothing.
    """
    from scipy.optimize import nnls  # the command, which only multiplies, starts without it

    n, y = np.asarray(uploads, float), np.asarray(measured, float)
    if len(set(n.tolist())) < 2:
        raise ValueError("a cost is fitted to runs of two sizes at least")
    if not (y > 0).all():
        raise ValueError(f"a cost is fitted to what is above zero, got {y.tolist()}")
    starts = np.ones(len(n)) if times is None else np.asarray(times, float)
    (start, each), _ = nnls(np.stack([starts, n], axis=1) / y[:, None], np.ones(len(n)))
    return Cost(float(start), float(each))
