"""Release plans: their accuracy beside those of the papers, their predictions, and the planner's times.

The usual population has 20,000 entries of a closed cohort with 4 answers over 64 periods, of which everybody changes
the answer 0 to 3 times. The planner knows the rate of changes that such a population has, nothing of the one that a
plan is tried on. Errors are root mean squares over times, answers and populations, as fractions of the entries; exact
in expectation given everybody's history, with the same simulated beside them.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from decimal import Decimal
from functools import partial
from time import process_time

import numpy as np
from changeling_protocol import (
    MICRO,
    AtMost,
    Calendar,
    ExpectedChanges,
    Survey,
)
from changeling_simulations import (
    Population,
    calendar_for,
    changelog_path,
    closed_cohort,
    exact_error,
    sample_tallies,
)
from changeling_statistics import (
    Floats,
    Option,
    Solution,
    Wish,
    compare_plans,
    hierarchical_plan,
    optimal_plan,
    read_csv,
    releases,
)
from threadpoolctl import threadpool_limits

ENTRIES, ANSWERS, PERIODS, MOST_CHANGES = 20_000, 4, 64, 3
POPULATIONS, DRAWN, LAYERS = 5, 1_280, 7
"""Of each population so many periods are surveyed, in surveys of a plan's length: whole histories vary more."""
ACCURATE = (
    (12, 3, 1, 4, True),
    (12, 3, 1, 6, True),
    (12, 3, 2, 8, True),
    (12, 3, 2, 8, False),
    *((64, 4, 3, epsilon, retrospective) for epsilon in (2, 8, 16, 32) for retrospective in (True, False)),
    (64, 4, 3, 12, True),
)
"""T, z, the most changes, ε, and whether retrospective."""
NOTHING = 1e-5
"""With a smaller error nearly everybody tells the truth, and what little is left is in few surveys that are drawn."""
TRIED = {"entries": 2_000, "answers": 3, "periods": 16, "most_changes": 3}
"""The cohort on which every plan of the planner's table is tried."""
TRIALS, HISTORIES = 1_000, 50
"""Every so many trials that cohort is drawn afresh."""
RESAMPLED, SCHOOL_SEEDS, MONTH = 200_000, 150, 2_629_800
START, LONG = 1_800_000_000, 1024


def cohort_wish(
    epsilon: int,
    *,
    retrospective: bool = False,
    entries: int = ENTRIES,
    answers: int = ANSWERS,
    periods: int = PERIODS,
    most_changes: int = MOST_CHANGES,
    closed: bool = True,
) -> Wish:
    """The wish of a designer who surveys such a population."""
    return Wish(
        answers=answers,
        calendar=Calendar(START, "1d", periods),
        constraint=AtMost(1 + most_changes),
        epsilon=Decimal(epsilon),
        devices=entries,
        closed=closed,
        expected=ExpectedChanges(MICRO, round(MICRO * most_changes / 2 / (periods - 1))),
        retrospective=retrospective,
    )


def accuracy() -> dict[str, float]:
    """Measure 3: the errors of the best plans, and what is predicted over what is simulated."""
    figures: dict[str, float] = {}
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        for mine in workers.map(_accurate, ACCURATE):
            figures |= mine
    return figures


def _accurate(case: tuple[int, int, int, int, bool]) -> dict[str, float]:
    T, z, changes, epsilon, retrospective = case
    wish = cohort_wish(epsilon, retrospective=retrospective, answers=z, periods=T, most_changes=changes)
    with threadpool_limits(1):
        planned = optimal_plan(wish)
        name = f"3_T{T}_z{z}_k{changes}_eps{epsilon}_{'retrospective' if retrospective else 'online'}"
        figures = _errors(name, planned.option.survey, _populations(z, T, changes), retrospective)
    figures[f"{name}_in_histories"] = planned.share_of("history")
    if figures[name] > NOTHING:
        figures[f"{name}_predicted_over_simulated"] = planned.option.error(wish) / figures[f"{name}_simulated"]
    return figures


def references() -> dict[str, float]:
    """Measure 2: the errors of the papers' plans at their own charge, online, and of the best ones of their kind."""
    tried, figures = _populations(ANSWERS, PERIODS, MOST_CHANGES), dict[str, float]()
    for epsilon in (2, 8, 32):
        wish = cohort_wish(epsilon)
        for name, layers in (("paper", LAYERS), ("fresh_krr", 1)):
            plan = hierarchical_plan(
                ANSWERS, wish.calendar, wish.constraint, epsilon=wish.epsilon, branching=2, layers=layers
            )
            figures |= _errors(f"2_{name}_{epsilon}", Option.of(wish, name, plan).survey, tried, False)
        for name, option in compare_plans(wish).options.items():
            if name != "optimal":
                figures |= _errors(f"2_best_{name}_{epsilon}", option.survey, tried, False)
    return figures


def _populations(answers: int, periods: int, most_changes: int) -> list[Population]:
    return [
        closed_cohort(ENTRIES, answers, periods, most_changes, np.random.default_rng(seed))
        for seed in range(POPULATIONS)
    ]


