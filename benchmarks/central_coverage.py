"""Measure 5 of the central releases: how often published 95% intervals hold the truth, 40,000 runs for each mechanism.

Intervals promise at least 95%. A mechanism is told apart from that promise where a binomial test rejects it from below
at a family-wise 0.001 (Bonferroni over all tests). Runs go through a seeded stand-in of the same laws; one part goes
through OpenDP's own samplers, unseeded.
"""

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from changeling_central import (
    Blocks,
    Law,
    NodeRelease,
    Noise,
    OpenDPNoise,
    Shape,
    Windows,
    answer_query,
    drawn_ahead,
    interval,
    sliding_windows,
    square_root,
)
from changeling_central.testing import SeededNoise
from changeling_papers import (
    Algebra,
    Benchmark,
    BestEstimates,
    Domain,
    PanPrivateCounter,
    Query,
    SigmaCounting,
    cover_sum,
    cum,
    hierarchy,
)
from changeling_protocol import AtMost, Calendar
from scipy.stats import binomtest

RUNS, SEED, LEVEL, FAMILY_WISE = 40_000, 5, 0.95, 1e-3
T, TIMES = 13, (1, 7, 13)
CALENDAR, TWICE, EPSILON = Calendar(0, 1, T), AtMost(2), Fraction(1)
DELTAS = {Law.LAPLACE: Fraction(0), Law.GAUSSIAN: Fraction(1, 10**6)}
TREE = Shape(Blocks(T, (1, 5)), ((-0.3, -0.4, 0.3),))
WIDE = 1000
"""Runs that go through a mechanism at once, as columns of one query."""
TRUTH = np.random.default_rng(1).integers(-20, 60, T)
LEVELS = TRUTH.cumsum()


class Seen(NamedTuple):
    """A kind of release at a period: its law, the variance it states, and the errors of all columns."""

    kind: str
    period: int
    law: Law
    variance: float
    errors: Any


def measure() -> dict[str, float]:
    """By mechanism the least and largest coverage less 95%; the smallest p-value times the tests."""
    held: dict[tuple[str, int], int] = defaultdict(int)
    for label, seen in runs():
        low, high = interval(0.0, sqrt(seen.variance), seen.law)
        errors = np.atleast_1d(seen.errors)
        held[f"{label}{seen.kind}", seen.period] += int(((errors >= low) & (errors <= high)).sum())
    figures: dict[str, float] = {}
    for name in dict.fromkeys(name for name, _ in held):
        off = [count / RUNS - LEVEL for (other, _), count in held.items() if other == name]
        figures[f"5_coverage_off_least_{name}"], figures[f"5_coverage_off_most_{name}"] = min(off), max(off)
    p = [float(binomtest(count, RUNS, LEVEL, alternative="less").pvalue) for count in held.values()]
    figures["5_tests"] = float(len(held))
    figures["5_family_wise_p"] = min(1.0, len(held) * min(p))
    figures["5_told_apart"] = float(sum(each * len(held) < FAMILY_WISE for each in p))
    return figures


