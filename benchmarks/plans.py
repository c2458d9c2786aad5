"""Measures 2, 3 and 5 to 7 of the release plans: accuracy, prediction, weights, decoding, and the planner's time.

The population of measure 2: 20,000 entries of a closed cohort with 4 answers over 64 periods, of which everybody
changes the answer 0 to 3 times. The planner knows the rate of changes that such a population has, nothing of the one
that a plan is tried on.
"""

from collections.abc import Iterator
from decimal import Decimal
from time import perf_counter, process_time

import numpy as np
from changeling_protocol import (
    MICRO,
    AtMost,
    Calendar,
    ExpectedChanges,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    Survey,
    cover,
)
from changeling_simulations import (
    Population,
    calendar_for,
    changelog_path,
    closed_cohort,
    exact_error,
    fitted_expectation,
    sample_tallies,
    simulated_errors,
)
from changeling_statistics import (
    Floats,
    Network,
    NodeTally,
    Option,
    Smoothing,
    Wish,
    compare_plans,
    hierarchical_plan,
    histogram_change,
    histogram_figures,
    optimal_plan,
    read_csv,
    releases,
)
from changeling_statistics.estimation.network import online_rows
from changeling_statistics.planning.plans import panel, paper_hierarchy

ENTRIES, ANSWERS, PERIODS, MOST_CHANGES = 20_000, 4, 64, 3
EPSILONS, SEEDS, LAYERS = (2, 8, 32), 20, 7
TRIED = {"entries": 2_000, "answers": 3, "periods": 16, "most_changes": 3}
"""The cohort of measure 3."""
TRIALS, HISTORIES = 1_000, 50
"""Every so many seeds that cohort is drawn afresh."""
RESAMPLED, SCHOOL_SEEDS, MONTH = 200_000, 150, 2_629_800
RANDOM_HIERARCHIES = ((2, 9, 256), (3, 5, 243), (4, 4, 256), (7, 3, 100))
"""c, h and T of those whose planned variances are drawn at random, to look for a time where the solve is worse."""
PAPER_ANSWERS = 99
"""The paper's alphabet of (z + 1)² = 10⁴ symbols."""
START = 1_800_000_000


def expectation(periods: int, most_changes: int) -> ExpectedChanges:
    """The rate of changes of a closed cohort: all that a planner may know of it."""
    return ExpectedChanges(MICRO, round(MICRO * most_changes / 2 / (periods - 1)))


def populations(seeds: int = SEEDS) -> list[Population]:
    """The populations of measure 2."""
    return [closed_cohort(ENTRIES, ANSWERS, PERIODS, MOST_CHANGES, np.random.default_rng(s)) for s in range(seeds)]


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
    """What a designer of such a population's survey wishes for."""
    return Wish(
        answers=answers,
        calendar=Calendar(START, "1d", periods),
        constraint=AtMost(1 + most_changes),
        epsilon=Decimal(epsilon),
        devices=entries,
        closed=closed,
        expected=expectation(periods, most_changes),
        retrospective=retrospective,
    )


def accuracy() -> dict[str, float]:
    """Measure 2: the root mean squared error of the fractions over times, answers and seeds.

    As its exact expectation given everybody's history, with the same simulated beside it.
    """
    tried, figures = populations(), dict[str, float]()
    for epsilon in EPSILONS:
        for retrospective in (False, True):
            wish = cohort_wish(epsilon, retrospective=retrospective)
            when = "retrospective" if retrospective else "online"
            planned = optimal_plan(wish).option
            figures |= exact_and_simulated(f"2_optimal_{when}_{epsilon}", planned.survey, tried, retrospective)
            if retrospective:
                figures[f"2_smoothed_{when}_{epsilon}"] = smoothed_error(planned.survey, tried)
            if not retrospective:
                for name, option in _references(wish):
                    figures |= exact_and_simulated(f"2_{name}_{when}_{epsilon}", option.survey, tried, retrospective)
    return figures


def _references(wish: Wish) -> Iterator[tuple[str, Option]]:
    """The paper's plans at its own charge, the best hierarchy of its kind at ours, and the best panel."""
    for name, layers in (("paper", LAYERS), ("fresh_krr", 1)):
        plan = hierarchical_plan(
            ANSWERS, wish.calendar, wish.constraint, epsilon=wish.epsilon, branching=2, layers=layers
        )
        yield name, Option.of(wish, name, plan)
    for name, option in (("paper_best", paper_hierarchy(wish)), ("panel", panel(wish))):
        if option is not None:
            yield name, option


