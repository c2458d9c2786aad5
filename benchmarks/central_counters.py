"""Measures 1 and 4 of the central releases, the counters: speed against dpcrpy, memory, growth of errors.

In the first ratio both counters get the same noise handed to them, so that mechanisms are compared; in the second each
draws its own: OpenDP's exact discrete Laplace, which costs 7 to 10 µs a draw whoever uses it, against dpcrpy's floats.
"""

import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import log2
from time import perf_counter
from typing import Any

import numpy as np
from changeling_central import Noise, OpenDPNoise, PooledNoise
from changeling_central.testing import SeededNoise
from changeling_papers import BasicCounting, BinaryMechanism, InfiniteMechanism, binary_mechanism, cum, sparse_release
from changeling_statistics import Counts

STEPS, EPSILON, SEED, REPEATS = 4096, Fraction(1), 4, 7


def measure() -> dict[str, float]:
    """Ratios above 1 say that ours is faster; errors are in counts."""
    return {**speed(), **memory(), **growth()}


def speed() -> dict[str, float]:
    """Medians of runs that take turns. Without dpcrpy installed there are no ratios."""
    counter = binary_mechanism(BasicCounting(), STEPS, EPSILON, root=True)
    pool = PooledNoise(OpenDPNoise(), batch=STEPS)
    pool.laplace(1.0, 1)
    figures = {"4_counter_us_per_step_noise_handed": _median(lambda: _ours(counter, Handed()))}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import dpcrpy  # type: ignore[import-not-found, import-untyped, unused-ignore]
            from dpcrpy.framework.noiMech import LapNoiMech  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return figures

    def theirs(noise: Any) -> float:
        mechanism = dpcrpy.BinMech(STEPS.bit_length() - 1, noise)
        began = perf_counter()
        for _ in range(STEPS):
            mechanism.dpRelease(1)
        return (perf_counter() - began) / STEPS

    handed = [(_ours(counter, Handed()), theirs(Handed())) for _ in range(REPEATS)]
    own = [(_ours(counter, pool), theirs(LapNoiMech(1.0))) for _ in range(REPEATS)]
    return {
        **figures,
        "4_binmech_us_per_step_noise_handed": 1e6 * float(np.median([one for _, one in handed])),
        "4_counter_speedup_over_binmech": float(np.median([other / one for one, other in handed])),
        "4_counter_speedup_over_binmech_own_noise": float(np.median([other / one for one, other in own])),
    }


class Handed:
    """Noise made beforehand, for our counter and for dpcrpy's, at no cost to either."""

    def __init__(self) -> None:
        drawn = SeededNoise(SEED).laplace(13.0, STEPS)
        self._arrays: Iterator[Counts] = iter([*drawn.reshape(-1, 1)])
        self._numbers: Iterator[float] = iter(drawn.tolist())

    def laplace(self, scale: float, size: int) -> Counts:  # noqa: ARG002
        return next(self._arrays)

    gaussian = laplace

    def genNoise(self) -> float:  # noqa: N802
        return next(self._numbers)

    def getMse(self) -> float:  # noqa: N802
        return 1.0

    def getSensType(self) -> int:  # noqa: N802
        return 1

    def setSens(self, sensitivity: float) -> None:  # noqa: N802
        pass


def memory() -> dict[str, float]:
    """The most nodes held, and the bytes of the largest saved state, as T grows sixteenfold each time."""
    figures: dict[str, float] = {}
    for steps in (256, 4096, 65536):
        counter, state, bytes_ = cum(steps, EPSILON), cum(steps, EPSILON).start(), 0
        noise, held = SeededNoise(SEED), 0
        for t in range(steps):
            state, _ = counter.step(state, 1, noise)
            held = max(held, len(state.stack))
            if (t + 2) & (t + 1) == 0:
                bytes_ = max(bytes_, len(counter.saved(state)))
        figures[f"4_counter_nodes_held_t{steps}"] = held
        figures[f"4_counter_state_bytes_t{steps}"] = bytes_
    return figures


def growth() -> dict[str, float]:
    """How far the standard deviation of the infinite counter is from a multiple of log₂(t)^1.5, t = 2^4 to 2^40;
    and the rms error of a sparse release over log₂(n)^1.5, at 16 times the insertions over that before."""
    stream = InfiniteMechanism(BasicCounting(), EPSILON)
    ratios = [(stream.variance(2**i - 2) or 0.0) ** 0.5 / log2(2**i) ** 1.5 for i in range(4, 41)]
    errors = [_sparse_error(n, runs) / log2(n) ** 1.5 for n, runs in ((256, 24), (4096, 6))]
    return {
        "1_infinite_std_over_log15_largest_by_least": max(ratios) / min(ratios),
        "1_sparse_error_over_log15_growth": errors[1] / errors[0],
    }


def _sparse_error(insertions: int, runs: int) -> float:
    """At segment ends, with an insertion at every eighth step."""
    found = []
    for run in range(runs):
        release, noise = sparse_release(BasicCounting(), Fraction(8)), SeededNoise(SEED + run)
        state, held = release.start(), 0
        for t in range(8 * insertions):
            segment = state.streams[0].time
            held += t % 8 == 0
            state, answer = release.step(state, (int(t % 8 == 0),), noise)
            if state.streams[0].time > segment and 2 * t > 8 * insertions:
                found.append(answer - held)
    return float(np.sqrt(np.mean(np.square(found))))


def _ours(counter: BinaryMechanism[int], noise: Noise) -> float:
    state = counter.start()
    began = perf_counter()
    for _ in range(STEPS):
        state, _ = counter.step(state, 1, noise)
    return (perf_counter() - began) / STEPS


def _median(timed: Callable[[], float]) -> float:
    return 1e6 * float(np.median([timed() for _ in range(REPEATS)]))
