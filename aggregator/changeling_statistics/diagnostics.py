"""A test of whether tallies are possible at all. Honest devices fail it once in a thousand times, whatever they answer.

Under every answer a symbol has at least a probability q and at most a p, which the randomizer says. So however the
entries answer, a symbol's count among n reports is at least as large as a binomial of n and q, and at most as large as
one of n and p; its tails are those of binomials, exactly. What lies further out was not made by these randomizers: made
up, counted twice, or lost. Each symbol of each node is asked both ways, and the smallest p-value is multiplied by how
many were asked (Bonferroni). Tallies that pass may be false all the same: whoever keeps to these rates is not seen.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from changeling_protocol import Randomizer

from .estimate import Counts, Floats
from .estimation.releases import Releases, UsedNode
from .randomizers.counted import CountedCounterpart
from .randomizers.registry import counterpart_of

FALSE_ALARMS = 1e-3
"""How often a survey of honest devices is flagged at most."""
FAR = 2.5
"""Counts that are off by fewer standard deviations have tails above the rate, so they are left out; at 3 some have not,
such as that of a symbol which was to come 8.8 times and never did."""
MOST_SYMBOLS = 4096
MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class SuspectNode:
    """A node that cannot be as it is.

    p_value: of the whole survey, if this were its only node.
    """

    used: UsedNode
    p_value: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a test of all tallies.

    tested, untested: how many nodes were tested; how many could not be, as their tallies are sums.
    p_value: how likely honest devices make a count as strange as the strangest, at most; 1 for nothing strange.
    suspects: the strangest of the nodes that flag the survey, at most MOST_NAMED.
    """

    tested: int
    untested: int
    p_value: float
    suspects: tuple[SuspectNode, ...]

    @property
    def impossible(self) -> bool:
        """True if the survey is flagged."""
        return self.p_value < FALSE_ALARMS

    def as_dict(self) -> dict[str, Any]:
        """The same in plain values."""
        return {
            "impossible": self.impossible,
            "p_value": self.p_value,
            "false_alarm_rate": FALSE_ALARMS,
            "tested_nodes": self.tested,
            "untested_nodes": self.untested,
            "suspects": [
                {
                    "track": each.used.track,
                    "start": each.used.node.start,
                    "end": each.used.node.end,
                    "p_value": each.p_value,
                }
                for each in self.suspects
            ],
        }


@lru_cache(maxsize=8)
def diagnosed(releases: Releases) -> Diagnosis:
    """The test of all nodes of a release graph."""
    strange: list[tuple[float, UsedNode]] = []
    asked = tested = 0
    for randomizer, edges in releases.by_randomizer:
        rates = _rates(randomizer)
        if rates is None:
            continue
        tallies = [releases.tallies[edge] for edge in edges.tolist()]
        counts = np.concatenate([tally.slots for tally in tallies]).reshape(len(tallies), -1)
        tails = _tails(counts, np.array([tally.reports for tally in tallies], np.int64), *rates)
        tested += len(edges)
        asked += 2 * counts.size
        flagged = np.flatnonzero(tails < FALSE_ALARMS)
        strange += [(float(tails[at]), releases.nodes[edges[at]]) for at in flagged.tolist()]
    strange.sort(key=lambda each: each[0])
    suspects = [SuspectNode(used, min(1.0, tail * asked)) for tail, used in strange[:MOST_NAMED]]
    suspects = [each for each in suspects if each.p_value < FALSE_ALARMS]
    least = min(1.0, strange[0][0] * asked) if strange else 1.0
    return Diagnosis(tested, len(releases) - tested, least, tuple(suspects))


def _tails(counts: Counts, reports: Counts, least: Floats, most: Floats) -> Floats:
    """The smallest tail probability of each node, of its counts, shape (nodes,); 1 where none is far out.

    counts: shape (nodes, symbols). reports: shape (nodes,). least, most: q and p, shape (symbols,).
    """
    from scipy.special import bdtr, bdtrc  # late: it loads slowly

    tails = np.ones(len(counts))
    n = reports[:, None]
    far = FAR * np.sqrt(n)
    low = counts < n * least - far * np.sqrt(least * (1 - least))
    high = counts > n * most + far * np.sqrt(most * (1 - most))
    for outliers, rate, tail, shift in ((low, least, bdtr, 0), (high, most, bdtrc, 1)):
        node, symbol = np.nonzero(outliers)
        chances = tail(counts[node, symbol] - shift, reports[node], rate[symbol])
        np.minimum.at(tails, node, chances)
    return tails


@lru_cache(maxsize=256)
def _rates(randomizer: Randomizer) -> tuple[Floats, Floats] | None:
    """The least and the most that each symbol's probability can be, shape (symbols,); None where tallies are sums."""
    counterpart = counterpart_of(randomizer)
    if not isinstance(counterpart, CountedCounterpart) or randomizer.symbols > MOST_SYMBOLS:
        return None
    if counterpart.slots != randomizer.symbols:
        return None
    chances = counterpart.probabilities
    return chances.min(0), chances.max(0)
