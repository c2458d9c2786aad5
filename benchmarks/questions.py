"""Several questions on one budget: how accurate each is, beside a slice for each and one question an entry; and what
that takes of a planner and of a device's upload. `make bench-questions` writes build/bench/questions.json.

Errors are what the planner predicts for the plan that it returns, root mean square over the answers and periods, as
fractions: the figures that `tests` hold against simulated surveys. The population changes half as often as it may.
"""

import resource
import time
from dataclasses import replace
from decimal import Decimal
from multiprocessing import get_context

import numpy as np
from changeling_protocol import AtMost, Calendar, Node, Question, Survey, upload_bytes
from changeling_simulations import Population, closed_cohort, sample_tallies
from changeling_statistics import (
    Histogram,
    Planned,
    Questionnaire,
    WeightedQuestion,
    Wish,
    optimal_plan,
    plan_questionnaire,
    series,
    steady_changes,
)

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


def planning(questions: int) -> tuple[float, float, float]:
    """Seconds, megabytes and the bytes of one upload, of a plan over a year by quarters; in a process of its own."""
    began = time.perf_counter()
    survey: Survey = optimal_plan(wish(questions, 4, 2, 8)).option.survey
    seconds = time.perf_counter() - began
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return seconds, megabytes, float(upload_bytes(survey.plan, Node(0, 1)))


def unlike(questions: int) -> tuple[float, float, float]:
    """Seconds, megabytes and the root of the weighted mean squared error, in points, of questions of four kinds."""
    began, calendar = time.perf_counter(), Calendar(0, WEEK, 12)
    kinds = [(2, 2), (4, 3), (4, 2), (6, 3)]
    asked = []
    for at in range(questions):
        answers, k = kinds[at % len(kinds)]
        named = tuple(f"answer {each}" for each in range(answers))
        asked.append(Question(f"q{at}", "What?", named, AtMost(k), steady_changes(calendar, AtMost(k))))
    weighted = tuple(WeightedQuestion(each, 1 + at % 2) for at, each in enumerate(asked))
    wanted = Questionnaire(weighted, calendar, Decimal(8), DEVICES, closed=True, bridge=False)
    error = plan_questionnaire(wanted).total
    seconds = time.perf_counter() - began
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 100 * error


def numbers() -> dict[str, float]:
    """Answers that an entry changes over 52 weeks of a drifting number, with its own offset and rounded afresh, and the
    bias of the mean, as a share of the range, of offsets and of fixed bins."""
    generator = np.random.default_rng(25)
    question = Question.of_number("minutes", "How long?", ["0", "20", "40", "80", "160", "320"], AtMost(4), "min")
    levels = np.array(question.values)
    entries, weeks = 20_000, 52
    start = generator.normal(3.4, 0.7, entries)
    drift = generator.normal(0.004, 0.01, (entries, 1)) * np.arange(weeks) + start[:, None]
    values = np.minimum(np.exp(drift), levels[-1])
    below = np.clip(np.searchsorted(levels, values, side="right") - 1, 0, len(levels) - 2)
    part = (values - levels[below]) / (levels[below + 1] - levels[below])
    offsets = (2 * generator.integers(8, size=(entries, 1)) + 1) / 16
    kept, afresh, bins = part >= offsets, part >= generator.random(values.shape), part >= 0.5
    changes = {name: np.diff(below + up, axis=1) != 0 for name, up in (("offset", kept), ("afresh", afresh))}
    bias = {
        name: abs((levels[below + up] - values).mean(0)).max() / levels[-1]
        for name, up in (("offset", kept), ("bins", bins))
    }
    return {f"4_{name}_mutations": float(each.sum(1).mean()) for name, each in changes.items()} | {
        f"4_{name}_bias_of_the_mean": float(each) for name, each in bias.items()
    }


def measure() -> dict[str, float]:
    """Figures 2 to 4, 6 and 7 of several questions and numbers."""
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
    figures |= numbers()
    for questions in (1, 10, 100):
        with get_context("spawn").Pool(1) as pool:
            seconds, megabytes, upload = pool.apply(planning, (questions,))
        figures |= {
            f"7_{questions}_planner_seconds": seconds,
            f"7_{questions}_planner_megabytes": megabytes,
            f"6_{questions}_upload_bytes": upload,
        }
    for questions in (10, 100):
        with get_context("spawn").Pool(1) as pool:
            seconds, megabytes, points = pool.apply(unlike, (questions,))
        figures |= {
            f"7_{questions}_unlike_planner_seconds": seconds,
            f"7_{questions}_unlike_planner_megabytes": megabytes,
            f"3_{questions}_unlike_points": points,
        }
    return figures
