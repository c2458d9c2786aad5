"""How noisy a node is expected to be before anybody answers. Releases are weighed by that.

The designer's expectation (`ExpectedChanges`) is read as a population whose answers are uniform, and whose entries
move to a uniformly random other answer at a steady rate; nobody's answer is deleted. A population that behaves
otherwise is estimated without bias too, only less well. Knows no tally and no survey.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from changeling_protocol import MICRO, ExpectedChanges, Randomizer

from ..conservation import conserves
from ..estimate import Floats
from ..randomizers import class_variances
from .network import Indices


def expected_variances(
    randomizer: Randomizer, start: Indices, end: Indices, expected: ExpectedChanges, closed: bool
) -> Floats:
    """The variance that the randomizer adds to one report on each node, mean over the answers, shape (nodes,).

    start, end: the nodes' times, all of one width. closed: whether the cohort is closed. In entries squared.
    """
    answers, changes = randomizer.space.answers, randomizer.space.reports_changes
    after = shares_there(expected, end)
    if not changes:
        variances = class_variances(randomizer, False)
        return (1 - after) * variances.none + after * variances.came
    before = shares_there(expected, start)
    moved = before * (1 - 1 / answers) * (1 - persistence(answers, expected) ** (end - start))
    plain = class_variances(randomizer, False).mixed(moved, after - before)
    conserved = class_variances(randomizer, conserves(closed, changes, 1)).mixed(moved, after - before)
    return np.where(start > 0, conserved, plain)


def expected_spreads(answers: int, expected: ExpectedChanges, start: Indices, end: Indices) -> Floats:
    """E δ² about the mean of δ, mean over the answers, for what an entry adds over each node (start, end], (nodes,).

    answers: z.
    start: 0 for a report of a state.
    If a share π of n entries is asked, n(1/π - 1) times this is added to the variance of what a node measures.
    """
    before, after = shares_there(expected, start) / answers, shares_there(expected, end) / answers
    kept = before * (1 / answers + (1 - 1 / answers) * persistence(answers, expected) ** (end - start))
    spreads: Floats = np.maximum(0.0, after + before - 2 * kept - (after - before) ** 2)
    return spreads


def expected_products(answers: int, expected: ExpectedChanges, rows: Indices, columns: Indices) -> Floats:
    """Γ: how likely an entry has an answer at both of two times τ and τ', mean over the answers.

        Γ = E x(τ)x(τ') = h {1/z + (1 - 1/z) φ^|τ-τ'|} / z

    x(τ) is 1 if an entry has the answer at time τ, else 0; h is the share of entries that have any answer by the
    earlier of the two times. At time 0, before the calendar, nobody has.

    answers: z.
    rows, columns: the times τ and τ'.
    Returns shape (len(rows), len(columns)).
    """
    z = answers
    early, late = np.minimum.outer(rows, columns), np.maximum.outer(rows, columns)
    held = shares_there(expected, early)
    products: Floats = held * (1 / z + (1 - 1 / z) * persistence(z, expected) ** (late - early)) / z
    return products


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Means of products of x(τ), which is 1 if an entry has an answer at time τ and else 0, mean over the answers.

    products: E x(τ)x(τ'), shape (T+1, T+1).
    centred: the same about the means, as estimators are ratios.
    means: E x(τ), shape (T+1,).
    """

    products: Floats
    centred: Floats
    means: Floats


@lru_cache(maxsize=8)
def expected_moments(answers: int, expected: ExpectedChanges, periods: int) -> Moments:
    """The moments of the population that a designer expects, at the times 0..T."""
    times = np.arange(periods + 1, dtype=np.intp)
    products = expected_products(answers, expected, times, times)
    means = shares_there(expected, times) / answers
    return Moments(products, products - np.outer(means, means), means)


def shares_there(expected: ExpectedChanges, times: Indices) -> Floats:
    """`share_there` of many times, of the same shape."""
    shares: Floats = _all_shares(expected, int(times.max(initial=0)))[times]
    return shares


@lru_cache(maxsize=64)
def _all_shares(expected: ExpectedChanges, last: int) -> Floats:
    """`share_there` at the times 0 to `last`."""
    return np.array([share_there(expected, time) for time in range(last + 1)])


def share_there(expected: ExpectedChanges, time: int) -> float:
    """The share of entries that are expected to have an answer at the end of a period, 0 being the calendar's start."""
    return expected.share_changed(0, time) if time else 0.0


def persistence(answers: int, expected: ExpectedChanges) -> float:
    """φ = 1 - ρ z/(z-1), at least 0: how much of the correlation of an entry's answers is left after a period.

    answers: z. ρ is the expected rate of changes a period.
    """
    return max(0.0, 1 - expected.later / MICRO * answers / (answers - 1)) if answers > 1 else 1.0
