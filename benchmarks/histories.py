"""Measures of histories: what they save, smoothing; and the planner on everyday wishes.

The names of figures begin with the measure's number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise, product
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time
from typing import Any

import numpy as np
from changeling_protocol import (
    AtMost,
    Calendar,
)
from changeling_simulations import Population, closed_cohort, sample_tallies
from changeling_statistics import (
    Smoothing,
    Solution,
    Wish,
    histogram_figures,
    optimal_plan,
    releases,
    steady_changes,
)

from .plans import ENTRIES, cohort_wish

MONTH = 2_629_746
"""Seconds."""


def devices() -> dict[str, float]:
    """Measure 4: a yes or no, monthly for a year, closed, k = 3, as each month closes: devices for one point."""
    calendar = Calendar(1_800_000_000, MONTH, 12)
    figures = {}
    for epsilon in (1, 2, 4, 8):
        wish = Wish(
            answers=2,
            calendar=calendar,
            constraint=AtMost(3),
            epsilon=Decimal(epsilon),
            devices=ENTRIES,
            closed=True,
            expected=steady_changes(calendar, AtMost(3)),
        )
        figures[f"4_devices_for_a_point_eps{epsilon}"] = optimal_plan(wish).option.prediction.devices_for()
    return figures


SMOOTHED_SEEDS, WAVE = 24, (40, 5)
"""Surveys of each plan; when the wave comes, and how long it takes: mean and standard deviation in periods."""


def smoother() -> dict[str, float]:
    """Measure 9: root mean squared error of smoothed histograms over the plain retrospective ones'; coverage of theirs.

    Of the cohort of measure 3 with four answers over 64 periods, whose entries change one by one, and of one in which
    half of the entries go over to the first answer in one wave, after which nobody moves any more.
    """
    figures: dict[str, float] = {}
    for epsilon in (2, 8, 32):
        wish = cohort_wish(epsilon, retrospective=True)
        survey = optimal_plan(wish).option.survey
        for name, made in (("steady", _steady), ("wave", _wave)):
            off = np.zeros((2, SMOOTHED_SEEDS))
            held = np.zeros((2, SMOOTHED_SEEDS))
            for seed in range(SMOOTHED_SEEDS):
                generator = np.random.default_rng([9, seed])
                population = made(generator)
                known, truth = releases(survey, sample_tallies(population, survey, generator)), population.histogram()
                for at, solution in enumerate((Solution(known, retrospective=True), Smoothing(known))):
                    shown, _ = histogram_figures(solution, survey.calendar.periods)
                    ends = shown.intervals(0.95)
                    off[at, seed] = ((shown.values - truth[1:]) ** 2).mean()
                    held[at, seed] = ((ends[..., 0] <= truth[1:]) & (truth[1:] <= ends[..., 1])).mean()
            plain, smoothed = np.sqrt(off.mean(1))
            figures |= {
                f"9_{name}_plain_error_eps{epsilon}": float(plain / ENTRIES),
                f"9_{name}_smoothed_over_plain_error_eps{epsilon}": float(smoothed / plain),
                f"9_{name}_plain_coverage_eps{epsilon}": float(held[0].mean()),
                f"9_{name}_smoothed_coverage_eps{epsilon}": float(held[1].mean()),
            }
    return figures


def _steady(generator: np.random.Generator) -> Population:
    return closed_cohort(ENTRIES, 4, 64, 3, generator)


def _wave(generator: np.random.Generator) -> Population:
    population = closed_cohort(ENTRIES, 4, 64, 0, generator)
    states = population.true
    when = np.clip(np.rint(generator.normal(*WAVE, ENTRIES)), 2, 64)
    when[generator.random(ENTRIES) < 0.5] = 65
    states = np.where((np.arange(65) >= when[:, None]) & (states > 0), 1, states).astype(np.uint16)
    return replace(population, true=states, frozen=states)


ANSWERS = (2, 3, 6, 40, 200, 1000)
PERIODS = (2, 7, 12, 52, 64, 180, 365, 1200)
CHANGES = (1, 3, 10, 20, 0)
"""The most changes of an entry; 0 stands for one in each period."""
ALLOWED = (1, 3, 10, 0)
"""The same from the tightest on, as far as SHORT periods tell them apart."""
EPSILONS = (0.1, 1.0, 4.0, 8.0, 32.0)
DEVICES = (100, 10**4, 10**8)
FIRST_DAY, DAY, MINIMUM = 1_800_000_000, 86_400, 100
SEED = 8
SHORT = 12
"""Up to so many periods all strata are tried, and the next larger epsilon or number of devices, and looser bound."""
LONG = {180: (1, 20), 365: (3,), 1200: (20,)}
"""Over so many periods only these numbers of changes are tried, as such plans take long."""
WORSE = 1.01
"""An error that is larger by this factor where there is more of something is counted; less is rounding of shares."""


@dataclass(frozen=True, slots=True)
class Case:
    """A wish of the grid: z, T, k, epsilon, n, and whether the cohort is closed."""

    answers: int
    periods: int
    changes: int
    epsilon: float
    devices: int
    closed: bool

    def wish(self) -> Wish:
        """The wish, with the changes that are expected where a designer says nothing, and the usual minimum."""
        calendar, constraint = Calendar(FIRST_DAY, DAY, self.periods), AtMost(self.changes or self.periods)
        return Wish(
            answers=self.answers,
            calendar=calendar,
            constraint=constraint,
            epsilon=Decimal(str(self.epsilon)),
            devices=self.devices,
            closed=self.closed,
            expected=steady_changes(calendar, constraint),
            minimum=MINIMUM,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a wish: plan, reason or crash; its error; what was said; wall and processor seconds."""

    kind: str
    error: float
    words: str
    seconds: float
    worked: float


