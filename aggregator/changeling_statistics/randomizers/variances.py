"""How noisy one report of a randomizer is, by what its entry did, from its counterpart's covariances."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from changeling_protocol import Randomizer
from changeling_protocol.randomizers import Space

from ..conservation import without_sum
from .offers import Offer, Variances
from .registry import counterpart_of


@dataclass(frozen=True, slots=True)
class InputClasses:
    """The inputs by what the entry did; where answers are treated alike, one of each class stands for all.

    none, came, moved: as in `Variances`. left: it has no answer any more. The pairs (r, r) of the paper's alphabet,
    which are reported as no change, are in none.
    """

    none: tuple[int, ...]
    came: tuple[int, ...]
    left: tuple[int, ...]
    moved: tuple[int, ...]

    @classmethod
    def of(cls, space: Space, answers_alike: bool) -> "InputClasses":
        pairs = {true: space.pair(true) for true in range(space.size)}
        classes = (
            (true for true, (old, new) in pairs.items() if old == new == 0),
            (true for true, (old, new) in pairs.items() if old == 0 < new),
            (true for true, (old, new) in pairs.items() if new == 0 < old),
            (true for true, (old, new) in pairs.items() if 0 < old != new > 0),
        )
        return cls(*(tuple(each)[: 1 if answers_alike else None] for each in classes))


@lru_cache(maxsize=4096)
def class_variances(randomizer: Randomizer, conserved: bool) -> Variances:
    """The variances of a randomizer's reports, each the mean over the inputs of its class.

    conserved: of changes that add up to zero over the answers, which the estimator makes use of.
    """
    classes = InputClasses.of(randomizer.space, counterpart_of(randomizer).answers_alike)
    none, came, moved = (
        mean_variance(randomizer, inputs, conserved)
        for inputs in (classes.none, classes.came, classes.moved or classes.came)
    )
    return Variances(none, came, moved)


def mean_variance(randomizer: Randomizer, inputs: tuple[int, ...], conserved: bool = False) -> float:
    """The variance of one report, mean over the answers and over these inputs, in entries squared; 0 for no input."""
    figures = [_variance(randomizer, true, conserved) for true in inputs]
    return sum(figures) / len(figures) if figures else 0.0


def _variance(randomizer: Randomizer, true: int, conserved: bool) -> float:
    covariance = counterpart_of(randomizer).report_covariance(true)
    if conserved:
        covariance = without_sum(np.zeros(len(covariance)), covariance)[1]
    return float(np.trace(covariance)) / len(covariance)


def offer_of(randomizer: Randomizer, conserved: bool = False) -> Offer:
    """The offer of a randomizer that is made already; conserved: whether its second variances differ."""
    return Offer(lambda: randomizer, class_variances(randomizer, False), class_variances(randomizer, conserved))
