"""Measure 2 of the central releases, the last part: fully dynamic against insertion minus deletion, N_t >= 20 n_t.

A database of n entries under steady churn; items of 64 kinds, exponentially skewed; 200 random counting queries; both
mechanisms take private multiplicative weights, pure, at equal total epsilon, under the same partitioning (of few
segments, whose staleness both suffer alike). The error of a step is the largest over the queries, as in the paper.
The same on the planes in the air, where n_t is near 100: there each mechanism has the best of several partitionings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np
from changeling_central.testing import SeededNoise
from changeling_papers import (
    FullyDynamic,
    MultiplicativeWeights,
    PartitionedRelease,
    Update,
    fully_dynamic,
    insertion_minus_deletion,
)
from changeling_statistics import Changelog, Counts, Floats

from .central import HOURS, START, flights

Step = tuple[Counts, Counts, list[Update]]

KINDS, QUERIES, ROUNDS, SKEW = 64, 200, 100, 0.1


CUTTINGS = (Fraction(1, 20), Fraction(1, 200), Fraction(1, 1000), Fraction(1, 5000))
"""The partitioning's share, on the flights."""


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
"""Little to learn: what counts is not to add the errors of what is gone."""
LEARNED = Setting(2000, 200, Fraction(64), Fraction(1, 8000), 400, 2)
"""Enough for both to learn the items' distribution: the fully dynamic one is behind up to an N_t of some 65·n_t."""


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """Over the steps with N_t >= 20·n_t, shape (steps, queries): of both mechanisms, and of n_t items spread evenly,
    the best that one who knew n_t alone could do. updates: N_t over n_t, shape (steps,)."""

    dynamic: Floats
    difference: Floats
    even: Floats
    updates: Floats


def measure() -> dict[str, float]:
    """Errors of the fully dynamic mechanism over those of insertion minus deletion: below 1 it is ahead."""
    figures: dict[str, float] = {}
    for name, setting in (("small", SMALL), ("learned", LEARNED)):
        runs = [errors(setting, seed) for seed in range(setting.runs)]
        both = [np.concatenate([getattr(run, what) for run in runs]) for what in ("dynamic", "difference", "even")]
        updates = np.concatenate([run.updates for run in runs])
        for label, chosen in (("", updates > 0), ("_first_quarter", updates <= np.quantile(updates, 0.25))):
            of_dynamic, of_difference, of_even = (_worst(one[chosen]) for one in both)
            figures[f"2_dynamic_over_difference_{name}{label}"] = of_dynamic / of_difference
            figures[f"2_dynamic_over_even_spread_{name}{label}"] = of_dynamic / of_even
        figures[f"2_dynamic_over_difference_rms_{name}"] = _rms(both[0]) / _rms(both[1])
        figures[f"2_dynamic_max_error_{name}"] = _worst(both[0])
        figures[f"2_difference_max_error_{name}"] = _worst(both[1])
    for n in (500, 2000, 8000):
        at_size = errors(Setting(n, 400_000 // n, Fraction(64), Fraction(1, 8000), n // 5, 1), 9)
        figures[f"2_dynamic_max_error_400000_updates_n{n}"] = _worst(at_size.dynamic)
        figures[f"2_difference_max_error_400000_updates_n{n}"] = _worst(at_size.difference)
    return figures | on_flights()


def on_flights() -> dict[str, float]:
    """Largest errors over 200 sets of airlines, every hour with N_t >= 20·n_t, the mean of three runs.

    `ratio` is below 1 where the fully dynamic mechanism is ahead; `even_spread` is the error of who knew n_t alone.
    """
    log, _, _ = flights()
    table = np.random.default_rng(0).integers(0, 2, (QUERIES, len(log.answers)))
    weights = MultiplicativeWeights(table, most_rounds=ROUNDS)
    stream = list(hours(log, weights))
    figures: dict[str, float] = {}
    for epsilon in (Fraction(1), Fraction(10), Fraction(100)):
        best = {"dynamic": inf, "difference": inf}
        for cutting in CUTTINGS:
            dynamic = fully_dynamic(weights, epsilon, cutting=cutting, periods=HOURS)
            difference = insertion_minus_deletion(weights, epsilon, cutting=cutting, periods=HOURS)
            runs = [compared(dynamic, difference, stream, table, seed) for seed in range(3)]
            for name in best:
                best[name] = min(best[name], float(np.mean([_worst(getattr(run, name)) for run in runs])))
        figures[f"2_flights_dynamic_error_eps_{epsilon}"] = best["dynamic"]
        figures[f"2_flights_difference_error_eps_{epsilon}"] = best["difference"]
        figures[f"2_flights_dynamic_over_difference_eps_{epsilon}"] = best["dynamic"] / best["difference"]
        figures["2_flights_even_spread_error"] = _worst(runs[0].even)
    return figures


def hours(log: Changelog, weights: MultiplicativeWeights) -> Iterator[Step]:
    """Hour by hour what came, what went, and the updates."""
    for part in log.mutations().by_period(START, 3600, HOURS):
        new, old, entry = part.new.tolist(), part.old.tolist(), part.entry.tolist()
        came, went = (weights.gathered([state - 1 for state in states if state]) for states in (new, old))
        yield came, went, [Update(e, state - 1 if state else None) for e, state in zip(entry, new, strict=True)]


def errors(setting: Setting, seed: int) -> Errors:
    """One run of both mechanisms on one stream."""
    random = np.random.default_rng(seed)
    table = random.integers(0, 2, (QUERIES, KINDS))
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
    columns = [np.array(column, np.float64) for column in zip(*found, strict=True)]
    return Errors(columns[0], columns[1], columns[2], columns[3])


def churn(setting: Setting, random: np.random.Generator) -> tuple[list[int], list[tuple[Sequence[int], Sequence[int]]]]:
    """The item of every entry, and step by step the entries inserted and deleted: n first, then one for one."""
    chances = random.permutation(np.exp(-SKEW * np.arange(KINDS)))
    steps = (setting.turns - 1) * setting.n // (2 * setting.batch)
    items: list[int] = random.choice(KINDS, setting.n + steps * setting.batch, p=chances / chances.sum()).tolist()
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
