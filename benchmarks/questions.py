"""Measures 2 to 5 and 7 of several questions on one budget: accuracy, numbers, differences, and the planner's time.

Errors are what the planner predicts for the plan that it returns, root mean square over the answers and periods, as
fractions. The population changes half as often as it may.
"""

import time
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from operator import add

import numpy as np
from changeling_protocol import (
    OFFSETS,
    AtMost,
    Calendar,
    Question,
    Survey,
)
from changeling_simulations import Population, closed_cohort, sample_tallies
from changeling_statistics import (
    Floats,
    Histogram,
    Planned,
    Questionnaire,
    Solution,
    WeightedQuestion,
    Wish,
    number_series,
    optimal_plan,
    plan_questionnaire,
    releases,
    series,
    share_difference,
    steady_changes,
)
from numpy.typing import NDArray

WEEK, DEVICES, ANSWERS = 604_800, 20_000, 4
AT_ONCE = ((10, 8), (30, 8), (100, 8), (10, 2))
OVER_TIME = ((12, 3, 8, True), (12, 3, 16, True), (52, 4, 8, True), (12, 3, 8, False))
"""Periods, k with the first answer, epsilon, and whether the histograms are wanted when all is over."""
SEEDS = 200


def wish(questions: int, periods: int, k: int, epsilon: float, *, retrospective: bool = True) -> Wish:
    """So many alike questions of a closed cohort, of which no lost period need be bridged."""
    calendar = Calendar(0, WEEK, periods)
    return Wish(
        ANSWERS,
        calendar,
        AtMost(k),
        epsilon=Decimal(str(epsilon)),
        devices=DEVICES,
        closed=True,
        expected=steady_changes(calendar, AtMost(k)),
        retrospective=retrospective,
        bridge=False,
        questions=questions,
    )


def error(asked: Wish) -> float:
    return optimal_plan(asked).option.prediction.mean