def _errors(name: str, survey: Survey, tried: list[Population], retrospective: bool) -> dict[str, float]:
    """The exact error and the simulated one."""
    exact = [exact_error(each, survey, retrospective=retrospective).mean ** 2 for each in tried]
    simulated = []
    for seed, each in enumerate(tried):
        draws = (np.random.default_rng([7, seed, draw]) for draw in range(DRAWN // survey.calendar.periods))
        simulated.append(_simulated(each, survey, draws, retrospective=retrospective).mean())
    return {name: float(np.sqrt(np.mean(exact))), f"{name}_simulated": float(np.sqrt(np.mean(simulated)))}


def _simulated(
    population: Population, survey: Survey, seeds: Iterator[np.random.Generator], *, retrospective: bool = False
) -> Floats:
    """The squared errors of shares in repeated surveys against the frozen histories, shape (seeds, T)."""
    truth, n, periods = population.frozen_histogram()[1:], population.entries, population.periods
    drawn = (releases(survey, sample_tallies(population, survey, generator)) for generator in seeds)
    values = [Solution(known, retrospective).values(periods) for known in drawn]
    return np.array([(((each - truth) / n) ** 2).mean(1) for each in values])


def _expectation(population: Population) -> ExpectedChanges:
    """The share of entries with an answer after the first period, and how often an entry changes in a later one."""
    states, n = population.frozen, population.entries
    first = (states[:, 1] > 0) @ population.weights / n
    changed = (np.diff(states[:, 1:], axis=1) != 0).sum(1) @ population.weights / n
    rate = changed / max(1, population.periods - 1)
    return ExpectedChanges(round(MICRO * float(first)), min(MICRO, round(MICRO * float(rate))))


def prediction() -> dict[str, float]:
    """Measure 4: the predicted error over the simulated one, for every plan in the planner's table.

    Once on cohorts that are as the designer expects, as a closed survey and as an open one; and once on
    school_to_work.csv resampled to 200,000, of which the designer knows how often people change and, from the 712 of
    the file, the rest: `expected` is the prediction from the rate alone, the other one that from the changelog itself.
    """
    jobs: list[Callable[[], dict[str, float]]] = []
    for closed, retrospective in ((True, False), (True, True), (False, False)):
        when = "retrospective" if retrospective else "online" if closed else "open"
        options = compare_plans(cohort_wish(8, retrospective=retrospective, closed=closed, **TRIED)).options
        for name, option in options.items():
            if name == "optimal" or not retrospective:
                jobs.append(partial(_over_simulated, f"4_{name}_{when}", option, retrospective))
    jobs += [partial(_school, *each) for each in _school_plans()]
    figures: dict[str, float] = {}
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        for mine in [workers.submit(job) for job in jobs]:
            figures |= mine.result()
    return figures


def _over_simulated(name: str, option: Option, retrospective: bool) -> dict[str, float]:
    squares: list[float] = []
    for draw in range(0, TRIALS, HISTORIES):
        population = closed_cohort(**TRIED, generator=np.random.default_rng([3, draw]))
        generators = (np.random.default_rng([3, draw, i]) for i in range(HISTORIES))
        with threadpool_limits(1):
            errors = _simulated(population, option.survey, generators, retrospective=retrospective)
        squares += errors.mean(1).tolist()
    return {f"{name}_predicted_over_simulated": float(option.prediction.mean / np.sqrt(np.mean(squares)))}


def _school_plans() -> Iterator[tuple[str, Population, Option]]:
    changelog = read_csv(changelog_path("school-to-work"))
    calendar, constraint = calendar_for(changelog, MONTH), AtMost(4)
    source = Population.from_changelog(changelog, calendar, constraint)
    wish = Wish(
        answers=len(changelog.answers),
        calendar=calendar,
        constraint=constraint,
        epsilon=Decimal(8),
        devices=RESAMPLED,
        closed=True,
        expected=_expectation(source),
    )
    for name, option in compare_plans(wish).options.items():
        yield name, source, option


def _school(name: str, source: Population, option: Option) -> dict[str, float]:
    survey, errors = option.survey.asking(answers=source.answers), list[float]()
    with threadpool_limits(1):
        for seed in range(SCHOOL_SEEDS):
            generator = np.random.default_rng([4, seed])
            population = source.resampled(RESAMPLED, generator)
            errors.append(_simulated(population, survey, iter([generator])).mean())
    simulated = np.sqrt(np.mean(errors))
    known = exact_error(source, survey, devices=RESAMPLED).mean
    return {
        f"4_school_{name}_predicted_over_simulated": float(known / simulated),
        f"4_school_{name}_expected_over_simulated": float(option.prediction.mean / simulated),
    }


def planner() -> dict[str, float]:
    """Measure 7: processor seconds, gap, and devices for a point, of plans over a year of days and over 1,024 periods.

    The year: 6 answers that change twice, ε = 4, a million devices. The 1,024 periods: the usual population, ε = 8.
    """
    year = Wish(
        answers=6,
        calendar=Calendar(START, "1d", 365),
        constraint=AtMost(3),
        epsilon=Decimal(4),
        devices=10**6,
        expected=ExpectedChanges(MICRO, round(MICRO * 2 / 365)),
    )
    wishes = {"long": cohort_wish(8, retrospective=True, periods=LONG)}
    for closed, retrospective in ((False, False), (False, True), (True, False), (True, True)):
        name = f"{'closed' if closed else 'open'}_{'retrospective' if retrospective else 'online'}"
        wishes[name] = replace(year, closed=closed, retrospective=retrospective)
    figures: dict[str, float] = {}
    for name, wish in wishes.items():
        began = process_time()
        planned = optimal_plan(wish)
        figures[f"7_{name}_processor_seconds"] = process_time() - began
        figures[f"7_{name}_gap"] = planned.gap
        figures[f"7_{name}_devices_for_a_point"] = planned.option.prediction.devices_for()
    return figures
