"""How often nominal 95% intervals and bands hold the truth, and how far estimates are biased.

Measure 2 of the field: things go wrong, one at a time. Two thousand surveys of each scenario, as the aggregator
publishes them; what they are compared with is the share of each answer among all who have enrolled, heard or not.
Measure 5 of histories: surveys that the planner makes, of shares from nothing to one half.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import combinations, product

import numpy as np
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
)
from changeling_simulations import Field, Population, changelog_path, sample_field, sample_tallies
from changeling_statistics import (
    Floats,
    NotEstimable,
    Solution,
    Wish,
    histogram_figures,
    optimal_plan,
    read_csv,
    releases,
)
from changeling_statistics import (
    intervals as intervals_of,
)
from scipy.stats import binomtest
from threadpoolctl import threadpool_limits

SURVEYS, BATCHES, SEED = 2_000, 4, 2
LEVEL, FAMILY_WISE, MOST_BIAS = 0.95, 1e-3, 0.1
"""A bias may be a tenth of the standard error."""
OFTEN = SURVEYS // 2
"""A bias is told from none if it was estimated so often."""
HISTORIES, MOST_CHANGES, CONSTRAINT = 60, 2, AtMost(3)
FIELD_ANSWERS, FIELD_PERIODS = 3, 12
FIELD_CALENDAR = Calendar(0, "1d", FIELD_PERIODS)
EPSILON_8 = Odds(3000, 1)
ANY = Odds(9, 1)
"""The odds of a randomizer in a joint group before the group sets its own."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One survey of one population that is simulated again and again.

    name: of the figures. field: how its devices fare. periods: those whose histograms are looked at, as they close.
    """

    name: str
    survey: Survey
    population: Population
    field: Field
    periods: tuple[int, ...]


Batch = Callable[[Scenario, np.random.Generator, int], tuple[Floats, ...]]
"""Simulates so many surveys of a scenario; figures whose first axis is the survey."""


def simulated(scenarios: Sequence[Scenario], batch: Batch, seed: int, surveys: int = SURVEYS) -> Iterator[list[Floats]]:
    """The figures of so many surveys of each scenario, simulated in batches on all processors."""
    numbers = [(number, at) for number in range(len(scenarios)) for at in range(BATCHES)]
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        done = list(workers.map(partial(_one_batch, scenarios, batch, seed, surveys // BATCHES), numbers))
    for number in range(len(scenarios)):
        mine = [figures for (of, _), figures in zip(numbers, done, strict=True) if of == number]
        yield [np.concatenate(parts) for parts in zip(*mine, strict=True)]


def _one_batch(
    scenarios: Sequence[Scenario], batch: Batch, seed: int, surveys: int, numbers: tuple[int, int]
) -> tuple[Floats, ...]:
    with threadpool_limits(1):
        return batch(scenarios[numbers[0]], np.random.default_rng([seed, *numbers]), surveys)


def field() -> dict[str, float]:
    """Measure 2 of the field, by scenario: coverage, and the largest bias in standard errors; then tests of all.

    Each answer's coverage at each period is tested against 95% by an exact binomial test on both sides, and told apart
    if it is with the number of tests in mind (Bonferroni); a bias is above a tenth of the errors' standard deviation.
    """
    scenarios = field_scenarios()
    figures: dict[str, float] = {}
    p_values, biases = list[float](), list[float]()
    for scenario, (errors, held) in zip(scenarios, simulated(scenarios, _published, SEED), strict=True):
        often = (~np.isnan(errors)).sum(0)
        shares = np.nansum(held, axis=0)[often > 0] / often[often > 0]
        p_values += [
            float(binomtest(round(share * count), int(count), LEVEL).pvalue)
            for share, count in zip(shares, often[often > 0], strict=True)
        ]
        figures |= {
            f"2_coverage_least_{scenario.name}": float(shares.min(initial=1.0)),
            f"2_coverage_most_{scenario.name}": float(shares.max(initial=0.0)),
            f"2_estimates_{scenario.name}": float(often[:, 0].mean() / SURVEYS),
        }
        if (known := errors[:, often >= OFTEN]).size:
            bias = np.abs(np.nanmean(known, axis=0) / np.nanstd(known, axis=0, ddof=1))
            figures[f"2_bias_most_{scenario.name}"] = float(bias.max())
            biases += bias.tolist()
    return figures | {
        "2_tests": float(len(p_values)),
        "2_family_wise_p": min(1.0, len(p_values) * min(p_values)),
        "2_told_apart_from_95": float(sum(p * len(p_values) < FAMILY_WISE for p in p_values)),
        "2_bias_most": max(biases),
        "2_bias_standard_error": float(1 / np.sqrt(SURVEYS)),
        "2_biases_above_a_tenth": float(sum(bias > MOST_BIAS for bias in biases)),
    }


def _published(scenario: Scenario, generator: np.random.Generator, surveys: int) -> tuple[Floats, Floats]:
    """Errors of the published shares, and whether their intervals hold, shape (surveys, periods, z); nan for none."""
    shape = (surveys, len(scenario.periods), len(scenario.survey.answers))
    errors, held = np.full(shape, np.nan), np.full(shape, np.nan)
    for row in range(surveys):
        drawn = sample_field(scenario.population, scenario.survey, scenario.field, generator)
        truth = drawn.frozen[:, 1:] / np.maximum(drawn.frozen.sum(1, keepdims=True), 1)
        solution = Solution(releases(scenario.survey, drawn.tallies))
        for at, period in enumerate(scenario.periods):
            try:
                estimate = solution.estimate(period).times(1 / solution.releases.enrolment.enrolled[period])
            except NotEstimable:
                continue
            errors[row, at] = estimate.values - truth[period]
            ends = intervals_of(estimate, LEVEL)
            held[row, at] = (ends[:, 0] <= truth[period]) & (truth[period] <= ends[:, 1])
    return errors, held


def field_survey(plan: ReleasePlan, *, closed: bool = False, minimum: int = 1) -> Survey:
    """A survey of three answers over twelve periods, with this plan."""
    return Survey.at_cost(
        question="Do intervals hold what they promise?",
        answers=tuple(f"answer {a}" for a in range(1, FIELD_ANSWERS + 1)),
        calendar=FIELD_CALENDAR,
        constraint=CONSTRAINT,
        plan=plan,
        closed=closed,
        skew=60,
        spread=600,
        grace=86_400,
        minimum=minimum,
    )


def made_up(popularity: tuple[float, ...], periods: int, each: int, more: int = 0) -> Population:
    """60 histories with an answer from the first period on and up to two changes after it.

    popularity: of the answers at first. each: how many entries have each history. more: how many of the histories have
    one entry more.
    """
    generator, z = np.random.default_rng(11), len(popularity)
    states = np.zeros((HISTORIES, periods + 1), np.uint16)
    for row in states:
        row[1:] = generator.choice(z, p=popularity) + 1
        for period in sorted(generator.integers(2, periods + 1, generator.choice(MOST_CHANGES + 1, p=[0.6, 0.3, 0.1]))):
            row[period:] = (row[period] + generator.integers(0, z - 1)) % z + 1
    weights = np.full(HISTORIES, each, np.int64) + (np.arange(HISTORIES) < more)
    return Population(tuple(f"answer {a}" for a in range(1, z + 1)), states, states, weights)


def field_scenarios() -> list[Scenario]:
    """Each thing that may go wrong, with either plan; minima with nodes about as large; a closed cohort's panel."""
    wrong = {
        "silent": Field(offline=0.05),
        "leaving": Field(uninstalls=0.01),
        "arriving": Field(arrivals=0.03),
        "outage": Field(outage=Node(4, 7)),
        "late_start": Field(outage=Node(0, 3)),
    }
    listed = [
        in_the_field(f"{name}_{kind}", plan, field)
        for name, field in wrong.items()
        for kind, plan in open_to_all().items()
    ]
    response = KaryResponse(MutationSpace(FIELD_ANSWERS), Odds(20, 1))
    sampled = ReleasePlan(tuple(Group((Track(2**layer, response, 0, FIELD_PERIODS),)) for layer in range(4)))
    for expected in (80, 100, 125):
        for kind, (plan, nodes) in {"optimal": (_panel(), FIELD_PERIODS // 3), "hierarchy": (sampled, 4)}.items():
            entries = expected * nodes
            listed.append(in_the_field(f"minimum_{expected}_{kind}", plan, Field(), entries=entries, minimum=100))
    panel = in_the_field("closed_panel", _panel(closed=True), Field(), closed=True, periods=(1, 4, 9, 12))
    return [*listed, panel]


def in_the_field(
    name: str,
    plan: ReleasePlan,
    field: Field,
    *,
    entries: int = 3000,
    minimum: int = 1,
    closed: bool = False,
    periods: tuple[int, ...] = (4, 12),
) -> Scenario:
    """A survey of three answers over twelve periods."""
    survey = field_survey(plan, closed=closed, minimum=minimum)
    population = made_up((0.5, 0.3, 0.2), FIELD_PERIODS, *divmod(entries, HISTORIES))
    return Scenario(name, survey, population, field, periods)


def open_to_all() -> dict[str, ReleasePlan]:
    """Of the optimal kind: changes over every period from half of the entries, a state after four, eight or twelve
    from the others. The paper's: everybody reports changes over 1, 2, 4 and 8 periods."""
    changes = SignedSubset(MutationSpace(FIELD_ANSWERS), ANY, 1, Fraction(1, 12))
    states = KaryResponse(StateSpace(FIELD_ANSWERS), ANY)
    told = Group.jointly((Track(1, changes, 0, FIELD_PERIODS),), Joint(EPSILON_8, 1, (1,), (1 + MOST_CHANGES,)))
    held = Group.jointly((Track(4, states, 0, FIELD_PERIODS, reported=1),), Joint(EPSILON_8, 1, (1,), (1,)))
    response = KaryResponse(MutationSpace(FIELD_ANSWERS), Odds(200, 1))
    layers = tuple(Track(2**layer, response, 0, FIELD_PERIODS) for layer in range(4))
    return {"optimal": ReleasePlan((told, held)), "hierarchy": ReleasePlan((Group(layers),))}


def _panel(*, closed: bool = False) -> ReleasePlan:
    """States at three random periods of an entry, jointly."""
    states = KaryResponse(StateSpace(FIELD_ANSWERS, null=not closed), ANY)
    track = Track(1, states, 0, FIELD_PERIODS, reported=3)
    return ReleasePlan((Group.jointly((track,), Joint(EPSILON_8, 3, (1,), (3,))),))


TRIALS, MANY = 300, {20: 200, 200: 60}
"""Surveys of each case of measure 5; fewer where there are many answers, as each has many of one share."""


@dataclass(frozen=True, slots=True, eq=False)
class IntervalCase:
    """A planned survey of a population, for measure 5. name: of its figures."""

    name: str
    survey: Survey
    population: Population


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """How often the intervals of one case held the truth, for both methods.

    trials: how many surveys.
    counts: of each answer at each time, as it is in truth, shape (T, z).
    often: how many surveys had an estimate, shape (2, T). alone: in how many its 95% interval held, shape (2, T, z).
    together: in how many the simultaneous bands of the whole series all held, shape (2,).
    missing: how many figures had no interval.
    """

    trials: int
    counts: Floats
    often: Floats
    alone: Floats
    together: Floats
    missing: float

    @property
    def bands(self) -> list[float]:
        """The share of the surveys with an estimate whose simultaneous bands all held, by method."""
        often = self.often.max(1)
        return [float(share) for share in self.together[often > 0] / often[often > 0]]

    def by_share(self) -> Iterator[float]:
        """The coverage of the answers of one share, over all times and both methods apart; 0 has a cell of its own."""
        shares = self.counts / self.counts.sum(1, keepdims=True)
        cells = np.digitize(shares, (1e-9, 1e-3, 3e-3, 0.02, 0.1, 0.3))
        for held, often in zip(self.alone, self.often, strict=True):
            for cell in np.unique(cells):
                at = cells == cell
                asked = (at * often[:, None]).sum()
                if asked:
                    yield float((held * at).sum() / asked)


def intervals() -> dict[str, float]:
    """Measure 5: coverage of nominal 95% intervals and simultaneous bands, from nothing to one half of the entries.

    Of z = 2 to 200 answers, 700 to 100,000 entries, minima of 1, 10 and 100, ε = 2, 8 and 16, closed and open; every
    two of these levels meet. A cell is all answers of about one share in one survey, by one method. Then the demo's
    712 entries. All in one process, in minutes.
    """
    cases = [*interval_cases(), demo_case()]
    outcomes = [_held(case, number) for number, case in enumerate(cases)]
    cells = [list(held.by_share()) for held in outcomes]
    everything = [share for mine in cells for share in mine]
    figures = {
        "5_missing_intervals": float(sum(held.missing for held in outcomes)),
        "5_coverage_worst": min(everything),
        "5_coverage_mean": float(np.mean(everything)),
        "5_cells": float(len(everything)),
        "5_cells_below_93": float(sum(share < 0.93 for share in everything)),
        "5_cells_above_97.5": float(sum(share > 0.975 for share in everything)),
    }
    for case, held, mine in zip(cases, outcomes, cells, strict=True):
        figures |= {
            f"5_coverage_worst_{case.name}": min(mine),
            f"5_coverage_mean_{case.name}": float(np.mean(mine)),
            f"5_coverage_most_{case.name}": max(mine),
            f"5_simultaneous_{case.name}": min(held.bands),
            f"5_trials_{case.name}": float(held.trials),
        }
    return figures


def _held(case: IntervalCase, number: int) -> Held:
    """Simulates the surveys of one case."""
    truth, periods = case.population.frozen_histogram()[1:].astype(np.float64), case.survey.calendar.periods
    generator, slack = np.random.default_rng([SEED, number]), 1e-9 * case.population.entries
    often, together = np.zeros((2, periods)), np.zeros(2)
    alone, missing = np.zeros((2, *truth.shape)), 0.0
    trials = MANY.get(truth.shape[1], TRIALS)
    with threadpool_limits(1):
        for _ in range(trials):
            known = releases(case.survey, sample_tallies(case.population, case.survey, generator))
            for method in range(2):
                figures, _ = histogram_figures(Solution(known, bool(method)), periods)
                at = [span.end - 1 for span in figures.spans]
                if not at:
                    continue
                for bands, joined in (
                    (figures.intervals(LEVEL), False),
                    (figures.intervals(LEVEL, together=True), True),
                ):
                    missing += float(np.isnan(bands).sum())
                    held = (bands[..., 0] <= truth[at] + slack) & (truth[at] - slack <= bands[..., 1])
                    if joined:
                        together[method] += held.all()
                    else:
                        alone[method, at] += held
                often[method, at] += 1
    return Held(trials, truth, often, alone, together, missing)


GRID_PERIODS, GRID_RATE, PAIRS = 6, 0.02, 8
GRID_CALENDAR = Calendar(0, "1w", GRID_PERIODS)


LEVELS = ((2, 4, 20, 200), (700, 10_000, 100_000), (1, 10, 100), (2, 8, 16), (False, True))
"""z answers, n entries, the minimum, ε, and whether the cohort is closed."""
HARDEST = ((200, 700, 1, 8, False), (2, 700, 1, 16, False), (2, 700, 1, 8, True), (200, 100_000, 1, 2, True))
"""What fell out of the whole grid once: many rare answers of few entries, and few that report at a large ε."""


def interval_cases() -> list[IntervalCase]:
    """Surveys planned by the planner: the hardest, and so many that any two levels of two factors meet in one."""
    drawn, chosen = list(product(*LEVELS)), list(HARDEST)
    np.random.default_rng(5).shuffle(drawn)
    unmet = set[tuple[tuple[int, float], ...]]().union(*map(_pairs, drawn)).difference(*map(_pairs, chosen))
    while unmet:
        chosen.append(max(drawn, key=lambda levels: len(_pairs(levels) & unmet)))
        unmet -= _pairs(chosen[-1])
    cases: list[IntervalCase] = []
    for levels in chosen:
        z, n, minimum, epsilon, closed = map(int, levels)
        wish = Wish(z, GRID_CALENDAR, CONSTRAINT, Decimal(epsilon), n, closed=bool(closed), minimum=minimum)
        survey = wish.survey(optimal_plan(wish).plan, tuple(f"answer {a}" for a in range(1, z + 1)))
        name = f"z{z}_n{n}_minimum{minimum}_epsilon{epsilon}_{'closed' if closed else 'open'}"
        shares = from_nothing_to_half(z, len(cases))
        cases.append(IntervalCase(name, survey, steady(shares, n, GRID_PERIODS, GRID_RATE)))
    return cases


def _pairs(levels: Sequence[float]) -> set[tuple[tuple[int, float], ...]]:
    """Every two factors of a case, each with its level."""
    return set(combinations(enumerate(levels), 2))


def demo_case() -> IntervalCase:
    """The demo's survey of 712 entries."""
    from demo.__main__ import FULL, best_plan

    changelog = read_csv(changelog_path("school-to-work"))
    population = Population.from_changelog(changelog, FULL.calendar(), FULL.constraint)
    _, survey = best_plan(FULL, changelog.answers, population.entries)
    return IntervalCase("demo", survey, population)


def from_nothing_to_half(z: int, number: int) -> tuple[float, ...]:
    """Shares of z answers: of two, one in 2,000, one in 100, or a half; of more, nothing to a half."""
    if z == 2:
        rare = (0.0005, 0.01, 0.5)[number % 3]
        return rare, 1 - rare
    if z == 4:
        return (0.0, 0.0005, 0.4995, 0.5) if number % 2 else (0.002, 0.01, 0.488, 0.5)
    few = z // 20
    shares = np.repeat([0.0, 0.0005, 0.002, 0.01, 0.05], [2 * few, 2 * few, few, few, 1])
    rest = z - len(shares) - 1
    return (*shares.tolist(), *[(0.5 - shares.sum()) / rest] * rest, 0.5)


def steady(shares: tuple[float, ...], entries: int, periods: int, rate: float) -> Population:
    """Entries of which a share changes in every period after the first, two and two in opposite directions, so that
    all counts stay. Nobody changes twice."""
    generator, z = np.random.default_rng(7), len(shares)
    counts = np.floor(np.array(shares) * entries).astype(np.int64)
    counts[-1] += entries - counts.sum()
    still, rows, weights = counts.copy(), [], []
    for period in range(2, periods + 1):
        for _ in range(PAIRS):
            pair = generator.choice(z, 2, replace=False, p=(counts + 1e-9) / (counts + 1e-9).sum())
            moved = min(round(rate * entries / (2 * PAIRS)), int(still[pair].min()) // 2)
            for old, new in (pair, pair[::-1]):
                row = np.full(periods + 1, old + 1, np.uint16)
                row[0], row[period:] = 0, new + 1
                rows.append(row)
                weights.append(moved)
            still[pair] -= moved
    rows += [np.concatenate([[0], np.full(periods, a + 1)]).astype(np.uint16) for a in range(z)]
    weights += still.tolist()
    kept = np.array(weights) > 0
    states = np.array(rows)[kept]
    return Population(tuple(f"answer {a}" for a in range(1, z + 1)), states, states, np.array(weights)[kept])