def exact_and_simulated(name: str, survey: Survey, tried: list[Population], retrospective: bool) -> dict[str, float]:
    """The exact figure, the simulated one, and by how many of its standard errors the latter is off."""
    exact = np.array([exact_error(each, survey, retrospective=retrospective).mean ** 2 for each in tried])
    simulated = np.array(
        [
            simulated_errors(each, survey, iter([np.random.default_rng([7, seed])]), retrospective=retrospective).mean()
            for seed, each in enumerate(tried)
        ]
    )
    off = simulated - exact
    deviation = off.mean() / (off.std(ddof=1) / np.sqrt(len(off))) if len(off) > 1 else 0.0
    return {
        name: float(np.sqrt(exact.mean())),
        f"{name}_simulated": float(np.sqrt(simulated.mean())),
        f"{name}_deviation": float(deviation),
    }


def smoothed_error(survey: Survey, tried: list[Population]) -> float:
    """The error of the smoother, simulated: it is biased, and its drifts depend on the reports."""
    found = []
    for seed, population in enumerate(tried):
        tallies = sample_tallies(population, survey, np.random.default_rng([7, seed]))
        figures, _ = histogram_figures(Smoothing(releases(survey, tallies)), PERIODS)
        found.append((((figures.values - population.histogram()[1:]) / population.entries) ** 2).mean())
    return float(np.sqrt(np.mean(found)))


def prediction() -> dict[str, float]:
    """Measure 3: the predicted error against the simulated one, for every plan in the planner's table.

    Once on cohorts that are as the designer expects, as a closed survey and as an open one; and once on
    school_to_work.csv resampled to 200,000, of which the designer knows how often people change and, from the 712 of
    the file, the rest: `expected` is the prediction from the rate alone, the other one that from the changelog itself.
    """
    figures: dict[str, float] = {}
    for closed, retrospective in ((True, False), (True, True), (False, False)):
        when = "retrospective" if retrospective else "online" if closed else "open"
        for name, option in compare_plans(
            cohort_wish(8, retrospective=retrospective, closed=closed, **TRIED)
        ).options.items():
            if retrospective and name != "optimal":
                continue
            squares: list[float] = []
            for draw in range(0, TRIALS, HISTORIES):
                population = closed_cohort(**TRIED, generator=np.random.default_rng([3, draw]))
                generators = (np.random.default_rng([3, draw, i]) for i in range(HISTORIES))
                errors = simulated_errors(population, option.survey, generators, retrospective=retrospective)
                squares += errors.mean(1).tolist()
            ratio = option.prediction.mean / np.sqrt(np.mean(squares))
            figures[f"3_{name}_{when}_predicted_over_simulated"] = float(ratio)
    return figures | _school(SCHOOL_SEEDS)


def _school(seeds: int) -> dict[str, float]:
    changelog = read_csv(changelog_path("school-to-work"))
    calendar = calendar_for(changelog, MONTH)
    constraint = AtMost(4)
    source = Population.from_changelog(changelog, calendar, constraint)
    wish = Wish(
        answers=len(changelog.answers),
        calendar=calendar,
        constraint=constraint,
        epsilon=Decimal(8),
        devices=RESAMPLED,
        closed=True,
        expected=fitted_expectation(source),
    )
    figures: dict[str, float] = {}
    for name, option in compare_plans(wish).options.items():
        survey = option.survey.asking(answers=source.answers)
        errors = []
        for seed in range(seeds):
            generator = np.random.default_rng([4, seed])
            population = source.resampled(RESAMPLED, generator)
            errors.append(simulated_errors(population, survey, iter([generator])).mean())
        simulated = np.sqrt(np.mean(errors))
        known = exact_error(source, survey, devices=RESAMPLED).mean
        figures[f"3_school_{name}_predicted_over_simulated"] = float(known / simulated)
        figures[f"3_school_{name}_expected_over_simulated"] = float(option.prediction.mean / simulated)
    return figures


