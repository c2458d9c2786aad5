"""How noisy one report of a randomizer is, by what the entry did, from its counterpart's covariances."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from changeling_protocol import Randomizer, Space

from ..conservation import without_sum
from .offers import Offer, Variances
from .registry import counterpart_of


@dataclass(frozen=True, slots=True)
class InputClasses:
    """The inputs of a space, classed by what the entry did.

    none, came, moved: as in `Variances`.
    left: the entry had an answer and has none any more.
    The paper's pairs (r, r), which never occur, are in no class.
    """

    none: tuple[int, ...]
    came: tuple[int, ...]
    left: tuple[int, ...]
    moved: tuple[int, ...]

    @classmethod
    def of(cls, space: Space, answers_alike: bool) -> "InputClasses":
        """The classes of a space.

        answers_alike: whether the randomizer treats all answers alike; if so, each class holds just one of its inputs.
        """
        pairs = {true: space.pair(true) for true in range(space.size)}
        classes = (
            (true for true, (old, new) in pairs.items() if old == new == 0),
            (true for true, (old, new) in pairs.items() if old == 0 < new),
            (true for true, (old, new) in pairs.items() if new == 0 < old),
            (true for true, (old, new) in pairs.items() if 0 < old != new > 0),
        )
        return cls(*(tuple(inputs)[: 1 if answers_alike else None] for inputs in classes))


@lru_cache(maxsize=4096)
def class_variances(randomizer: Randomizer, conserved: bool) -> Variances:
    """The variances of a randomizer's reports, each the mean over the inputs of its class.

    conserved: whether changes are known to add up to zero over the answers, which the estimator makes use of.
    """
    classes = InputClasses.of(randomizer.space, counterpart_of(randomizer).answers_alike)
    none, came, moved = (
        mean_variance(randomizer, inputs, conserved)
        for inputs in (classes.none, classes.came or classes.moved, classes.moved or classes.came)
    )
    return Variances(none, came, moved)


def mean_variance(randomizer: Randomizer, inputs: tuple[int, ...], conserved: bool = False) -> float:
    """The variance of what one report decodes to, mean over the answers and over some inputs, in entries squared.

    inputs: the true inputs; for none the variance is 0.
    conserved: as for `class_variances`.
    """
    figures = [_variance(randomizer, true, conserved) for true in inputs]
    return sum(figures) / len(figures) if figures else 0.0


def _variance(randomizer: Randomizer, true: int, conserved: bool) -> float:
    covariance = counterpart_of(randomizer).report_covariance(true)
    if conserved:
        covariance = without_sum(np.zeros(len(covariance)), covariance)[1]
    return float(np.trace(covariance)) / len(covariance)


def offer_of(randomizer: Randomizer, conserved: bool = False) -> Offer:
    """The offer of a randomizer that is made already.

    conserved: whether to work out its variances for changes that add up to zero; if not, both are the same.
    """
    return Offer(lambda: randomizer, class_variances(randomizer, False), class_variances(randomizer, conserved))
