"""The online estimate of a release graph carried on from period to period, in a state that can be saved: values alone.

Of the past only those times matter at which a node started that is still open; in a hierarchy there are few. The joint
estimate of these times is the state (a Kalman filter), which is exact. `online_rows` of `network` has weights instead.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..estimate import Floats, Indices
from .network import GROUND


@dataclass(frozen=True, slots=True, eq=False)
class ClosingEdges:
    """The k nodes that close with a period, as edges of the release graph.

    start: where each begins, shape (k,).
    variance: the variance of each, shape (k,).
    changes: the measured change over each, shape (k, z).
    """

    start: Indices
    variance: Floats
    changes: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """The joint estimate, at the end of a period, of time 0 and the times at which nodes start that are still open.

    period: the period that has just closed.
    times: those F times, rising.
    part: the number of the connected part of each, shape (F,). Estimates in part 0 are absolute; in another they are
    relative to one another.
    planned: P, their covariance, in units of the nodes' variances, shape (F, F).
    values: the estimated histograms, shape (F, z).
    """

    period: int
    times: tuple[int, ...]
    part: Indices
    planned: Floats
    values: Floats

    @classmethod
    def before(cls, answers: int) -> Self:
        """The frontier at time 0, where the histogram of z answers is 0."""
        return cls(0, (0,), np.zeros(1, np.intp), np.zeros((1, 1)), np.zeros((1, answers)))


@dataclass(frozen=True, slots=True, eq=False)
class Online:
    """The online estimate at the end of one period: its values, shape (z,), and their variance."""

    period: int
    values: Floats
    planned: float


def advance(frontier: Frontier, closing: ClosingEdges, last_use: Indices) -> tuple[Frontier, Online | None]:
    """One more period: the frontier after it, and the estimate at its end; None if nothing connects that with time 0.

    closing: the nodes that close with the period.
    last_use: for each time, the end of the last node that starts there, 0 if none does; shape (periods + 1,).
    Takes O(F²) steps for each node, whatever came before. Raises ValueError for a node that starts at a time already
    dropped.
    """
    period = frontier.period + 1
    times = (*frontier.times, period)
    F, z = len(times), frontier.values.shape[1]
    part = np.append(frontier.part, period)
    # The estimates beside their covariance: every step is linear in both. A fresh time's row is still void.
    joint = np.zeros((F, z + F))
    joint[:-1, :z], joint[:-1, z:-1] = frontier.values, frontier.planned
    steps = zip(closing.start.tolist(), closing.variance.tolist(), closing.changes, strict=True)
    for start, variance, change in steps:
        if start not in times:
            raise ValueError(f"a release starts at time {start}, which is no longer open at period {period}")
        i = times.index(start)
        if part[i] == part[-1]:
            _update(joint, z, i, variance, change)
        elif part[-1] == GROUND:
            _join(joint, z, part, part == part[i], (F - 1, i), variance, -change)
        else:
            _join(joint, z, part, part == part[-1], (i, F - 1), variance, change)
    values, P = joint[:, :z], joint[:, z:]
    online = Online(period, values[-1], float(P[-1, -1])) if part[-1] == GROUND else None
    kept = [at for at, time in enumerate(times) if time == 0 or last_use[time] > period]
    return Frontier(period, tuple(times[at] for at in kept), part[kept], P[kept][:, kept], values[kept]), online


def _join(
    joint: Floats,
    z: int,
    part: Indices,
    moved: NDArray[np.bool_],
    ends: tuple[int, int],
    variance: float,
    change: Floats,
) -> None:
    """The first edge between two connected parts: one part is shifted, as a whole, to where the edge says it is.

    v := v + (v_fixed ± y - v_loose) for all times that move; (fixed, loose) = ends. Its values were relative, so
    nothing is lost.
    """
    fixed, loose = ends
    joint[moved] += joint[fixed] - joint[loose]
    joint[moved, :z] += change
    P = joint[:, z:]
    P[:, moved] += (P[:, fixed] - P[:, loose])[:, None]
    P[np.ix_(moved, moved)] += variance
    part[moved] = part[fixed]


def _update(joint: Floats, z: int, i: int, variance: float, change: Floats) -> None:
    """One more edge, which ends at the newest time, within a connected part: the usual Kalman gain."""
    values, P = joint[:, :z], joint[:, z:]
    toward = P[-1] - P[i]
    gain = (toward / (toward[-1] - toward[i] + variance))[:, None]
    values += gain * (change - (values[-1] - values[i]))
    P -= gain * toward
