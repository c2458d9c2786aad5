"""The scenarios that coverage is measured on: plans of every kind, and everything that goes wrong in the field."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, product

import numpy as np
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
    most_telling,
)
from changeling_simulations import Field, Population, changelog_path
from changeling_statistics import Wish, hierarchical_plan, optimal_plan, read_csv

from .coverage import IntervalCase, Scenario, View

HISTORIES, MOST_CHANGES, CONSTRAINT = 60, 2, AtMost(3)
PLAN_ANSWERS, PLAN_PERIODS = 4, 32
FIELD_ANSWERS, FIELD_PERIODS = 3, 12
PLAN_CALENDAR, FIELD_CALENDAR = (Calendar(0, "1d", periods) for periods in (PLAN_PERIODS, FIELD_PERIODS))
UNALIGNED = 21
"""A time that no wide node ends at: where a sampled hierarchy's bound is loosest, and may cover more than it says."""
EPSILON_8 = Odds(3000, 1)
ANY = Odds(9, 1)
"""The odds of a randomizer in a joint group before the group sets its own."""
MOVES, HELD = MutationSpace(PLAN_ANSWERS, null=False), StateSpace(PLAN_ANSWERS, null=False)


def survey_of(answers: int, calendar: Calendar, plan: ReleasePlan, *, closed: bool = False, minimum: int = 1) -> Survey:
    """A survey of so many answers with this plan."""
    return Survey.at_cost(
        question="Do intervals hold what they promise?",
        answers=tuple(f"answer {a}" for a in range(1, answers + 1)),
        calendar=calendar,
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


def plan_scenarios() -> list[Scenario]:
    """The paper's plan; a hierarchy of one layer an entry at so large an epsilon that sampling dominates; and a plan
    of the optimal kind: states at first and changes after them, beside a panel of one random node."""
    paper = hierarchical_plan(PLAN_ANSWERS, PLAN_CALENDAR, CONSTRAINT, epsilon=Decimal(60), branching=2, layers=5)
    states = KaryResponse(HELD, Odds(30, 1))
    changes = SignedSubset(MutationSpace(PLAN_ANSWERS), Odds(40, 1), spoken=Fraction(1, 12))
    anchored = Group((Track(1, states, 0, 1), Track(1, changes, 1, PLAN_PERIODS)), share=3)
    panel = Group((Track(4, states, 0, PLAN_PERIODS, reported=1),), share=2)
    views = tuple(View(time) for time in (4, 16, 32))
    return [
        _of_plan("paper", paper, views, closed=False),
        _of_plan("sampled_hierarchy", _layers(), views),
        _of_plan("optimal", ReleasePlan((anchored, panel)), views),
    ]


def unaligned() -> Scenario:
    """The sampled hierarchy at a time where its bound is loosest."""
    return _of_plan("unaligned", _layers(), (View(UNALIGNED),))


def joint_scenarios() -> list[Scenario]:
    """One joint group; a panel and anchored changes, each joint, for shares of the entries; and an open cohort."""
    first = Track(1, KaryResponse(HELD, ANY), 0, 1)
    told = Track(1, KaryChange(MOVES, ANY), 1, PLAN_PERIODS)
    panel = Track(8, KaryResponse(HELD, ANY), 0, PLAN_PERIODS, reported=2)
    every = Track(1, SignedSubset(MutationSpace(PLAN_ANSWERS), ANY, spoken=Fraction(1, 6)), 0, PLAN_PERIODS)
    wide = Track(8, KaryResponse(StateSpace(PLAN_ANSWERS), ANY), 0, PLAN_PERIODS)
    shares = ReleasePlan((_jointly((first, told), 2, share=3), _jointly((panel,), 1, share=2)))
    views = (*(View(time) for time in (8, 16, 32)), *(View(time, retrospective=True) for time in (8, 16)))
    return [
        _of_plan("joint_anchored", _anchored(Fraction(1, 3)), views),
        _of_plan("joint_shares", shares, views),
        _of_plan("joint_open", ReleasePlan((_jointly((every, wide), 3, closed=False),)), views, closed=False),
    ]


def loosest_bound() -> Scenario:
    """The first of them with signed subsets that speak half as often: less noise, more of it not told by tallies."""
    return _of_plan("loosest", _anchored(Fraction(1, 6)), (View(PLAN_PERIODS),))


def _of_plan(name: str, plan: ReleasePlan, views: tuple[View, ...], *, closed: bool = True) -> Scenario:
    population = made_up((0.4, 0.3, 0.2, 0.1), PLAN_PERIODS, 500)
    return Scenario(name, survey_of(PLAN_ANSWERS, PLAN_CALENDAR, plan, closed=closed), population, Field(), views)


def _layers() -> ReleasePlan:
    response = KaryResponse(MutationSpace(PLAN_ANSWERS), Odds(1000, 1))
    return ReleasePlan(tuple(Group((Track(2**i, response, 0, PLAN_PERIODS),)) for i in range(6)))


def _anchored(spoken: Fraction) -> ReleasePlan:
    """One joint group of a state at first and changes after it, by signed subsets of one plus, which tell Q."""
    signed = Track(1, SignedSubset(MOVES, ANY, 1, spoken), 1, PLAN_PERIODS)
    return ReleasePlan((_jointly((Track(1, KaryResponse(HELD, ANY), 0, 1), signed), 2),))


def _jointly(tracks: tuple[Track, ...], threshold: int, *, share: int = 1, closed: bool = True) -> Group:
    """A joint group at odds of 3,000:1, ε = 8, with as many slots as an entry can use."""
    slots = tuple(most_telling(track, PLAN_CALENDAR, CONSTRAINT, closed) for track in tracks)
    return Group.jointly(tracks, Joint(EPSILON_8, threshold, (1,) * len(tracks), slots), share)


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
    views = tuple(View(time) for time in (1, 4, 9, 12))
    return [*listed, in_the_field("closed_panel", _panel(closed=True), Field(), closed=True, views=views)]


def in_the_field(
    name: str,
    plan: ReleasePlan,
    field: Field,
    *,
    entries: int = 3000,
    minimum: int = 1,
    closed: bool = False,
    views: tuple[View, ...] = (View(4), View(12)),
) -> Scenario:
    """A survey of three answers over twelve periods."""
    survey = survey_of(FIELD_ANSWERS, FIELD_CALENDAR, plan, closed=closed, minimum=minimum)
    population = made_up((0.5, 0.3, 0.2), FIELD_PERIODS, *divmod(entries, HISTORIES))
    return Scenario(name, survey, population, field, views)


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