def sampled() -> list[Case]:
    """Wishes drawn in strata of the periods and the changes, open and closed; over more than SHORT periods in turns."""
    generator, cases = np.random.default_rng(SEED), []
    for periods, changes, closed in product(PERIODS, CHANGES, (False, True)):
        if periods > SHORT and (
            closed == bool(CHANGES.index(changes) % 2) or changes not in LONG.get(periods, CHANGES)
        ):
            continue
        z, at, n = (int(generator.integers(len(each))) for each in (ANSWERS, EPSILONS, DEVICES))
        cases.append(case := Case(ANSWERS[z], periods, changes, EPSILONS[at], DEVICES[n], closed))
        if periods <= SHORT and n + 1 < len(DEVICES) and generator.integers(2):
            cases.append(replace(case, devices=DEVICES[n + 1]))
        elif periods <= SHORT and at + 1 < len(EPSILONS):
            cases.append(replace(case, epsilon=EPSILONS[at + 1]))
        if periods <= SHORT and (looser := [k for k in ALLOWED if _allowed(k, periods) > _allowed(changes, periods)]):
            cases.append(replace(case, changes=looser[0]))
    return cases


def _allowed(changes: int, periods: int) -> int:
    return min(changes or periods, periods)


def outcome(case: Case) -> Outcome:
    """Plans a wish. A reason is a ValueError that the planner itself raises; anything else is a crash."""
    began, worked = perf_counter(), process_time()
    kind, error, words = "plan", np.inf, ""
    try:
        option = optimal_plan(case.wish()).option
        error, words = option.prediction.mean, option.hopeless
        if not np.isfinite(error):
            kind = "crash"
    except Exception as problem:  # a crash is what is counted
        words = f"{type(problem).__name__}: {problem}"
        kind = "reason" if isinstance(problem, ValueError) and _is_plain(str(problem)) else "crash"
    return Outcome(kind, error, words, perf_counter() - began, process_time() - worked)


def _is_plain(words: str) -> bool:
    """True if a message says what to do about it."""
    return any(advice in words for advice in ("raise", "ask", "choose"))


def figures(outcomes: dict[Case, Outcome]) -> dict[str, float]:
    """Counts plans, reasons and crashes; the longest, and the largest memory in megabytes; where more is worse."""
    kinds = [each.kind for each in outcomes.values()]
    return {
        "8_wishes": len(outcomes),
        "8_plans": kinds.count("plan"),
        "8_hopeless_plans": sum(each.kind == "plan" and bool(each.words) for each in outcomes.values()),
        "8_reasons": kinds.count("reason"),
        "8_crashes": kinds.count("crash"),
        "8_longest_seconds": max(each.seconds for each in outcomes.values()),
        "8_longest_processor_seconds": max(each.worked for each in outcomes.values()),
        "8_largest_megabytes": getrusage(RUSAGE_SELF).ru_maxrss / 1024,
        **_monotone(outcomes),
    }


def _monotone(outcomes: dict[Case, Outcome]) -> dict[str, float]:
    """How often an error is larger where there is more epsilon or there are more devices, or a bound is tighter."""
    pairs = [pair for name in ("epsilon", "devices") for pair in _neighbours(outcomes, name)]
    worse = [more.error / less.error for less, more in pairs if np.isfinite(less.error)]
    bounds = [less.error / more.error for less, more in _neighbours(outcomes, "changes") if np.isfinite(more.error)]
    return {
        "8_pairs": len(worse),
        "8_pairs_where_more_is_worse": sum(ratio > WORSE for ratio in worse),
        "8_largest_ratio_where_more": max(worse, default=0.0),
        "8_pairs_of_bounds": len(bounds),
        "8_pairs_where_tighter_is_worse": sum(ratio > WORSE for ratio in bounds),
        "8_largest_ratio_where_tighter": max(bounds, default=0.0),
    }


def _neighbours(outcomes: dict[Case, Outcome], name: str) -> Iterator[tuple[Outcome, Outcome]]:
    """The outcomes of wishes that differ in one thing alone, and are next to each other in it."""
    lines: dict[Case, list[Case]] = {}
    same: dict[str, Any] = {name: 0}
    for case in outcomes:
        lines.setdefault(replace(case, **same), []).append(case)
    for line in lines.values():
        line.sort(key=lambda case: _allowed(case.changes, case.periods) if name == "changes" else getattr(case, name))
        yield from ((outcomes[less], outcomes[more]) for less, more in pairwise(line))


def wishes() -> dict[str, float]:
    """Measure 8: the planner on a sample of everyday wishes, drawn in strata."""
    return figures({case: outcome(case) for case in sampled()})
