"""Measures 2 and 3 of `make bench-central`: the papers' systems, beside each other and what knows nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from changeling_central import (
    Asked,
    NodeChanges,
    NodeRelease,
    Noise,
    PeriodChange,
    answer_query,
    drawn_ahead,
    offered,
)
from changeling_central.testing import SeededNoise
from changeling_papers import (
    Assumed,
    BestEstimates,
    Domain,
    Evolving,
    FullyDynamic,
    MultiplicativeWeights,
    PanPrivateCounter,
    PartitionedRelease,
    Query,
    Update,
    best_hierarchy,
    cover_sum,
    fully_dynamic,
    hierarchy,
    insertion_minus_deletion,
    retrospective,
)
from changeling_protocol import AtMost, Calendar
from changeling_statistics import Counts, Floats

from .central import HOURS, START
from .central import flights as flights_log

EPSILON, TWICE, SEED = Fraction(1), AtMost(2), 4


# 2: planes in the air by airline, every hour


RUNS = {"counter": 3, "pan-private": 3, "infinite": 3, "partitioning": 3, "dynamic": 1}
"""How often each is run; PPCum is no mechanism of `changeling release`, and has a counter for each airline here."""


def flights() -> dict[str, float]:
    """Root mean squared errors in planes, every mechanism at the same total epsilon; `always_zero`: of publishing
    zeros. On the same nodes cover sums, best estimates online, and from all nodes."""
    log_, query, changes_ = flights_log()
    parts = [PeriodChange(log_, part, query) for part in log_.mutations().by_period(START, 3600, HOURS)]
    changes, calendar = np.array(changes_), Calendar(START, 3600, HOURS)
    truth = changes.cumsum(0).astype(np.float64)
    figures = {"2_always_zero": float(np.sqrt((truth**2).mean()))}
    for epsilon in (EPSILON, 10 * EPSILON):
        found: dict[str, list[float]] = {}
        best = best_hierarchy(query, calendar, TWICE, epsilon)
        for name, shape in {"binary": (2, 10), "best": (best.branching, best.layers)}.items():
            mechanism = hierarchy(query, calendar, TWICE, epsilon, shape=shape)
            for run in range(6):
                for kind, series in _three_ways(mechanism, changes, SeededNoise(SEED + run)):
                    found.setdefault(f"hdcr_{name}_{kind}", []).append(float(((series - truth) ** 2).mean()))
        for kind, runs in RUNS.items():
            for noise in map(SeededNoise, range(SEED, SEED + runs)):
                if kind == "pan-private":
                    series = _pan_private(epsilon / TWICE.k, changes, noise)
                else:
                    series = _stepped(offered(kind).made(Asked(query, calendar, TWICE, epsilon)), parts, noise)
                found.setdefault(kind, []).append(float(((series - truth) ** 2).mean()))
        figures |= {f"2_rmse_{name}_eps_{epsilon}": sqrt(np.mean(each)) for name, each in found.items()}
    return figures


def _three_ways(mechanism: NodeChanges, changes: Counts, noise: Noise) -> Iterator[tuple[str, Floats]]:
    estimates, T = BestEstimates(len(changes), mechanism.widths, changes.shape[1]), len(changes)
    state, frontier = mechanism.start(), estimates.start()
    nodes: list[NodeRelease] = []
    graph: list[Floats] = []
    for change in changes:
        state, closed = mechanism.step(state, change, noise)
        nodes.extend(closed)
        frontier, level = estimates.step(frontier, closed)
        graph.append(level.values)
    yield "graph", np.array(graph)
    yield "cover", np.array([cover_sum(nodes, 0, t, mechanism.widths).values for t in range(1, T + 1)])
    yield "retrospective", retrospective(nodes, T)[0][1:]


def _stepped(mechanism: Any, parts: list[PeriodChange], noise: Noise) -> Floats:
    state, levels = mechanism.start(), []
    for part in parts:
        state, level = mechanism.step(state, part, noise)
        levels.append(level.values)
    return np.array(levels)


def _pan_private(epsilon: Fraction, changes: Counts, noise: Noise) -> Floats:
    counter, columns = PanPrivateCounter(len(changes), epsilon), []
    for column in changes.T.tolist():
        memory, told = counter.start(), []
        for change in column:
            memory, output = counter.step(memory, change, noise)
            told.append(float(output))
        columns.append(told)
    return np.array(columns).T


# 3, its last part: the evolving count


def evolving() -> dict[str, float]:
    """Root mean squared errors over 64 steps at epsilon 1: true differences if assumptions hold, a release of changes.

    The one promises nothing unless the others' moves are as spread as assumed; the other for any data of two
    mutations an entry.
    """
    steps, runs = 64, 200
    domain = Domain.of(here=[False, True])
    one = Evolving(Query.of(domain, "here"), steps, EPSILON, Assumed(Fraction(1001, 1000), Fraction(99, 100)))
    counts = 2_000 + np.cumsum(np.random.default_rng(3).integers(-40, 41, steps))
    tables = [domain.table({"here": np.ones(count, np.bool_)}) for count in counts.tolist()]
    changes, calendar = np.diff(counts, prepend=0), Calendar(0, 1, steps)
    tree = drawn_ahead(answer_query("any answer", ["here"]), calendar, TWICE, EPSILON)
    noise, wrong, off = SeededNoise(3), [], []
    for _ in range(runs):
        state, of_tree = one.start(), tree.start()
        for table, true, change in zip(tables, counts, changes, strict=True):
            state, value = one.step(state, table, noise)
            of_tree, level = tree.step(of_tree, np.array([change]), noise)
            wrong.append(value - true)
            off.append(float(level.values[0]) - true)
    return {
        "3_evolving_rmse_if_assumptions_hold": float(np.sqrt(np.mean(np.square(wrong)))),
        "3_evolving_rmse_release_of_changes": float(np.sqrt(np.mean(np.square(off)))),
    }


# 2: fully dynamic against insertions minus deletions


Step = tuple[Counts, Counts, list[Update]]

ITEMS, QUERIES, ROUNDS, SKEW = 64, 200, 100, 0.1


@dataclass(frozen=True, slots=True)
class Setting:
    """n entries, replaced `batch` at a time until there were `turns`·n updates. cutting: the partitioning's share."""

    n: int
    turns: int
    epsilon: Fraction
    cutting: Fraction
    batch: int
    runs: int


