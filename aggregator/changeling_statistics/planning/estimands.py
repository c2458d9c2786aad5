"""The figure that a survey is run for: how large its error will be, and how many levels of a number make it small.

Every randomizer treats answers alike, so for given answers one plan makes the errors of all figures small: they are
functions of the standard error of a share. What differs is the number of levels that is best. Losses are the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from math import hypot, sqrt
from typing import Literal, get_args

import numpy as np
from changeling_protocol import OFFSETS, Question

from ..estimate import Floats
from .plans import Planned, optimal_plan
from .wish import Wish

Estimand = Literal["histogram", "mean", "quantile", "difference"]
ESTIMANDS: tuple[str, ...] = get_args(Estimand)
LEVELS = (2, 3, 4, 5, 6, 8, 11, 16)
"""How many levels of a number are tried."""
DECIMALS = 9
"""Levels that the planner chooses are rounded to so many decimals."""


@dataclass(frozen=True, slots=True)
class EstimandError:
    """The standard error of one figure of a question.

    error: in the question's unit where the figure is a number, else as a fraction of the entries.
    relative: the same as a part of the range of the levels, or as it is. words: what it is an error of.
    """

    error: float
    relative: float
    words: str


def estimand_error(estimand: str, question: Question, share: float, devices: int) -> EstimandError:
    """The standard error of a figure.

    share: the standard error of a share of an answer, as a fraction; root mean square over the answers.
    devices: n, how many answer.
    A sum of shares with the coefficients c has the variance share² z/(z - 1) Σ (c - mean c)², exactly where everybody
    has an answer, and at most elsewhere. Rounding a number to levels adds a quarter of a level's width squared, over n.
    Raises ValueError for a mean or a quantile of what is no number.

    >>> from changeling_protocol import AtMost
    >>> minutes = Question.of_number("minutes", "How long?", ["0", "100"], AtMost(1), "min")
    >>> round(estimand_error("mean", minutes, 0.01, 10**6).error, 3)
    1.001
    """
    if estimand not in ESTIMANDS:
        raise ValueError(f"a survey is for one of {', '.join(ESTIMANDS)}, got {estimand!r}")
    if estimand in ("mean", "quantile") and not question.is_number:
        raise ValueError(
            f"{question.name!r} is no number: a {estimand} is one of levels, say --unit, or --for histogram"
        )
    z = len(question.answers)
    if estimand == "mean" or (estimand == "difference" and question.is_number):
        levels = np.array(question.values)
        error = hypot(_of_sum(share, levels), float(np.diff(levels).max()) / 2 / sqrt(devices))
        error *= 1 if estimand == "mean" else 2
        words = "the mean" if estimand == "mean" else "the difference of two arms' means"
        return EstimandError(error, error / float(np.ptp(levels)), words)
    if estimand == "quantile":
        error = _of_sum(share, (np.arange(z) >= z / 2).astype(float))
        return EstimandError(error, error, "the share above the median")
    if estimand == "difference":
        error = 2 * sqrt(share**2 + (1 - 1 / z) / z / devices)
        return EstimandError(error, error, "the difference of a share between two arms")
    return EstimandError(share, share, "a share")


def _of_sum(share: float, coefficients: Floats) -> float:
    z = len(coefficients)
    return share * sqrt(z / max(1, z - 1) * float(((coefficients - coefficients.mean()) ** 2).sum()))


def even_levels(low: Decimal, high: Decimal, count: int) -> tuple[Decimal, ...]:
    """So many levels at even distances. Raises ValueError for a range that does not rise."""
    if not low < high:
        raise ValueError(f"a range rises, got {low} to {high}")
    inner = (round(low + (high - low) * place / (count - 1), DECIMALS) for place in range(1, count - 1))
    return low, *inner, high


@dataclass(frozen=True, slots=True)
class LevelsTried:
    """Levels that were tried. planned: the plan for so many answers. relative: the error that is to be small."""

    levels: tuple[Decimal, ...]
    planned: Planned
    relative: float


def levels_tried(wish: Wish, low: Decimal, high: Decimal, estimand: str) -> Iterator[LevelsTried]:
    """Plans for each number of levels of a range; the one with the least error of the figure is the best.

    wish: its answers are not looked at. A quantile's error has the distance of the points of the distribution added,
    over all offsets; without another aim it is that of the mean.
    """
    for count in LEVELS:
        levels = even_levels(low, high, count)
        planned = optimal_plan(replace(wish, answers=count))
        question = Question.of_number("number", "a number", levels, wish.constraint)
        error = planned.option.error(planned.wish)
        aim = "quantile" if estimand == "quantile" else "mean"
        relative = estimand_error(aim, question, error, wish.devices).relative
        apart = 1 / (count - 1) / OFFSETS / sqrt(12) if aim == "quantile" else 0.0
        yield LevelsTried(levels, planned, hypot(relative, apart))
