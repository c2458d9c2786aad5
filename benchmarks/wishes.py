"""Measure 8 of histories: the planner on a sample of everyday wishes; `python -m benchmarks.wishes` tries them all.

Each wish ends with a plan, with a plain reason why there is none, or in a crash. Where two wishes differ in nothing but
epsilon, the number of devices, or how many changes are allowed, the one with more devices, a larger epsilon or fewer
changes has no larger error. Memory is that of the whole process, so of the
worst wish and of what the planner remembers of the others.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from itertools import pairwise, product
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time

import numpy as np
from changeling_protocol import AtMost, Calendar
from changeling_statistics import Wish, optimal_plan, steady_changes

ANSWERS = (2, 3, 6, 40, 200, 1000)
PERIODS = (2, 7, 12, 52, 64, 180, 365, 1200)
CHANGES = (1, 3, 10, 20, 0)
"""The most changes of an entry; 0 stands for one in each period."""
ALLOWED = (1, 3, 10, 0)
"""The same from the tightest on, as far as SHORT periods tell them apart."""
EPSILONS = (0.1, 1.0, 4.0, 8.0, 32.0)
DEVICES = (100, 10**4, 10**8)
START, DAY, MINIMUM = 1_800_000_000, 86_400, 100
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
        calendar, constraint = Calendar(START, DAY, self.periods), AtMost(self.changes or self.periods)
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


def whole_grid() -> list[Case]:
    """All 7,200 wishes."""
    return [Case(*each) for each in product(ANSWERS, PERIODS, CHANGES, EPSILONS, DEVICES, (False, True))]


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
        "8_wishes_of_the_grid": len(whole_grid()),
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
    pairs = [pair for name in ("epsilon", "devices") for pair in _neighbours(outcomes, name)]
    worse = [more.error / less.error for less, more in pairs if np.isfinite(less.error)]
    bounds = [tight.error / loose.error for tight, loose in _looser(outcomes) if np.isfinite(loose.error)]
    return {
        "8_pairs": len(worse),
        "8_pairs_where_more_is_worse": sum(ratio > WORSE for ratio in worse),
        "8_largest_ratio_where_more": max(worse, default=0.0),
        "8_pairs_of_bounds": len(bounds),
        "8_pairs_where_tighter_is_worse": sum(ratio > WORSE for ratio in bounds),
        "8_largest_ratio_where_tighter": max(bounds, default=0.0),
    }


def _looser(outcomes: dict[Case, Outcome]) -> Iterator[tuple[Outcome, Outcome]]:
    """The outcomes of wishes that differ in the changes that are allowed alone, the tighter first, by their order."""
    lines: dict[Case, list[Case]] = {}
    for case in outcomes:
        lines.setdefault(replace(case, changes=0), []).append(case)
    for line in lines.values():
        line.sort(key=lambda case: _allowed(case.changes, case.periods))
        yield from ((outcomes[tight], outcomes[loose]) for tight, loose in pairwise(line))


def _neighbours(outcomes: dict[Case, Outcome], name: str) -> Iterator[tuple[Outcome, Outcome]]:
    """The outcomes of wishes that differ in one thing alone, and are next to each other in it."""
    lines: dict[tuple[object, ...], list[Case]] = {}
    for case in outcomes:
        alike = tuple(value for field, value in asdict(case).items() if field != name)
        lines.setdefault(alike, []).append(case)
    for line in lines.values():
        line.sort(key=lambda case: getattr(case, name))
        yield from ((outcomes[less], outcomes[more]) for less, more in pairwise(line))


def measure() -> dict[str, float]:
    """The figures of measure 8, of the sample."""
    return figures({case: outcome(case) for case in sampled()})


def main() -> None:
    """Plans the whole grid in a random order, which takes hours, and prints each outcome as JSON."""
    cases = whole_grid()
    np.random.default_rng(SEED).shuffle(cases)
    done: dict[Case, Outcome] = {}
    for case in cases:
        done[case] = outcome(case)
        print(json.dumps(asdict(case) | asdict(done[case])), flush=True)
    print(json.dumps(figures(done)))


if __name__ == "__main__":
    main()
