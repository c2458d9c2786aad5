"""Measure 7 of the central releases, its audits: what the published levels alone tell of one entry, from below.

A mechanism is run many times on each of two neighbours, as columns of one query whose entries are in one column each.
An attacker who knows the mechanism but sees only levels picks an event on a third of the runs; the others bound its
two chances after Clopper and Pearson. The bound lies above the true loss with a chance of at most 0.001 for each
audit: within 80% of the claim it says that the claim is not a loose one, above it that it is broken.
"""

from fractions import Fraction
from itertools import combinations
from math import log
from typing import Any

import numpy as np
from changeling_central import (
    Blocks,
    LinearQuery,
    Mechanism,
    Shape,
    answer_query,
    best_weight,
    drawn_ahead,
    square_root,
    square_root_coefficients,
)
from changeling_central.testing import SeededNoise
from changeling_papers import hierarchy
from changeling_protocol import AtMost, Calendar
from changeling_statistics import Floats
from scipy.linalg import toeplitz
from scipy.special import betaincinv

FALSE_ALARM, SEED, WIDE, ROUNDS, ONE, ZERO = 0.001, 8, 50_000, 30, Fraction(1), Fraction(0)
REACH = 9
"""Cells are told apart up to so many units on either side."""
QUERY = LinearQuery(tuple(map(str, range(WIDE))), ((0,) * WIDE, (1, *(0,) * (WIDE - 1))), (1,), (1,), fixed=True)
"""Of so many columns, each a run; an entry counts in one of them."""


def measure() -> dict[str, float]:
    """Lower bounds over the claimed epsilon: at most 1, and at least 0.8 where the audit is a strong one."""
    return {
        "7_audit_ahead_k1_over_claim": ahead(AtMost(1), [1, 0, 0]),
        "7_audit_ahead_k2_over_claim": ahead(AtMost(2), [1, 0, -1]),
        "7_audit_square_root_k1_over_claim": root(AtMost(1), [1, *[0] * 15]),
        "7_audit_square_root_k2_over_claim": root(AtMost(2), [1, *[0] * 12, -1, 0, 0]),
        "7_audit_square_root_k3_over_claim": root(AtMost(3), worst_of_three(16)),
        "7_audit_mean_k1_over_claim": mean(AtMost(1), ["100"]),
        "7_audit_mean_k2_over_claim": mean(AtMost(2), ["100", "0"]),
        "7_audit_mean_k2_fixed_over_claim": mean(AtMost(2), ["100", ""], fixed=True),
        "7_audits_confidence_each": 1 - FALSE_ALARM,
    }


def ahead(constraint: AtMost, entry: list[int]) -> float:
    """A tree of three periods in blocks of two, at epsilon 3 for each mutation. Its levels fall into cells, and a third
    of the runs says how much likelier a cell is with the entry."""
    claim = Fraction(3 * constraint.k)
    shape = Shape(Blocks(3, (1, 2)), ((-0.5, 0.0, 0.0),))
    mechanism = drawn_ahead(QUERY, Calendar(0, 1, 3), constraint, claim, shape)
    ways = [np.floor(levels(mechanism, change)).astype(np.int64) for change in (entry, [0] * 3)]
    cells = [np.diff(way, axis=0, prepend=0).clip(-REACH, REACH) + REACH for way in ways]
    numbers = [np.ravel_multi_index(tuple(cell), (2 * REACH + 1,) * 3) for cell in cells]
    often, seldom = (np.bincount(number[::3], minlength=(2 * REACH + 1) ** 3) for number in numbers)
    scores = [np.log((often + 0.5) / (seldom + 0.5))[np.delete(number, np.s_[::3])] for number in numbers]
    return audited(scores[0], scores[1]) / float(claim)


def root(constraint: AtMost, entry: list[int]) -> float:
    """Sixteen periods at epsilon 1, delta 0.01; the event is of what lies in the entry's direction."""
    claim, delta = ONE, Fraction(1, 100)
    mechanism = square_root(QUERY, Calendar(0, 1, 16), constraint, claim, delta)
    C = toeplitz(square_root_coefficients(16), np.zeros(16))
    direction = C @ np.array(entry)
    scores = [direction @ (C @ np.diff(levels(mechanism, change), axis=0, prepend=0)) for change in (entry, [0] * 16)]
    return audited(scores[0], scores[1], float(delta)) / float(claim)


def worst_of_three(periods: int) -> list[int]:
    """The entry that comes, goes and comes again when that moves most."""
    C = toeplitz(square_root_coefficients(periods), np.zeros(periods))
    later = combinations(range(1, periods), 2)
    went, again = max(later, key=lambda pair: float(((C[:, 0] - C[:, pair[0]] + C[:, pair[1]]) ** 2).sum()))
    return [{0: 1, went: -1, again: 1}.get(period, 0) for period in range(periods)]


def mean(constraint: AtMost, answers: list[str], fixed: bool = False) -> float:
    """The two columns of a mean over as many nodes as an entry mutates in, at epsilon 3 for each; "" is nobody."""
    claim = Fraction(3 * constraint.k)
    query = answer_query(
        "mean of x from 0 to 100", ["0", "100"], None, fixed, best_weight(constraint, fixed, None, ZERO)
    )
    drawn = hierarchy(query, Calendar(0, 1, constraint.k), constraint, claim).noise
    states = [0, *(("0", "100").index(answer) + 1 if answer else 0 for answer in answers)]
    shift, scores = np.diff(query.cells[states], axis=0), []
    for seed, shifted in enumerate((shift, 0 * shift)):
        noisy = drawn.draw(SeededNoise(SEED + seed), WIDE * ROUNDS * shift.size).reshape(-1, *shift.shape) + shifted
        scores.append((np.abs(noisy) - np.abs(noisy - shift)).sum((1, 2)) / drawn.scale)
    return audited(scores[0], scores[1]) / float(claim)


def levels(mechanism: Mechanism[Any, Any, Any], changes: list[int]) -> Floats:
    """What is published on these changes, a run a column, shape (periods, runs)."""
    rounds = []
    for number in range(ROUNDS):
        state, noise = mechanism.start(), SeededNoise(SEED + 2 * number + any(changes))
        published = []
        for change in changes:
            state, level = mechanism.step(state, np.full(WIDE, change), noise)
            published.append(level.values)
        rounds.append(published)
    return np.concatenate(rounds, axis=1)


def audited(one: Floats, other: Floats, delta: float = 0.0) -> float:
    """A lower bound on epsilon at this delta from scores of runs on neighbours, the first of which score higher.

    Half of the runs say above which score the event lies, the other half bounds its chances.
    """
    thresholds = np.quantile(one[::2], 1 - np.geomspace(3e-4, 0.5, 60))
    picked = [bound(np.sum(one[::2] >= at), np.sum(other[::2] >= at), len(one[::2]), delta) for at in thresholds]
    best = thresholds[int(np.argmax(picked))]
    return bound(np.sum(one[1::2] >= best), np.sum(other[1::2] >= best), len(one[1::2]), delta)


def bound(came: int, rarely: int, runs: int, delta: float) -> float:
    """ln((p - delta) / q), p bounded from below and q from above, each wrong with half of the false-alarm rate."""
    p = betaincinv(came, runs - came + 1, FALSE_ALARM / 2) if came else 0.0
    q = betaincinv(rarely + 1, runs - rarely, 1 - FALSE_ALARM / 2) if rarely < runs else 1.0
    return log((p - delta) / q) if p > delta else 0.0