SMALL = Setting(1000, 41, Fraction(16), Fraction(1, 500), 100, 6)
"""Little to learn: what counts is not to add the dynamic_errors of what is gone."""
LEARNED = Setting(2000, 200, Fraction(64), Fraction(1, 8000), 400, 2)
"""Enough for both to learn the items' distribution: the fully dynamic one is behind up to an N_t of some 65·n_t."""


class Errors(NamedTuple):
    """Over the steps with N_t >= 20·n_t, shape (steps, queries): of both mechanisms, and of n_t items spread evenly,
    the best that one who knew n_t alone could do. updates: N_t over n_t, shape (steps,)."""

    dynamic: Floats
    difference: Floats
    even: Floats
    updates: Floats


def dynamic() -> dict[str, float]:
    """Errors of the fully dynamic mechanism over those of insertion minus deletion: below 1 it is ahead."""
    figures: dict[str, float] = {}
    for name, setting in (("small", SMALL), ("learned", LEARNED)):
        runs = [dynamic_errors(setting, seed) for seed in range(setting.runs)]
        *errors, updates = map(np.concatenate, zip(*runs, strict=True))
        for label, chosen in (("", updates > 0), ("_first_quarter", updates <= np.quantile(updates, 0.25))):
            of_dynamic, of_difference, of_even = (_worst(each[chosen]) for each in errors)
            figures[f"2_dynamic_over_difference_{name}{label}"] = of_dynamic / of_difference
            figures[f"2_dynamic_over_even_spread_{name}{label}"] = of_dynamic / of_even
        figures[f"2_dynamic_over_difference_rms_{name}"] = _rms(errors[0]) / _rms(errors[1])
        figures[f"2_dynamic_max_error_{name}"] = _worst(errors[0])
        figures[f"2_difference_max_error_{name}"] = _worst(errors[1])
    for n in (500, 2000, 8000):
        at_size = dynamic_errors(Setting(n, 400_000 // n, Fraction(64), Fraction(1, 8000), n // 5, 1), 9)
        figures[f"2_dynamic_max_error_400000_updates_n{n}"] = _worst(at_size.dynamic)
        figures[f"2_difference_max_error_400000_updates_n{n}"] = _worst(at_size.difference)
    return figures


def dynamic_errors(setting: Setting, seed: int) -> Errors:
    """One run of both mechanisms on one stream."""
    random = np.random.default_rng(seed)
    table = random.integers(0, 2, (QUERIES, ITEMS))
    items, stream = churn(setting, random)
    weights = MultiplicativeWeights(table, most_rounds=ROUNDS)
    dynamic = fully_dynamic(weights, setting.epsilon, cutting=setting.cutting)
    difference = insertion_minus_deletion(weights, setting.epsilon, cutting=setting.cutting)
    return compared(dynamic, difference, list(gathered(weights, items, stream)), table, seed)


def gathered(
    weights: MultiplicativeWeights, items: list[int], stream: list[tuple[Sequence[int], Sequence[int]]]
) -> Iterator[Step]:
    """What came, what went, and the updates, of the entries inserted and deleted."""
    for inserted, deleted in stream:
        came, went = (weights.gathered([items[entry] for entry in entries]) for entries in (inserted, deleted))
        yield came, went, [*(Update(e, None) for e in deleted), *(Update(e, items[e]) for e in inserted)]


def compared(
    dynamic: FullyDynamic[Counts],
    difference: PartitionedRelease[Counts],
    stream: list[Step],
    table: Counts,
    seed: int,
) -> Errors:
    """Both mechanisms on one stream, at the steps with N_t >= 20·n_t."""
    one, other = dynamic.start(), difference.start()
    noises = SeededNoise(2 * seed), SeededNoise(2 * seed + 1)
    present, count = np.zeros(table.shape[1], np.int64), 0
    found: list[tuple[Floats, Floats, Floats, float]] = []
    for came, went, updates in stream:
        present, count = present + came - went, count + len(updates)
        one, answers = dynamic.step(one, updates, noises[0])
        other, others = difference.step(other, (came, went), noises[1])
        if count >= 20 * present.sum() > 0:
            truth = table @ present
            even = table.mean(1) * present.sum()
            found.append((answers - truth, others - truth, even - truth, count / present.sum()))
    return Errors(*(np.array(column, np.float64) for column in zip(*found, strict=True)))


def churn(setting: Setting, random: np.random.Generator) -> tuple[list[int], list[tuple[Sequence[int], Sequence[int]]]]:
    """The item of every entry, and step by step the entries inserted and deleted: n first, then one for one."""
    chances = random.permutation(np.exp(-SKEW * np.arange(ITEMS)))
    steps = (setting.turns - 1) * setting.n // (2 * setting.batch)
    items: list[int] = random.choice(ITEMS, setting.n + steps * setting.batch, p=chances / chances.sum()).tolist()
    there: Counts = np.arange(setting.n)
    stream: list[tuple[Sequence[int], Sequence[int]]] = [
        (range(first, min(first + setting.batch, setting.n)), ()) for first in range(0, setting.n, setting.batch)
    ]
    for step in range(steps):
        fresh = range(setting.n + step * setting.batch, setting.n + (step + 1) * setting.batch)
        places = random.choice(setting.n, setting.batch, replace=False)
        stream.append((fresh, there[places].tolist()))
        there[places] = fresh
    return items, stream


def _worst(found: Floats) -> float:
    """The mean over steps of the largest error over queries."""
    return float(np.abs(found).max(1).mean())


def _rms(found: Floats) -> float:
    return float(np.sqrt(np.mean(found**2)))
