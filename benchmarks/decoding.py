"""Measure 6 of the release plans, decoding: the closed form against solving the same system densely."""

from time import perf_counter

import numpy as np
from changeling_protocol import KaryResponse, MutationSpace, Odds
from changeling_statistics import NodeTally, histogram_change
from changeling_statistics.randomizers.kary import KaryCounterpart

ANSWERS = 99
"""The paper's alphabet of (z + 1)² = 10⁴ symbols."""


def measure(answers: int = ANSWERS) -> dict[str, float]:
    """How much faster than `numpy.linalg.solve` a node is decoded, its covariance included.

    Raises ArithmeticError if the two disagree.
    """
    randomizer = KaryResponse(MutationSpace(answers, repeats=True), Odds(20, 1))
    m, total = randomizer.symbols, randomizer.total()
    O = np.random.default_rng(6).integers(0, 1000, m)
    node = NodeTally(int(O.sum()), O)
    p, q = randomizer.odds.favoured / total, randomizer.odds.other / total
    P = np.full((m, m), q)
    np.fill_diagonal(P, p)
    started = perf_counter()
    solved = np.linalg.solve(P, O)
    dense = perf_counter() - started
    if not np.allclose(solved, KaryCounterpart(randomizer).input_counts(node), rtol=1e-6, atol=1e-6):
        raise ArithmeticError("the closed form and the dense solution disagree")
    histogram_change(node, randomizer)
    seconds = []
    for _ in range(5):
        started = perf_counter()
        histogram_change(node, randomizer)
        seconds.append(perf_counter() - started)
    return {"6_decode_speedup_over_linalg": dense / float(np.median(seconds))}
