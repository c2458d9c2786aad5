"""Measure 3 of the central releases, its last part: the evolving count against a release of changes."""

from fractions import Fraction

import numpy as np
from changeling_central import answer_query
from changeling_central.testing import SeededNoise
from changeling_papers import Assumed, BestEstimates, Domain, Evolving, Query, best_hierarchy, hierarchy
from changeling_protocol import AtMost, Calendar

EPSILON, SEED = Fraction(1), 3


def measure() -> dict[str, float]:
    """Root mean squared errors over 64 steps at epsilon 1: true differences if assumptions hold, a release of changes.

    The one promises nothing unless the others' moves are as spread as assumed; the other for any data of two
    mutations an entry.
    """
    steps, runs = 64, 200
    assumed = Assumed(Fraction(1001, 1000), Fraction(99, 100))
    domain = Domain.of(here=[False, True])
    query = Query.of(domain, "here")
    random = np.random.default_rng(SEED)
    counts = 2_000 + np.cumsum(random.integers(-40, 41, steps))
    tables = [domain.table({"here": np.ones(count, np.bool_)}) for count in counts.tolist()]
    one = Evolving(query, steps, EPSILON, assumed)
    changes = np.diff(counts, prepend=0)
    calendar, twice = Calendar(0, 1, steps), AtMost(2)
    count = answer_query("any answer", ["here"])
    best = best_hierarchy(count, calendar, twice, EPSILON)
    tree = hierarchy(count, calendar, twice, EPSILON, shape=(best.branching, best.layers))
    estimates = BestEstimates(steps, tree.widths, 1)
    noise, wrong, off = SeededNoise(SEED), [], []
    for _ in range(runs):
        state, nodes, frontier = one.start(), tree.start(), estimates.start()
        for table, true, change in zip(tables, counts, changes, strict=True):
            state, value = one.step(state, table, noise)
            nodes, closed = tree.step(nodes, np.array([change]), noise)
            frontier, level = estimates.step(frontier, closed)
            wrong.append(value - true)
            off.append(float(level.values[0]) - true)
    return {
        "3_evolving_rmse_if_assumptions_hold": float(np.sqrt(np.mean(np.square(wrong)))),
        "3_evolving_rmse_release_of_changes": float(np.sqrt(np.mean(np.square(off)))),
    }