def beside(asked: Wish) -> dict[str, float]:
    """The error with epsilon cut into a slice for each question, and with one question for each entry.

    Of the latter it is that of those who are asked, and that these are only some: the answers are uniform.
    """
    alone, questions = replace(asked, questions=1), asked.questions
    sampled = (1 - 1 / ANSWERS) / ANSWERS * (questions - 1) / DEVICES
    return {
        "split": error(replace(alone, epsilon=asked.epsilon / questions)),
        "one_each": float(np.hypot(error(replace(alone, devices=DEVICES // questions)), np.sqrt(sampled))),
    }


def simulated(planned: Planned, questions: int) -> float:
    """The error of one question in simulated surveys over what is predicted for it."""
    survey, periods = planned.option.survey, planned.wish.periods
    view = survey.about(questions // 2)
    squares = []
    for seed in range(SEEDS):
        generator = np.random.default_rng([25, seed])
        made = closed_cohort(DEVICES, ANSWERS, periods=periods, most_changes=0, generator=generator)
        population: Population = replace(made, answers=view.answers)
        estimated = series(view, sample_tallies(population, view, generator), periods, retrospective=True)
        for at, histogram in enumerate(estimated, 1):
            if not isinstance(histogram, Histogram):
                raise TypeError("every period is estimated")
            truth = np.bincount(population.frozen[:, at], population.weights, ANSWERS + 1)[1:] / DEVICES
            squares.append(np.mean((histogram.estimate.values / histogram.estimate.values.sum() - truth) ** 2))
    return float(np.sqrt(np.mean(squares)) / planned.option.prediction.mean)


def unlike(questions: int) -> dict[str, float]:
    """Processor seconds of a plan for questions of four kinds, and the root of their weighted mean squared error."""
    began, calendar = time.process_time(), Calendar(0, WEEK, 12)
    kinds = [(2, 2), (4, 3), (4, 2), (6, 3)]
    asked = []
    for at in range(questions):
        answers, k = kinds[at % len(kinds)]
        named = tuple(f"answer {each}" for each in range(answers))
        asked.append(Question(f"q{at}", "What?", named, AtMost(k), steady_changes(calendar, AtMost(k))))
    weighted = tuple(WeightedQuestion(each, 1 + at % 2) for at, each in enumerate(asked))
    wanted = Questionnaire(weighted, calendar, Decimal(8), DEVICES, closed=True, bridge=False)
    return {
        f"3_{questions}_unlike_points": 100 * plan_questionnaire(wanted).total,
        f"7_{questions}_unlike_planner_cpu_seconds": time.process_time() - began,
    }


def accuracy() -> dict[str, float]:
    """Measures 2, 3 and 7 of several questions."""
    figures: dict[str, float] = {}
    for questions, epsilon in AT_ONCE:
        asked = wish(questions, 1, 1, epsilon)
        planned = optimal_plan(asked)
        name = f"2_once_{questions}_epsilon_{epsilon}"
        figures[f"{name}_points"] = 100 * planned.option.prediction.mean
        figures |= {f"{name}_{other}_points": 100 * each for other, each in beside(asked).items()}
        figures[f"{name}_simulated_over_predicted"] = simulated(planned, questions)
    for periods, k, epsilon, retrospective in OVER_TIME:
        asked = wish(10, periods, k, epsilon, retrospective=retrospective)
        name = f"3_T{periods}_epsilon_{epsilon}_{'retrospective' if retrospective else 'online'}"
        figures[name] = error(asked)
        if periods == 12:
            figures |= {f"{name}_{other}": each for other, each in beside(asked).items()}
    for questions in (10, 100):
        figures |= unlike(questions)
    return figures


# 4: a number that a hundred thousand report for a year


ENTRIES, SAMPLE, WEEKS, MOST_CHANGES = 100_000, 20_000, 52, 4
LEVELS = (0.0, 7.5, 15.0, 30.0, 60.0, 120.0, 240.0)
MEDIAN, SPREAD, DRIFT, WALK = 30.0, 0.6, 0.2, 0.15
NUMBER_SURVEYS, NUMBER_SEED = 16, 25


def numbers() -> dict[str, float]:
    """Measure 4: errors of the mean and the median of a number at one epsilon for life, and how entries round it.

    The population's numbers are log-normal and drift: all by a fifth over the year, and each entry's by a slow walk of
    its own. Beside the errors stand how often intervals hold the truth, online and retrospective; how often entries
    change their level where they round by one offset for life, afresh in each period, or to the nearest level, and what
    each does to the mean, over its range.
    """
    generator, levels = np.random.default_rng(NUMBER_SEED), np.array(LEVELS)
    held, mean, _ = _numbers(SAMPLE, generator)
    ways = {
        "one_offset": _middle(generator.integers(OFFSETS, size=(SAMPLE, 1))),
        "afresh": generator.random((SAMPLE, WEEKS)),
        "fixed": np.full((SAMPLE, 1), 0.5),
    }
    figures = dict[str, float]()
    for name, u in ways.items():
        answers = _rounded(held, u)
        figures[f"4_changes_{name}"] = float(_changed(answers).sum(1).mean())
        figures[f"4_bias_{name}"] = float(np.abs(levels[answers.astype(int) - 1].mean(0) - mean).max() / LEVELS[-1])
    calendar, constraint = Calendar(0, "1w", WEEKS), AtMost(MOST_CHANGES)
    expected = steady_changes(calendar, constraint, figures["4_changes_one_offset"])
    asked = Wish(len(LEVELS), calendar, constraint, Decimal(4), ENTRIES, closed=True, expected=expected)
    return figures | _number_errors(optimal_plan(asked).option.survey)


def _numbers(entries: int, generator: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Numbers of entries at the ends of weeks, within the levels, (entries, WEEKS); each week's mean and median."""
    start = np.log(MEDIAN) + SPREAD * generator.standard_normal((entries, 1))
    steps = generator.standard_normal((entries, WEEKS)) * (WALK / np.sqrt(WEEKS))
    together = np.linspace(0, np.log1p(DRIFT), WEEKS)
    held = np.clip(np.exp(start + together + np.cumsum(steps, axis=1)), LEVELS[0], LEVELS[-1])
    return held, held.mean(0), np.median(held, axis=0)


def _middle(offset: NDArray[np.int64]) -> Floats:
    middle: Floats = (2 * offset + 1) / (2 * OFFSETS)
    return middle


def _rounded(held: Floats, u: Floats) -> NDArray[np.uint16]:
    """The answers, from 1 on, with these offsets, shape (entries, 1) or (entries, WEEKS)."""
    levels = np.array(LEVELS)
    below = np.clip(np.searchsorted(levels, held, side="right") - 1, 0, len(levels) - 2)
    up = held >= levels[below] + u * (levels[below + 1] - levels[below])
    answers: NDArray[np.uint16] = (below + up + 1).astype(np.uint16)
    return answers


def _changed(answers: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Mask of the weeks in which an entry's answer is not the last one; the first is none."""
    changed: NDArray[np.bool_] = np.diff(answers, axis=1, prepend=answers[:, :1]) != 0
    return changed


def _number_errors(survey: Survey) -> dict[str, float]:
    generator, figures = np.random.default_rng(NUMBER_SEED), dict[str, float]()
    held, mean, median_ = _numbers(ENTRIES, generator)
    offset = generator.integers(OFFSETS, size=ENTRIES)
    answers = _rounded(held, _middle(offset[:, None]))
    told = np.where(_changed(answers).cumsum(1) < MOST_CHANGES, np.arange(WEEKS), 0)
    frozen = np.take_along_axis(answers, np.maximum.accumulate(told, axis=1), axis=1)
    people = [Population.of_states(survey.answers, answers[offset == j], frozen[offset == j]) for j in range(OFFSETS)]
    for retrospective in (False, True):
        name = "retrospective" if retrospective else "online"
        runs = []
        for _ in range(NUMBER_SURVEYS):
            tallies = [sample_tallies(each, survey, generator) for each in people]
            everybody, *by_offset = (
                Solution(releases(survey, each), retrospective) for each in (reduce(add, tallies), *tallies)
            )
            runs.append(number_series(LEVELS, everybody, by_offset, WEEKS))
        for figure, truth, unit in (("mean", mean, np.full(WEEKS, LEVELS[-1])), ("median", median_, median_)):
            shown = [[each.mean if figure == "mean" else each.quantiles[0.5] for each in run] for run in runs]
            found = np.array([[(each.value, each.low, each.high) for each in run] for run in shown])
            errors = np.sqrt(((found[..., 0] - truth) ** 2).mean(0)) / unit
            inside = (found[..., 1] <= truth) & (truth <= found[..., 2])
            figures[f"4_{figure}_{name}_worst_week"] = float(errors.max())
            figures[f"4_{figure}_{name}"] = float(np.sqrt((errors**2).mean()))
            figures[f"4_{figure}_{name}_coverage"] = float(inside.mean())
    return figures


# 5: differences


SURVEYS, ARMS_SEED, CHANGES, PEOPLE = 400, 25, 0.25, 50_000
EVEN, MORE = (0.3, 0.5, 0.2), (0.32, 0.48, 0.2)


@dataclass(frozen=True, slots=True)
class Case:
    """Two arms, or one between two times if the second has no entries.

    periods: of the survey. since: the period since which changes are compared; 0 for shares.
    shares, sizes: of each arm, the shares of its answers, and how many entries it has.
    """

    periods: int
    since: int
    shares: tuple[tuple[float, ...], tuple[float, ...]]
    sizes: tuple[int, int]


CASES = {
    "none": Case(1, 0, (EVEN, EVEN), (3000, 3000)),
    "two_points": Case(1, 0, (MORE, EVEN), (3000, 3000)),
    "rare_uneven": Case(1, 0, ((0.005, 0.495, 0.5),) * 2, (500, 4500)),
    "over_time": Case(8, 0, (EVEN, EVEN), (3000, 3000)),
    "in_differences": Case(8, 3, (EVEN, EVEN), (3000, 3000)),
    "between_times": Case(8, 3, (EVEN, EVEN), (3000, 0)),
}


def tried(case: Case) -> tuple[float, float]:
    """How often a 95% interval holds the true difference, and how often any answer's p, together, is below 5%."""
    generator, calendar, constraint = np.random.default_rng(ARMS_SEED), Calendar(0, "1w", case.periods), AtMost(2)
    asked = Wish(3, calendar, constraint, Decimal(4), sum(case.sizes), closed=True)
    if case.periods > 1:
        asked = replace(asked, expected=steady_changes(calendar, constraint, CHANGES))
    survey = optimal_plan(asked).option.survey
    arms = [_arm(survey, shares, generator) for shares in case.shares]
    held, found = np.zeros(len(survey.answers)), 0
    for _ in range(SURVEYS):
        drawn = [arm.resampled(size, generator) for arm, size in zip(arms, case.sizes, strict=True) if size]
        solutions = [Solution(releases(survey, sample_tallies(each, survey, generator))) for each in drawn]
        # one arm by itself is about its very entries, two are about those whom they are drawn from
        truth, *others = (_true(each, case) for each in (arms if len(drawn) == 2 else drawn))
        truth = truth - sum(others)
        other = solutions[1] if len(solutions) == 2 else None
        difference = share_difference(solutions[0], other, case.periods, since=case.since)
        ends = difference.intervals()[0]
        held += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        found += bool(difference.p_together[0] < 0.05)
    return float(held.mean() / SURVEYS), found / SURVEYS


def _arm(survey: Survey, shares: tuple[float, ...], generator: np.random.Generator) -> Population:
    """Entries with these shares of answers, CHANGES of whom change once to another."""
    T, z = survey.calendar.periods, len(shares)
    states = np.repeat(generator.choice(z, (PEOPLE, 1), p=shares) + 1, T, axis=1)
    if T > 1:
        chance = CHANGES / (1 - sum(share**2 for share in shares))
        at = np.where(generator.random(PEOPLE) < chance, generator.integers(2, T + 1, PEOPLE), T + 1)
        after = generator.choice(z, (PEOPLE, 1), p=shares) + 1
        states = np.where(np.arange(1, T + 1) >= at[:, None], after, states)
    return Population.of_states(survey.answers, states)


def _true(people: Population, case: Case) -> Floats:
    histogram = people.histogram()
    change: Floats = (histogram[case.periods] - histogram[case.since]) / people.entries
    return change


def differences() -> dict[str, float]:
    """Measure 5: coverages by case, and false alarms where nothing differs, or how often two points are found."""
    figures = {}
    for name, case in CASES.items():
        coverage, found = tried(case)
        figures[f"5_coverage_{name}"] = coverage
        if name == "two_points":
            figures["5_found_two_points"] = found
        elif name != "between_times":
            figures[f"5_false_alarms_{name}"] = found
    return figures
