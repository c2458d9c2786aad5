"""A day of many devices, minute by minute: peaks, a region that is lost, and how it is caught up.

Devices send by the day's curve of their region, to its servers and no others. What cannot be taken waits on devices,
whose clients try again as they are told to, within the hour; what is taken waits in the log for the fold. Nothing is
lost unless it waits for longer than the grace.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..fleet.rhythm import Rhythm, Times

MINUTES = 24 * 60
DAYS = 2
"""So that the second one shows whether all is caught up."""
_LEAST = 1e-9
"""A smaller share than this of all that was taken is an error of rounding."""
RETRY_MINUTES = 30.0
"""So long what waits on devices takes to come back: a client that was turned away often tries again within half an hour
to an hour."""


@dataclass(frozen=True, slots=True)
class Region:
    """Some of the devices, and the servers beside them.

    share: of all devices. peak: the busiest hour there, UTC. lost: the hours [from, until) in which its servers are
    gone; None for none.
    """

    share: float
    peak: float
    lost: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Day:
    """What happened in each minute, shape (minutes,): envelopes that devices made, that servers took, that were folded;
    and how many waited at its end, on devices and in the log."""

    made: Times
    taken: Times
    folded: Times
    on_devices: Times
    in_log: Times

    @property
    def lag(self) -> float:
        """How old the oldest was that ever waited in the log, in minutes: what is taken first is folded first."""
        taken, folded = np.cumsum(self.taken), np.cumsum(self.folded)
        minutes = np.arange(len(taken))
        return max(0.0, float((minutes - np.searchsorted(taken, folded + _LEAST * taken[-1])).max()))

    def caught_up(self, after: float) -> float | None:
        """How many hours after this hour no more waits anywhere than fits into two minutes; None if that never is."""
        begin = int(after * 60)
        waiting = (self.on_devices + self.in_log)[begin:]
        calm = np.flatnonzero(waiting <= 2 * self.made.max())
        return float(calm[0]) / 60 if len(calm) else None


def simulated_day(
    envelopes: float,
    regions: Sequence[Region],
    accepting: float,
    folding: float,
    swing: float = Rhythm().swing,
    every: int = 1,
) -> Day:
    """Goes through DAYS days, with what is lost on the first of them.

    envelopes: in a day, of all regions. accepting: how many a second the servers of all regions can take, each region's
    by its share; no region takes in what another one's devices send. folding: how many a second all folds can count.
    every: so many minutes apart they begin, and then count what is there by then.
    """
    minutes = np.arange(DAYS * MINUTES, dtype=np.float64)
    hours = minutes / 60
    shares = np.array([each.share for each in regions])
    curves = [Rhythm(swing, each.peak).intensity(60.0 * minutes) for each in regions]
    made = envelopes / MINUTES * shares[:, None] * np.stack(curves)
    gone = [(hours >= each.lost[0]) & (hours < each.lost[1]) if each.lost else hours < 0 for each in regions]
    room = 60 * accepting * shares[:, None] * ~np.stack(gone)
    taken, folded, on_devices, in_log = (np.zeros(len(minutes)) for _ in range(4))
    waiting, logged = np.zeros(len(regions)), 0.0
    for minute in range(len(minutes)):
        coming = np.minimum(made[:, minute] + waiting / RETRY_MINUTES, room[:, minute])
        waiting += made[:, minute] - coming
        taken[minute] = coming.sum()
        logged += taken[minute]
        folded[minute] = min(logged, 60 * folding * every) if (minute + 1) % every == 0 else 0.0
        logged -= folded[minute]
        on_devices[minute], in_log[minute] = waiting.sum(), logged
    return Day(made.sum(axis=0), taken, folded, on_devices, in_log)
