"""Measure 1 of the central releases, bounds shown by experiment: what no local and no continual release can beat.

The √n between the local mechanism RR and one central count, and the log n below every private counter (lecture notes,
sections 1 and 2); how near streaming composition comes to the exact loss of transcripts.
"""

from fractions import Fraction
from math import log, nextafter, sqrt

import numpy as np
from changeling_central.testing import SeededNoise
from changeling_papers import BasicCounting, cum, stream_bound, unbeatable
from changeling_papers.testing import both_reported, noisy_count, transcript_region
from changeling_protocol import KaryResponse, Odds, StateSpace
from changeling_statistics import KaryCounterpart, NodeTally

BIAS, EPSILON, SEED, RUNS = Fraction(1, 2), Fraction(1), 4, 20_000
ODDS = Odds(3, 1)  # (1 + BIAS) : (1 - BIAS)
PEOPLE = (100, 1_000, 10_000, 100_000, 1_000_000)


def measure() -> dict[str, float]:
    """Errors are in counts."""
    return {**local_gap(), **lower_bound(), **streaming()}


def local_gap() -> dict[str, float]:
    """Root mean squared error of RR over that of one central count at the same loss, ln 3, as n grows: the slope of
    their ratio on log scales, 1/2 for the √n of the lecture notes (it is √(n/2)); RR's own over √((1-e²)n)/2e."""
    randomizer, random = KaryResponse(StateSpace(1), ODDS), np.random.default_rng(SEED)
    kept, turned = (randomizer.weight(symbol, 0) / randomizer.total() for symbol in (0, 1))
    central = BasicCounting().under(Fraction(nextafter(log(3), 0)), Fraction(0))
    noise = SeededNoise(SEED)
    of_center = sqrt(np.mean([central.release(0, noise) ** 2 for _ in range(RUNS)]))
    ratios, stated = [], []
    for n in PEOPLE:
        holding = n // 3
        ones = random.binomial(holding, kept, RUNS) + random.binomial(n - holding, turned, RUNS)
        found = [KaryCounterpart(randomizer).input_counts(NodeTally(n, np.array([n - one, one])))[1] for one in ones]
        local = sqrt(np.mean((np.array(found) - holding) ** 2))
        ratios.append(local / of_center)
        stated.append(local / (sqrt((1 - BIAS**2) * n) / (2 * BIAS)))
    return {
        "1_local_over_central_slope": float(np.polyfit(np.log(PEOPLE), np.log(ratios), 1)[0]),
        "1_local_over_central_n1000000": ratios[-1],
        "1_local_std_over_formula_largest": max(stated),
        "1_local_std_over_formula_least": min(stated),
    }


def lower_bound() -> dict[str, float]:
    """Cum at epsilon 1: the median over runs of a run's largest error, and over what no counter of that loss can stay
    below with probability 1/2, which grows with log n."""
    figures = {}
    for power in (8, 12, 16):
        n, counter, noise = 2**power, cum(2**power, EPSILON), SeededNoise(SEED)
        worst = []
        for _ in range(9 if power == 16 else 41):
            state, most = counter.start(), 0
            for _ in range(n):
                state, error = counter.step(state, 0, noise)
                most = max(most, abs(error))
            worst.append(most)
        median, least = float(np.median(worst)), unbeatable(n, EPSILON)
        figures[f"1_cum_max_error_n{n}"] = median
        figures[f"1_counter_lower_bound_n{n}"] = least
        figures[f"1_cum_max_error_over_lower_bound_n{n}"] = median / least
    return figures


def streaming() -> dict[str, float]:
    """ε_max + (t-1)γ over the exact loss of t steps: of a mechanism that nearly attains it, and of a noisy count."""

    fair = (Fraction(1, 2), Fraction(1, 2))
    streams = {
        "reported": both_reported(Fraction(999, 1000), Fraction(3, 4), fair),
        "count": noisy_count(2, fair),
    }
    figures = {}
    for name, stream in streams.items():
        bound = stream_bound(stream)
        for steps in (2, 3):
            true = transcript_region(stream, steps).epsilon_at(0)
            figures[f"1_streaming_{name}_bound_over_exact_t{steps}"] = bound.epsilon(steps) / true
    return figures
