"""What a node is expected to say, and how noisily, before anybody answers: what releases are weighed by.

The designer's expectation (ExpectedChanges) is read as a population whose answers are uniform and who move to a
uniformly random other answer at a steady rate; nobody's answer is taken away. A population that behaves otherwise
is estimated as unbiasedly, only less well. Knows no tally and no survey.
"""

from functools import lru_cache

import numpy as np
from changeling_protocol import ExpectedChanges, Node, Randomizer
from changeling_protocol.expectation import MICRO

from ..conservation import conserves
from ..estimate import Floats
from ..randomizers import class_variances
from .network import Indices


@lru_cache(maxsize=2**16)
def expected_variance(randomizer: Randomizer, node: Node, expected: ExpectedChanges, closed: bool) -> float:
    """The response variance of one report on a node, mean over the answers, in entries squared."""
    answers, changes = randomizer.space.answers, randomizer.space.reports_changes
    variances = class_variances(randomizer, conserves(closed, changes, node.start))
    before, after = there(expected, node.start), there(expected, node.end)
    if not changes:
        return (1 - after) * variances.none + after * variances.came
    moved = before * (1 - 1 / answers) * (1 - stays(answers, expected) ** node.width)
    return variances.mixed(moved, after - before)


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
