"""Measure 4 of several questions: a number that a hundred thousand report for a year at one epsilon for life.

The population's numbers are log-normal and drift: all by a fifth over the year, and each entry's by a slow walk of its
own. Beside the errors of the median and of the mean stand how often intervals hold the truth, how often entries change
their level where they round by one offset for life, afresh in each period, or to the nearest level, and what the last
does to the mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

import numpy as np
from changeling_protocol import AtMost, Calendar, Survey
from changeling_simulations import Population, sample_tallies
from changeling_statistics import (
    Floats,
    NumberFigures,
    Solution,
    Wish,
    number_series,
    optimal_plan,
    releases,
    steady_changes,
)
from numpy.typing import NDArray

ENTRIES, WEEKS, EPSILON, MOST_CHANGES = 100_000, 52, 4, 4
LEVELS = (0.0, 7.5, 15.0, 30.0, 60.0, 120.0, 240.0)
OFFSETS = 8
MEDIAN, SPREAD, DRIFT, WALK = 30.0, 0.6, 0.2, 0.15
SURVEYS, SEED = 16, 25


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The numbers of a population. values: of each entry at the end of each week, shape (entries, weeks)."""

    values: Floats

    @classmethod
    def drawn(cls, entries: int, weeks: int, generator: np.random.Generator) -> "Numbers":
        """Log-normal numbers that drift together, and each by a walk of its own."""
        start = np.log(MEDIAN) + SPREAD * generator.standard_normal((entries, 1))
        steps = generator.standard_normal((entries, weeks)) * (WALK / np.sqrt(weeks))
        together = np.linspace(0, np.log1p(DRIFT), weeks)
        return cls(np.exp(start + together + np.cumsum(steps, axis=1)))

    def rounded(self, u: Floats) -> NDArray[np.uint16]:
        """The answers, from 1 on, with these offsets, shape (entries, 1) or (entries, weeks)."""
        levels = np.array(LEVELS)
        x = np.clip(self.values, levels[0], levels[-1])
        below = np.clip(np.searchsorted(levels, x, side="right") - 1, 0, len(levels) - 2)
        up = x >= levels[below] + u * (levels[below + 1] - levels[below])
        answers: NDArray[np.uint16] = (below + up + 1).astype(np.uint16)
        return answers

    @property
    def truth(self) -> tuple[Floats, Floats]:
        """The mean and the median of the clipped numbers at each week, shape (weeks,)."""
        clipped = np.clip(self.values, LEVELS[0], LEVELS[-1])
        return clipped.mean(0), np.median(clipped, axis=0)


def changes(answers: NDArray[np.uint16]) -> float:
    """How often an entry's answer changes after the first week, on average."""
    return float((np.diff(answers.astype(np.int32), axis=1) != 0).sum(1).mean())


@cache
def survey() -> Survey:
    """The planner's survey of the number."""
    calendar, constraint = Calendar(0, "1w", WEEKS), AtMost(MOST_CHANGES)
    numbers = Numbers.drawn(20_000, WEEKS, np.random.default_rng(SEED))
    expected = steady_changes(
        calendar, constraint, changes(numbers.rounded(np.random.default_rng(1).random((20_000, 1))))
    )
    wish = Wish(
        len(LEVELS), calendar, constraint, epsilon=Decimal(EPSILON), devices=ENTRIES, closed=True, expected=expected
    )
    return optimal_plan(wish).option.survey


def populations(numbers: Numbers, generator: np.random.Generator) -> list[Population]:
    """Those of each offset, which each entry draws, its answers frozen after MOST_CHANGES - 1 changes."""
    offset = generator.integers(OFFSETS, size=len(numbers.values))
    answers = numbers.rounded((2 * offset[:, None] + 1) / (2 * OFFSETS))
    frozen = _frozen(answers)
    names = survey().answers
    return [_population(names, answers[offset == j], frozen[offset == j]) for j in range(OFFSETS)]


def _frozen(answers: NDArray[np.uint16]) -> NDArray[np.uint16]:
    made = np.cumsum(np.diff(answers.astype(np.int32), axis=1, prepend=answers[:, :1]) != 0, axis=1)
    last = np.where(made < MOST_CHANGES, np.arange(answers.shape[1]), 0)
    return np.take_along_axis(answers, np.maximum.accumulate(last, axis=1), axis=1)


def _population(names: tuple[str, ...], true: NDArray[np.uint16], frozen: NDArray[np.uint16]) -> Population:
    before = np.zeros((len(true), 1), np.uint16)
    distinct, counts = np.unique(np.hstack([before, true, before, frozen]), axis=0, return_counts=True)
    held, told = np.hsplit(distinct, 2)
    return Population(names, held, told, counts.astype(np.int64))


def estimated(
    populations: Sequence[Population], generator: np.random.Generator, *, retrospective: bool = False
) -> list[NumberFigures]:
    """The figures of one simulated survey."""
    by_offset = [sample_tallies(each, survey(), generator) for each in populations]
    everybody = by_offset[0]
    for each in by_offset[1:]:
        everybody = everybody + each
    solutions = [Solution(releases(survey(), each), retrospective) for each in (everybody, *by_offset)]
    return number_series(LEVELS, solutions[0], solutions[1:], WEEKS)


def accuracy() -> dict[str, float]:
    """Errors of the mean and the median, and the coverage of their intervals, online and retrospective."""
    generator, figures = np.random.default_rng(SEED), dict[str, float]()
    numbers = Numbers.drawn(ENTRIES, WEEKS, generator)
    people = populations(numbers, generator)
    mean, median = numbers.truth
    for retrospective in (False, True):
        name = "retrospective" if retrospective else "online"
        runs = [estimated(people, generator, retrospective=retrospective) for _ in range(SURVEYS)]
        for figure, truth, unit in (("mean", mean, np.full(WEEKS, LEVELS[-1])), ("median", median, median)):
            found = np.array([[_ends(each, figure) for each in run] for run in runs])  # (surveys, weeks, 3)
            errors = np.sqrt(((found[..., 0] - truth) ** 2).mean(0)) / unit
            held = (found[..., 1] <= truth) & (truth <= found[..., 2])
            figures[f"4_{figure}_{name}_worst_week"] = float(errors.max())
            figures[f"4_{figure}_{name}"] = float(np.sqrt((errors**2).mean()))
            figures[f"4_{figure}_{name}_coverage"] = float(held.mean())
    return figures


def _ends(figures: NumberFigures, name: str) -> tuple[float, float, float]:
    figure = figures.mean if name == "mean" else figures.quantiles[0.5]
    return figure.value, figure.low, figure.high


def rounding() -> dict[str, float]:
    """How often levels change, and the bias of the mean over its range, by the way that entries round."""
    generator = np.random.default_rng(SEED)
    numbers = Numbers.drawn(20_000, WEEKS, generator)
    mean, levels = numbers.truth[0], np.array(LEVELS)
    ways = {
        "one_offset": (2 * generator.integers(OFFSETS, size=(20_000, 1)) + 1) / (2 * OFFSETS),
        "afresh": generator.random((20_000, WEEKS)),
        "fixed": np.full((20_000, 1), 0.5),
    }
    figures = {}
    for name, u in ways.items():
        answers = numbers.rounded(u)
        figures[f"4_changes_{name}"] = changes(answers)
        figures[f"4_bias_{name}"] = float(np.abs(levels[answers.astype(int) - 1].mean(0) - mean).max() / LEVELS[-1])
    return figures


def measure() -> dict[str, float]:
    """All of measure 4."""
    return rounding() | accuracy()
