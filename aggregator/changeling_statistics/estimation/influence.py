"""How far false entries can move an estimate: the price of poisoning it.

An entry that says what it likes has one report on each node of its group. None moves its node by more than the largest
value that a report decodes to, times the expansion, and the estimate by more than that times the node's weight.
"""

from functools import lru_cache

import numpy as np
from changeling_protocol import Randomizer

from ..estimate import Floats
from ..randomizers import counterpart_of
from .releases import Releases

MOST_LISTED = 4096
"""Of more symbols that treat all answers alike so many are looked at; each has the largest value somewhere."""
POINT = 0.01


def influences(releases: Releases, magnitudes: Floats) -> Floats:
    """By how much one more entry can move each value of some estimates at most, shape (k, z), in entries.

    magnitudes: of the weight of each node in each estimate, shape (k, E).
    An entry is of the group that moves a value most.
    """
    tracks = releases.survey.plan.tracks
    largest = np.array([largest_values(track.randomizer) for track in tracks])[releases.track]
    largest = largest.reshape(len(releases), len(releases.survey.answers)) * releases.expansion[:, None]
    moved = [
        magnitudes @ np.where(releases.group[:, None] == group, largest, 0.0)
        for group in range(len(releases.survey.plan.groups))
    ]
    furthest: Floats = np.max(moved, axis=0)
    return furthest


def false_entries(influence: Floats, enrolled: Floats) -> Floats:
    """How many false entries it takes at least to move one of the fractions by one percentage point, shape (k,).

    With n entries and f false ones, a fraction moves by at most f (I + 1) / (n + f).
    influence: I, shape (k, z). enrolled: n, shape (k,).
    """
    needed: Floats = np.ceil(POINT * enrolled / (influence.max(-1, initial=0.0) + 1.0))
    return needed


@lru_cache(maxsize=256)
def largest_values(randomizer: Randomizer) -> tuple[float, ...]:
    """The largest value, for each answer, that a single report decodes to, and in a closed cohort without its mean."""
    counterpart, symbols = counterpart_of(randomizer), randomizer.symbols
    listed = np.unique(np.linspace(0, symbols - 1, min(symbols, MOST_LISTED)).astype(np.uint64))
    values = np.array(
        [counterpart.estimate(counterpart.tally(listed[at : at + 1])).values for at in range(len(listed))]
    )
    values = np.maximum(np.abs(values), np.abs(values - values.mean(1, keepdims=True)))
    largest: Floats = values.max(0)
    if symbols > len(listed):
        largest = np.full_like(largest, largest.max())
    return tuple(largest.tolist())