def weights() -> dict[str, float]:
    """Measure 5: the solve of the release graph against the paper's cover sums.

    Cover variance over solve variance: mean over times where all variances are equal, and the least of all."""
    equal = hierarchy(2, 9, 256, None)
    by_cover, online, retrospective = variances(equal)
    generator = np.random.default_rng(5)
    least = min(float((by_cover / online).min()), float((online / retrospective).min()))
    for c, h, T in RANDOM_HIERARCHIES:
        by_cover, by_prefix, by_all = variances(hierarchy(c, h, T, generator))
        least = min(least, float((by_cover / by_prefix).min()), float((by_prefix / by_all).min()))
    return {
        "5_cover_over_solve_online": float(by_cover.mean() / online.mean()),
        "5_cover_over_solve_retrospective": float(by_cover.mean() / retrospective.mean()),
        "5_least_ratio_at_any_time": least,
    }


def hierarchy(branching: int, layers: int, periods: int, generator: np.random.Generator | None) -> Network:
    """Cadences of c^i periods; variances 1, or log-uniform over two orders of magnitude."""
    spans = sorted(_spans([branching**i for i in range(layers)], periods), key=lambda span: (span[1], span[0]))
    start, end = np.array(spans, dtype=np.intp).T
    variance = np.ones(len(spans)) if generator is None else 10 ** generator.uniform(-1, 1, len(spans))
    return Network(periods, start, end, variance)


def variances(network: Network) -> tuple[Floats, Floats, Floats]:
    """Of the histograms at times 1 to T by cover sums, online and retrospectively, the edges' being the true ones."""
    times = range(1, network.periods + 1)
    cover = np.array([cover_row(network, time) ** 2 @ network.variance for time in times])
    solved = (row for _, row, _ in online_rows(network, network.periods))
    online = np.array([np.inf if row is None else row**2 @ network.variance for row in solved])
    rows = network.rows(network.unit_sources(times))
    return cover, online, rows**2 @ network.variance


def _spans(widths: list[int], periods: int) -> Iterator[tuple[int, int]]:
    for width in widths:
        for start in range(0, periods - width + 1, width):
            yield start, start + width


def cover_row(network: Network, period: int) -> Floats:
    """The paper's own estimator: 1 on the fewest edges that cover the periods up to one, else 0; shape (E,)."""
    spans = {(s, e): at for at, (s, e) in enumerate(zip(network.start.tolist(), network.end.tolist(), strict=True))}
    row = np.zeros(len(network.start))
    for node in cover(Node(0, period), {end - start for start, end in spans}):
        row[spans[node.start, node.end]] = 1.0
    return row


def decoding() -> dict[str, float]:
    """Measure 6: how much faster than `numpy.linalg.solve` a node is decoded, its covariance included."""
    randomizer = KaryResponse(MutationSpace(PAPER_ANSWERS, repeats=True), Odds(20, 1))
    m, total = randomizer.symbols, randomizer.total()
    O = np.random.default_rng(6).integers(0, 1000, m)
    P = np.full((m, m), randomizer.odds.other / total)
    np.fill_diagonal(P, randomizer.odds.favoured / total)
    began = perf_counter()
    np.linalg.solve(P, O)
    dense = perf_counter() - began
    seconds = []
    for _ in range(6):
        began = perf_counter()
        histogram_change(NodeTally(int(O.sum()), O), randomizer)
        seconds.append(perf_counter() - began)
    return {"6_decode_speedup_over_linalg": dense / float(np.median(seconds[1:]))}


def year_wish(*, closed: bool = False, retrospective: bool = False) -> Wish:
    """A wish over a year of days: 6 answers that change twice a year, ε = 4, a million devices."""
    return Wish(
        answers=6,
        calendar=Calendar(START, "1d", 365),
        constraint=AtMost(3),
        epsilon=Decimal(4),
        devices=10**6,
        closed=closed,
        expected=ExpectedChanges(MICRO, round(MICRO * 2 / 365)),
        retrospective=retrospective,
    )


def planner() -> dict[str, float]:
    """Measure 7: seconds and the dual gap of a year's plan for open and closed surveys, online and retrospective.

    Processor seconds beside those of the clock: they are what it takes on a machine that has nothing else to do.
    """
    figures: dict[str, float] = {}
    for closed in (False, True):
        for retrospective in (False, True):
            wish = year_wish(closed=closed, retrospective=retrospective)
            name = f"7_{'closed' if closed else 'open'}_{'retrospective' if retrospective else 'online'}"
            began, worked = perf_counter(), process_time()
            planned = optimal_plan(wish)
            figures[f"{name}_seconds"] = perf_counter() - began
            figures[f"{name}_processor_seconds"] = process_time() - worked
            figures[f"{name}_gap"] = planned.gap
    began = perf_counter()
    compare_plans(wish)
    return figures | {"7_whole_table_seconds": perf_counter() - began}