def runs() -> Iterator[tuple[str, Seen]]:
    noise = SeededNoise(SEED)
    for law in Law:
        for _ in range(RUNS // WIDE):
            yield from ((f"{law}_", seen) for seen in releases(law, noise))
    for _ in range(RUNS // WIDE):
        yield from (("laplace_opendp_", seen) for seen in releases(Law.LAPLACE, OpenDPNoise(), only_sums=True))
    for _ in range(RUNS):
        yield from (("", seen) for seen in (*counters(noise), *queries(noise)))


def releases(law: Law, noise: Noise, only_sums: bool = False) -> Iterator[Seen]:
    """DCR sums, HDCR by covers and on the graph, direct windows, levels; a run a column, each with its own noise."""
    names = [f"a{i}" for i in range(WIDE)]
    wide = answer_query("each answer", names, names, fixed=True)
    budget = EPSILON, DELTAS[law]
    dcr = hierarchy(wide, CALENDAR, TWICE, *budget, law=law)
    sums = accumulate(each[0].values for each in stepped(dcr, noise))
    yield from (Seen("dcr", t, law, t * dcr.noise.variance, sums_ - LEVELS[t - 1]) for t, sums_ in at_times(sums))
    if only_sums:
        return
    tree = hierarchy(wide, CALENDAR, TWICE, *budget, shape=(3, 3), law=law)
    estimates, nodes = BestEstimates(T, tree.widths, WIDE), list[NodeRelease]()
    frontier = estimates.start()
    for t, closed in enumerate(stepped(tree, noise), 1):
        nodes.extend(closed)
        frontier, level = estimates.step(frontier, closed)
        if t in TIMES:
            cover = cover_sum(nodes, 0, t, tree.widths)
            yield Seen("hdcr_graph", t, law, level.variance, level.values - LEVELS[t - 1])
            yield Seen("hdcr_cover", t, law, cover.variance, cover.values - LEVELS[t - 1])
    direct = sliding_windows(wide, Windows(0, 4, 3, 4), TWICE, *budget, law)
    for t, window in enumerate(stepped(direct, noise), 1):
        if window is not None:
            true = LEVELS[t - 1] - (LEVELS[t - 5] if t > 4 else 0)
            yield Seen("swcr", t, law, window.variance, window.values - true)
    made: dict[str, Any] = {"ahead": drawn_ahead(wide, CALENDAR, TWICE, EPSILON, TREE)}
    if law is Law.GAUSSIAN:
        bands = {"square_root": T, "square_root_cut": 4}
        made = {name: square_root(wide, CALENDAR, TWICE, *budget, band) for name, band in bands.items()}
    for name, mechanism in made.items():
        for t, level in at_times(stepped(mechanism, noise)):
            yield Seen(name, t, law, level.variance, level.values - LEVELS[t - 1])


def stepped(mechanism: Any, noise: Noise) -> Iterator[Any]:
    """What it releases of the same changes in every column, period by period."""
    state = mechanism.start()
    for change in TRUTH:
        state, released = mechanism.step(state, np.full(WIDE, change), noise)
        yield released


def at_times(releases_: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    return ((t, each) for t, each in enumerate(releases_, 1) if t in TIMES)


def counters(noise: Noise) -> Iterator[Seen]:
    """Cum and PPCum: sums of so many draws of one law."""
    for name, counter in (("cum", cum(8, EPSILON)), ("ppcum", PanPrivateCounter(8, EPSILON))):
        mechanism: Any = counter
        state = mechanism.start()
        for t in range(1, 8):
            state, released = mechanism.step(state, 3, noise)
            if t in (1, 3, 7):
                yield Seen(name, t, Law.LAPLACE, mechanism.variance(t), released - 3 * t)


DOMAIN = Domain.of(age=range(10))
TABLE = DOMAIN.table({"age": [0, 1, 1, 7]})
ONE = SigmaCounting(Algebra.of([Query.of(DOMAIN, f"age < {age}") for age in range(1, 10)]), EPSILON)
ASKED = {"sigma_one_atom": Query.of(DOMAIN, "age == 1"), "sigma_nine_atoms": Query.of(DOMAIN, "age != 1")}
ATOMS = {name: ONE.algebra.members(query) for name, query in ASKED.items()}


def queries(noise: Noise) -> Iterator[Seen]:
    """The benchmark and sigma-counting, unions of one and of nine atoms."""
    state, _ = ONE.step(ONE.start(), TABLE, noise)
    answers = {name: ONE.summed(state, atoms) for name, atoms in ATOMS.items() if atoms is not None}
    paid = Benchmark(EPSILON, EPSILON)
    _, answers["sigma_benchmark"] = paid.step(paid.start(), (TABLE, ASKED["sigma_one_atom"]), noise)
    for name, answer in answers.items():
        yield Seen(name, 1, Law.LAPLACE, answer.standard_error**2, answer.estimate - 2)  # two rows are 1, two are not
