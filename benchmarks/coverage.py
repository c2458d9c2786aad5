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
from statistics import NormalDist
from typing import TypeVar

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


S = TypeVar("S", "Scenario", "IntervalCase")


def simulated(
    scenarios: Sequence[S],
    batch: Callable[[S, np.random.Generator, int], tuple[Floats, ...]],
    seed: int,
    surveys: Callable[[S], int] = lambda _: SURVEYS,
) -> Iterator[list[Floats]]:
    """The figures of so many surveys of each scenario, simulated in batches on all processors.

    batch: simulates so many surveys of a scenario, and returns figures whose first axis is the survey.
    """
    numbers = [(number, at) for number in range(len(scenarios)) for at in range(BATCHES)]
    many = [surveys(scenarios[number]) // BATCHES for number, _ in numbers]
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        done = list(workers.map(partial(_one_batch, scenarios, batch, seed), numbers, many))
    for number in range(len(scenarios)):
        mine = [figures for (of, _), figures in zip(numbers, done, strict=True) if of == number]
        yield [np.concatenate(parts) for parts in zip(*mine, strict=True)]


def _one_batch(
    scenarios: Sequence[S],
    batch: Callable[[S, np.random.Generator, int], tuple[Floats, ...]],
    seed: int,
    numbers: tuple[int, int],
    surveys: int,
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
    survey = Survey.at_cost(
        question="Do intervals hold what they promise?",
        answers=tuple(f"answer {a}" for a in range(1, FIELD_ANSWERS + 1)),
        calendar=Calendar(0, "1d", FIELD_PERIODS),
        constraint=CONSTRAINT,
        plan=plan,
        closed=closed,
        skew=60,
        spread=600,
        grace=86_400,
        minimum=minimum,
    )
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


TRIALS = {2: 900, 4: 900, 20: 600, 200: 180}
"""Surveys of each case of measure 5, by z: fewer where there are many answers, as each has many of one share."""
COARSE = 0.4
"""In standard errors: where a single report moves an estimate by more, one outcome more or less within an interval is
more than two points of coverage, so that there may be no interval between 93% and 97.5% (docs/mathematics.md)."""
LEAST, MOST = 0.93, 0.975


@dataclass(frozen=True, slots=True, eq=False)
class IntervalCase:
    """A planned survey of a population, for measure 5. name: of its figures."""

    name: str
    survey: Survey
    population: Population

    @property
    def truth(self) -> Floats:
        """How many hold each answer at each time, shape (T, z)."""
        return self.population.frozen_histogram()[1:].astype(np.float64)

    @property
    def trials(self) -> int:
        """How many surveys of it are simulated."""
        return TRIALS.get(len(self.survey.answers), TRIALS[4])


@dataclass(frozen=True, slots=True)
class Cell:
    """The coverage of all answers of about one share in the surveys of one case, over all times, by one method.

    error: its standard error, surveys being independent and the figures of one survey not.
    there: the share of its figures that were published. coarse: whether single reports make up the errors.
    """

    coverage: float
    error: float
    there: float
    coarse: bool


def _cells(case: IntervalCase, held: Floats, steps: Floats) -> Iterator[Cell]:
    """The cells of one method, but for those of which hardly anything was published. held, steps: shape (S, T, z)."""
    of_share = np.digitize(case.truth / case.population.entries, (1e-9, 1e-3, 3e-3, 0.02, 0.1, 0.3))
    for share in np.unique(of_share):
        mine, moved = held[:, of_share == share], steps[:, of_share == share]
        asked, inside = (~np.isnan(mine)).sum(1), np.nansum(mine, axis=1)
        if (asked > 0).sum() < len(mine) / 10:
            continue
        coverage = inside.sum() / asked.sum()
        off = np.sqrt(((inside - coverage * asked) ** 2).sum()) / asked.sum()
        error = max(float(off), 1 / len(mine))
        yield Cell(float(coverage), error, float(asked.mean() / mine.shape[1]), bool(np.nanmean(moved) > COARSE))


def intervals() -> dict[str, float]:
    """Measure 5: coverage of nominal 95% intervals and simultaneous bands, from nothing to one half of the entries.

    Of z = 2 to 200 answers, 700 to 100,000 entries, minima of 1, 10 and 100, ε = 2, 8 and 16, closed and open; every
    two of these levels meet. A cell is all answers of about one share in one survey, by one method; where both methods
    are the same, it counts once. Then the demo's 712 entries. The worst of many cells is worse than any is in truth,
    so it is also counted how many are surely outside of 93 to 97.5%: one too many in a thousand runs (Bonferroni). A
    cell counts in the mean by the share of its figures that were published.
    """
    cases = [*interval_cases(), demo_case()]
    figures: dict[str, float] = {}
    everything, together, missing = list[Cell](), list[float](), 0.0
    for case, simulation in zip(cases, simulated(cases, _series, SEED, lambda case: case.trials), strict=True):
        held, bands, steps, same, lost = simulation
        missing += float(lost.sum())
        methods = range(1 if same.all() else 2)
        mine = [cell for method in methods for cell in _cells(case, held[:, method], steps[:, method])]
        all_hold = [float(np.nanmean(bands[:, method])) for method in methods]
        everything += mine
        together += all_hold
        shares = [cell.coverage for cell in mine]
        figures |= {
            f"5_coverage_worst_{case.name}": min(shares),
            f"5_coverage_mean_{case.name}": float(np.average(shares, weights=[cell.there for cell in mine])),
            f"5_coverage_most_{case.name}": max(shares),
            f"5_coverage_error_{case.name}": max(cell.error for cell in mine),
            f"5_simultaneous_{case.name}": min(all_hold),
            f"5_published_{case.name}": min(cell.there for cell in mine),
            f"5_trials_{case.name}": float(case.trials),
        }
    shares, fine = [cell.coverage for cell in everything], [cell for cell in everything if not cell.coarse]
    sure = NormalDist().inv_cdf(1 - FAMILY_WISE / len(everything))
    return figures | {
        "5_missing_intervals": missing,
        "5_coverage_worst": min(shares),
        "5_coverage_most": max(shares),
        "5_coverage_most_but_coarse": max(cell.coverage for cell in fine),
        "5_coverage_mean": float(np.average(shares, weights=[cell.there for cell in everything])),
        "5_simultaneous_worst": min(together),
        "5_simultaneous_most": max(together),
        "5_simultaneous_error": max(np.sqrt(0.05 * 0.95 / case.trials) for case in cases),
        "5_cells": float(len(everything)),
        "5_cells_coarse": float(len(everything) - len(fine)),
        "5_cells_below_93": float(sum(share < LEAST for share in shares)),
        "5_cells_surely_below_93": float(sum(LEAST - cell.coverage > sure * cell.error for cell in everything)),
        "5_cells_above_97.5": float(sum(share > MOST for share in shares)),
        "5_cells_above_97.5_but_coarse": float(sum(cell.coverage > MOST for cell in fine)),
        "5_cells_surely_above_97.5_but_coarse": float(sum(cell.coverage - MOST > sure * cell.error for cell in fine)),
    }


def _series(case: IntervalCase, generator: np.random.Generator, surveys: int) -> tuple[Floats, ...]:
    """Whether the intervals of the series of so many surveys hold the truth, online and retrospective; nan for none.

    Returns whether each interval does, shape (surveys, 2, T, z), and all simultaneous bands, (surveys, 2); by how many
    standard errors a single report moves an estimate, (surveys, 2, T, z); whether both methods are the same, and how
    many figures have no interval, (surveys,).
    """
    truth, periods = case.truth, case.survey.calendar.periods
    held, steps = np.full((2, surveys, 2, *truth.shape), np.nan)
    bands, same, lost = np.full((surveys, 2), np.nan), np.zeros(surveys), np.zeros(surveys)
    slack = 1e-9 * case.population.entries
    for row in range(surveys):
        known = releases(case.survey, sample_tallies(case.population, case.survey, generator))
        values = []
        for method in range(2):
            figures, _ = histogram_figures(Solution(known, bool(method)), periods)
            values.append(figures.values)
            at = [span.end - 1 for span in figures.spans]
            if not at:
                continue
            alone, together = (figures.intervals(LEVEL, together=joined) for joined in (False, True))
            inside, all_inside = (
                (ends[..., 0] <= truth[at] + slack) & (truth[at] - slack <= ends[..., 1]) for ends in (alone, together)
            )
            curve = figures.curve
            held[row, method, at], bands[row, method] = inside, all_inside.all()
            steps[row, method, at] = np.maximum(curve.up, curve.down) / np.sqrt(np.maximum(curve.at(truth[at]), 1e-12))
            lost[row] += np.isnan([alone, together]).any((0, 3)).sum()
        same[row] = np.array_equal(values[0], values[1])
    return held, bands, steps, same, lost


GRID_PERIODS, GRID_RATE, PAIRS = 6, 0.02, 8
GRID_CALENDAR = Calendar(0, "1w", GRID_PERIODS)
LEVELS = ((2, 4, 20, 200), (700, 10_000, 100_000), (1, 10, 100), (2, 8, 16), (False, True))
"""z answers, n entries, the minimum, ε, and whether the cohort is closed."""
HARDEST = (
    (200, 700, 1, 8, False),
    (2, 700, 1, 16, False),
    (2, 700, 1, 8, True),
    (200, 100_000, 1, 2, True),
    (200, 700, 10, 16, True),
)
"""What fell out of the whole grid once: many rare answers of few entries, and few that report at a large ε. In the last
one some of a handful of entries with an answer go, and of most answers none, where tallies count all changes together.
"""


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
