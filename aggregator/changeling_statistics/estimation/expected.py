"""What a node is expected to say, and how noisily, before anybody answers: what releases are weighed by.

The designer's expectation (ExpectedChanges) is read as a population whose answers are uniform and who move to a
uniformly random other answer at a steady rate; nobody's answer is taken away. A population that behaves otherwise
is estimated as unbiasedly, only less well. Knows no tally and no survey.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from changeling_protocol import CustomResponse, ExpectedChanges, Node, Randomizer
from changeling_protocol.expectation import MICRO

from .conservation import conserves, without_sum
from .estimate import Floats
from .network import Indices
from .report_variance import report_covariance


@dataclass(frozen=True, slots=True)
class Variances:
    """The response variance of one report, mean over the answers, in entries squared, by what the entry did.

    none: nothing, or its state is no answer. came: came to an answer, or its state is one. moved: to another one.
    """

    none: float
    came: float
    moved: float

    def mixed(self, moved: float, came: float = 0.0) -> float:
        """Of a report of which one cannot know, given the shares of entries."""
        return (1 - came - moved) * self.none + came * self.came + moved * self.moved


@lru_cache(maxsize=2**16)
def expected_variance(randomizer: Randomizer, node: Node, expected: ExpectedChanges, closed: bool) -> float:
    """The response variance of one report on a node, mean over the answers, in entries squared."""
    answers, changes = randomizer.space.answers, randomizer.space.reports_changes
    of = class_variances(randomizer, conserves(closed, changes, node.start))
    before, after = there(expected, node.start), there(expected, node.end)
    if not changes:
        return (1 - after) * of.none + after * of.came
    gone = before * (1 - 1 / answers) * (1 - stays(answers, expected) ** node.width)
    return of.mixed(gone, after - before)


@lru_cache(maxsize=2**16)
def expected_spread(answers: int, expected: ExpectedChanges, closed: bool, start: int, end: int) -> float:
    """E δ² over (start, end], mean over the answers, about its mean in a closed cohort; start is 0 for a state.

    Asking a share π of n entries adds n(1/π - 1) times this to the variance of what a node measures.
    """
    times = np.array([start, end])
    products = expected_products(answers, expected, closed, times, times)
    return float(max(0.0, products[0, 0] + products[1, 1] - 2 * products[0, 1]))


def expected_products(answers: int, expected: ExpectedChanges, closed: bool, one: Indices, other: Indices) -> Floats:
    """Γ: E x(τ)x(τ'), mean over the answers, for times τ in `one` and τ' in `other`; shape (len(one), len(other)).

        Γ = h {1/z + (1 - 1/z) φ^|τ-τ'|} / z,  in a closed cohort less 1/z²

    x(τ) says whether an entry has the answer at time τ, h is the share of entries that have any by the earlier of
    the two. At time 0, before the calendar, nobody has.
    """
    z = answers
    early, late = np.minimum.outer(one, other), np.maximum.outer(one, other)
    distinct, which = np.unique(early, return_inverse=True)
    held = np.array([there(expected, time) for time in distinct.tolist()])[which].reshape(early.shape)
    products: Floats = held * (1 / z + (1 - 1 / z) * stays(z, expected) ** (late - early)) / z
    if closed:
        products -= (early > 0) / z**2
    return products


def there(expected: ExpectedChanges, time: int) -> float:
    """The share of entries that have an answer at a time."""
    return expected.share_changed(0, time) if time else 0.0


def stays(answers: int, expected: ExpectedChanges) -> float:
    """φ = 1 - ρ z/(z-1): how much of what tells an entry from chance is left after a period, ρ being the rate."""
    return max(0.0, 1 - expected.later / MICRO * answers / (answers - 1)) if answers > 1 else 1.0


@lru_cache(maxsize=4096)
def class_variances(randomizer: Randomizer, conserved: bool) -> Variances:
    """A randomizer that treats all answers alike has one figure for all inputs of a class; else it is the mean."""
    none, came, moved = ([_variance(randomizer, true, conserved) for true in kind] for kind in _kinds(randomizer))
    return Variances(_mean(none), _mean(came), _mean(moved or came))


def _kinds(randomizer: Randomizer) -> tuple[list[int], list[int], list[int]]:
    space = randomizer.space
    if not isinstance(randomizer, CustomResponse):
        z, changes = space.answers, space.reports_changes
        none = [space.index(0, 0)] if changes or space.size > z else []
        return none, [space.index(0, 1)], [space.index(1, 2)] if changes and z > 1 else []
    pairs = {true: space.pair(true) for true in range(space.size)}
    return (
        [true for true, (old, new) in pairs.items() if old == new == 0],
        [true for true, (old, new) in pairs.items() if old == 0 < new],
        [true for true, (old, new) in pairs.items() if 0 < old != new > 0],
    )


def _variance(randomizer: Randomizer, true: int, conserved: bool) -> float:
    covariance = report_covariance(randomizer, true)
    if conserved:
        covariance = without_sum(np.zeros(len(covariance)), covariance)[1]
    return float(np.trace(covariance)) / len(covariance)


def _mean(figures: list[float]) -> float:
    return sum(figures) / len(figures) if figures else 0.0
