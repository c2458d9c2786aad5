"""Measure 5 of the central releases: how often stated intervals hold the truth, 40,000 runs for each mechanism.

Intervals state the level that they hold, a little above 95% where noise is whole. Nominal is that level; a mechanism is
told apart from it where a two-sided binomial test rejects at a family-wise 0.001 (Bonferroni over all tests).
Runs go through a seeded stand-in of the same laws; one part goes through OpenDP's own samplers, unseeded.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from changeling_central import (
    BestEstimates,
    Blocks,
    Interval,
    Law,
    LinearQuery,
    NodeRelease,
    Noise,
    OpenDPNoise,
    Shape,
    Windows,
    ahead_interval,
    answer_query,
    cover_sum,
    drawn_ahead,
    hierarchy,
    online_interval,
    sliding_windows,
    square_root,
    square_root_interval,
    sum_interval,
)
from changeling_central.testing import SeededNoise
from changeling_papers import Algebra, Benchmark, Domain, PanPrivateCounter, Query, SigmaCounting, cum
from changeling_protocol import AtMost, Calendar
from changeling_statistics import Counts
from scipy.stats import binomtest

RUNS, SEED, LEVEL, FAMILY_WISE = 40_000, 5, 0.95, 1e-3
T, TIMES = 13, (1, 7, 13)
CALENDAR, TWICE, EPSILON = Calendar(0, 1, T), AtMost(2), Fraction(1)
DELTAS = {Law.LAPLACE: Fraction(0), Law.GAUSSIAN: Fraction(1, 10**6)}
TREE = Shape(Blocks(T, (1, 5)), ((-0.3, -0.4, 0.3),))
WIDE = 1000
"""Runs that go through a mechanism at once, as columns of one query."""


@dataclass(frozen=True, slots=True)
class Tested:
    """held: of RUNS, how many intervals held the truth. nominal: the level that the interval states."""

    name: str
    held: int
    nominal: float

    @property
    def p(self) -> float:
        return float(binomtest(self.held, RUNS, self.nominal).pvalue)


def measure() -> dict[str, float]:
    """By mechanism the least and largest coverage less the nominal level; the smallest p-value times the tests."""
    tests = list(tested())
    figures: dict[str, float] = {}
    for name in dict.fromkeys(one.name for one in tests):
        off = [one.held / RUNS - one.nominal for one in tests if one.name == name]
        figures[f"5_coverage_off_least_{name}"], figures[f"5_coverage_off_most_{name}"] = min(off), max(off)
    figures["5_tests"] = float(len(tests))
    figures["5_least_nominal"] = min(one.nominal for one in tests)
    figures["5_most_nominal"] = max(one.nominal for one in tests)
    figures["5_family_wise_p"] = min(1.0, len(tests) * min(one.p for one in tests))
    figures["5_told_apart"] = float(sum(one.p * len(tests) < FAMILY_WISE for one in tests))
    return figures


Seen: TypeAlias = tuple[str, int, Interval, Any]
"""A kind of release, a period, the interval stated there, and the errors of all columns."""


def tested() -> Iterator[Tested]:
    for law in Law:
        yield from releases(law, SeededNoise(SEED), f"{law}")
    yield from releases(Law.LAPLACE, OpenDPNoise(), "laplace_opendp", only=("dcr",))
    yield from counters(SeededNoise(SEED))
    yield from queries(SeededNoise(SEED))


def releases(law: Law, noise: Noise, label: str, only: tuple[str, ...] = ("dcr", "hdcr", "swcr")) -> Iterator[Tested]:
    """DCR sums, HDCR by covers and on the graph, direct windows; a run a column, each with noise of its own."""
    names = [f"a{i}" for i in range(WIDE)]
    wide = answer_query("each answer", names, names, fixed=True)
    truth = np.random.default_rng(1).integers(-20, 60, T)
    changes = [np.full(WIDE, change) for change in truth]
    levels = truth.cumsum()
    held: dict[tuple[str, int], int] = {}
    stated: dict[tuple[str, int], Interval] = {}

    def seen(kind: str, t: int, interval: Interval, errors: Any) -> None:
        stated[kind, t] = interval
        held[kind, t] = held.get((kind, t), 0) + int((np.abs(errors) <= interval.half_width).sum())

    dcr = hierarchy(wide, CALENDAR, TWICE, EPSILON, DELTAS[law], law=law)
    tree = hierarchy(wide, CALENDAR, TWICE, EPSILON, DELTAS[law], shape=(3, 3), law=law)
    windows = Windows(0, 4, 3, 4)
    direct = sliding_windows(wide, windows, TWICE, EPSILON, DELTAS[law], law)
    runs: dict[str, Callable[[], Iterator[Seen]]] = {
        "hdcr": lambda: chain(
            of_levels(wide, law, changes, levels, noise),
            (
                (f"hdcr_{kind}", t, at, values - levels[t - 1])
                for t, kind, at, values in hierarchical(tree, changes, noise)
            ),
        ),
        "dcr": lambda: of_sums(dcr, changes, levels, noise),
        "swcr": lambda: of_windows(direct, changes, levels, noise),
    }
    for _ in range(RUNS // WIDE):
        for name in only:
            for kind, t, interval, errors in runs[name]():
                seen(f"{label}_{kind}", t, interval, errors)
    for (kind, t), interval in stated.items():
        yield Tested(kind, held[kind, t], interval.level)


def of_sums(dcr: Any, changes: list[Counts], levels: Any, noise: Noise) -> Iterator[Seen]:
    """Sums of the nodes of one layer."""
    state, total = dcr.start(), np.zeros(WIDE, np.int64)
    for t, change in enumerate(changes, 1):
        state, (node,) = dcr.step(state, change, noise)
        total += node.values
        if t in TIMES:
            yield "dcr", t, sum_interval(dcr.noise, t, LEVEL), total - levels[t - 1]


def of_windows(
    direct: Any, changes: list[Counts], levels: Any, noise: Noise
) -> Iterator[tuple[str, int, Interval, Any]]:
    """Windows that are released directly."""
    window = direct.start()
    for t, change in enumerate(changes, 1):
        window, closed = direct.step(window, change, noise)
        if closed is not None:
            true = levels[t - 1] - (levels[t - 5] if t > 4 else 0)
            yield "swcr", t, sum_interval(direct.noise, 1, LEVEL), closed.values - true


def of_levels(
    wide: LinearQuery, law: Law, changes: list[Counts], levels: Any, noise: Noise
) -> Iterator[tuple[str, int, Interval, Any]]:
    """The tree drawn ahead, or the square root, whole and cut off: what publishes levels under this law."""
    tree = drawn_ahead(wide, CALENDAR, TWICE, EPSILON, TREE)
    mechanisms: list[tuple[str, Any, Any]] = [("ahead", tree, ahead_interval)]
    if law is Law.GAUSSIAN:
        roots = {"square_root": T, "square_root_cut": 4}
        mechanisms = [
            (kind, square_root(wide, CALENDAR, TWICE, EPSILON, DELTAS[law], band), square_root_interval)
            for kind, band in roots.items()
        ]
    for kind, mechanism, interval in mechanisms:
        state = mechanism.start()
        for t, change in enumerate(changes, 1):
            state, level = mechanism.step(state, change, noise)
            if t in TIMES:
                yield kind, t, interval(mechanism, t, LEVEL), level.values - levels[t - 1]


def hierarchical(tree: Any, changes: list[Counts], noise: Noise) -> Iterator[tuple[int, str, Interval, Any]]:
    estimates = BestEstimates(T, tree.widths, WIDE)
    state, frontier = tree.start(), estimates.start()
    nodes: list[NodeRelease] = []
    for t, change in enumerate(changes, 1):
        state, closed = tree.step(state, change, noise)
        nodes.extend(closed)
        frontier, level = estimates.step(frontier, closed)
        if t in TIMES:
            yield t, "graph", online_interval(tree.noise, 3, 3, t, LEVEL), level.values
            covered = cover_sum(nodes, 0, t, tree.widths)
            draws = round(covered.variance / tree.noise.variance)
            yield t, "cover", sum_interval(tree.noise, draws, LEVEL), covered.values


def counters(noise: Noise) -> Iterator[Tested]:
    """Cum and PPCum, one run after another: sums of so many draws of one law."""
    binary, pan = cum(8, EPSILON), PanPrivateCounter(8, EPSILON)
    times = (1, 3, 7)
    held = {(name, t): 0 for name in ("cum", "ppcum") for t in times}
    intervals = {}
    for t in times:
        intervals["cum", t] = sum_interval(binary.priced.drawn, t.bit_count(), LEVEL)  # type: ignore[attr-defined]
        intervals["ppcum", t] = sum_interval(pan.noise, pan.levels + 1, LEVEL)
    for _ in range(RUNS):
        tree, memory = binary.start(), pan.start()
        for t in range(1, 8):
            tree, of_tree = binary.step(tree, 3, noise)
            memory, of_pan = pan.step(memory, 3, noise)
            if t in times:
                held["cum", t] += abs(of_tree - 3 * t) <= intervals["cum", t].half_width
                held["ppcum", t] += abs(of_pan - 3 * t) <= intervals["ppcum", t].half_width
    for (name, t), count in held.items():
        yield Tested(name, count, intervals[name, t].level)


def queries(noise: Noise) -> Iterator[Tested]:
    """The benchmark and sigma-counting, unions of one and of nine atoms."""
    domain = Domain.of(age=range(10))
    table = domain.table({"age": [0, 1, 1, 7]})
    one = SigmaCounting(Algebra.of([Query.of(domain, f"age < {age}") for age in range(1, 10)]), EPSILON)
    paid = Benchmark(EPSILON, EPSILON)
    asked = {"sigma_one_atom": Query.of(domain, "age == 1"), "sigma_nine_atoms": Query.of(domain, "age != 1")}
    held = dict.fromkeys([*asked, "sigma_benchmark"], 0)
    stated: dict[str, Interval] = {}
    members = {name: one.algebra.members(query) for name, query in asked.items()}
    truth = {name: query.count(table) for name, query in asked.items()}
    for _ in range(RUNS):
        state, _ = one.step(one.start(), table, noise)
        for name, atoms in members.items():
            if atoms is not None:
                answer = one.summed(state, atoms)
                stated[name] = answer.interval(LEVEL)
                held[name] += abs(answer.estimate - truth[name]) <= stated[name].half_width
        _, answer = paid.step(paid.start(), (table, asked["sigma_one_atom"]), noise)
        stated["sigma_benchmark"] = answer.interval(LEVEL)
        held["sigma_benchmark"] += (
            abs(answer.estimate - truth["sigma_one_atom"]) <= stated["sigma_benchmark"].half_width
        )
    for name, count in held.items():
        yield Tested(name, count, stated[name].level)
