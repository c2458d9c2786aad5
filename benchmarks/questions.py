"""Several questions on one budget: how accurate each is, beside a slice for each and one question an entry; and what
that takes of a planner and of a device's upload. `make bench-questions` writes build/bench/questions.json.

Errors are what the planner predicts for the plan that it returns, root mean square over the answers and periods, as
fractions: the figures that `tests` hold against simulated surveys. The population changes half as often as it may.
"""

import re
import tempfile
import time
from dataclasses import replace
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from changeling_aggregator.fold import fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing.serving import SurveyLog
from changeling_client import Client
from changeling_client.testing import FakeServer, ManualClock
from changeling_protocol import (
    AtMost,
    Calendar,
    Closing,
    Node,
    NodeNumber,
    Question,
    Report,
    Standing,
    StratumNumber,
    Survey,
    TrackNumber,
    UnixSeconds,
    encode_upload,
    seal,
    upload_bytes,
)
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
SEEDS, CLIENTS, UPLOADS = 200, 5, 1_000


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
    """Seconds, CPU seconds and megabytes of a plan over a year by quarters; in a process of its own."""
    began = time.perf_counter()
    optimal_plan(wish(questions, 4, 2, 8))
    return time.perf_counter() - began, time.process_time(), _peak_megabytes()


def _peak_megabytes() -> float:
    """The most memory that this process has held; what its parent held at the fork does not count, as in getrusage."""
    (most,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(most) / 1024


def unlike(questions: int) -> tuple[float, float, float, float]:
    """The same of questions of four kinds, and the root of their weighted mean squared error, in points."""
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
    return time.perf_counter() - began, time.process_time(), _peak_megabytes(), 100 * error


def device(asked: Survey) -> tuple[float, float]:
    """CPU milliseconds of the flush that answers and sends a closing, and kilobytes of the store after it; medians."""
    taken, kept = [], []
    for _ in range(CLIENTS):
        server = FakeServer(ManualClock(60.0))
        server.publish(asked)
        with tempfile.TemporaryDirectory() as folder:
            place: dict[str, Any] = {"path": Path(folder) / "store.db", "witness": None, "background": False}
            whose: dict[str, Any] = {"server": server.url, "authority": server.authority, "max_epsilon": 10}
            with Client(transport=server.transport, clock=server.clock, **whose, **place) as client:
                answers = {question.name: question.answers[0] for question in asked.questions}
                client.join(asked.id, answers=[answers], signed=server.signed(asked))
                server.clock.now = WEEK + 86_400.0
                began = time.process_time()
                flushed = client.flush()
                taken.append(1000 * (time.process_time() - began))
            if flushed.sent != 1:
                raise ArithmeticError(f"{flushed} is not one closing sent")
            kept.append(sum(each.stat().st_size for each in Path(folder).iterdir()) / 1000)
    return median(taken), median(kept)


def fold_speed(asked: Survey) -> float:
    """Reports that are opened and folded in a CPU second, where each upload answers all questions of its group."""
    generator, tracks = np.random.default_rng(25), asked.plan.groups[0].tracks
    alphabets = [track.randomizer.symbols for track in tracks]
    with tempfile.TemporaryDirectory() as folder:
        log = SurveyLog.of(Store.open(Path(folder) / "server.db"), asked)
        for _ in range(UPLOADS):
            told = [Closing(1, generator.bytes(16), Standing.KNOWN, StratumNumber(0))]
            said = [Report(TrackNumber(at), NodeNumber(1), at % symbols) for at, symbols in enumerate(alphabets)]
            log.append(WEEK + 60, seal(encode_upload(asked.plan, 0, Node(0, 1), told, said), asked.id, log.key))
        began = time.process_time()
        done = fold(log.store, UnixSeconds(WEEK + 120))
        taken = time.process_time() - began
        log.store.close()
    if done.reports != UPLOADS * len(alphabets):
        raise ArithmeticError(f"{done.reports} reports are not {UPLOADS * len(alphabets)}")
    return done.reports / taken


def costs(questions: int) -> dict[str, float]:
    """Measure 6, of questions asked once at epsilon 8: an entry answers all of 1 and 10, and 10 of 100."""
    asked = replace(optimal_plan(wish(questions, 1, 1, 8)).option.survey, skew=60, spread=600, grace=WEEK)
    milliseconds, kilobytes = device(asked)
    return {
        f"6_{questions}_closing_cpu_ms": milliseconds,
        f"6_{questions}_store_kb": kilobytes,
        f"6_{questions}_upload_bytes": float(upload_bytes(asked.plan, Node(0, 1))),
        f"6_{questions}_fold_reports_a_cpu_second": fold_speed(asked),
    }


def measure() -> dict[str, float]:
    """Measures 2, 3, 6 and 7 of several questions."""
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
    for questions in (1, 10, 100):
        figures |= costs(questions)
    for name, planned_in, counts in (("", planning, (1, 10, 100)), ("_unlike", unlike, (10, 100))):
        for questions in counts:
            with get_context("spawn").Pool(1) as pool:
                seconds, processor, megabytes, *points = pool.apply(planned_in, (questions,))
            figures |= {
                f"7_{questions}{name}_planner_seconds": seconds,
                f"7_{questions}{name}_planner_cpu_seconds": processor,
                f"7_{questions}{name}_planner_megabytes": megabytes,
                **{f"3_{questions}{name}_points": each for each in points},
            }
    return figures
