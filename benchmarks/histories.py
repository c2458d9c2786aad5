"""Measures of histories: what they cost, how near the best they come, how accurate plans are with them, what they save.

A function a measure; the names of its figures begin with the measure's number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Calendar,
    Constraint,
    Group,
    History,
    Hybrid,
    Odds,
    ReleasePlan,
    TimeBounded,
    lives_cost,
    plan_cost,
)
from changeling_simulations import Population, closed_cohort, exact_error, sample_tallies, simulated_errors
from changeling_statistics import (
    Floats,
    Smoothing,
    Solution,
    Wish,
    histogram_figures,
    optimal_plan,
    releases,
    steady_changes,
)
from changeling_statistics.testing import lived_histories, questions, transcripts, worst_of_laws

from .joint_best import Histories, all_histories, best_of, distinct, information, joint_groups, optimum
from .joint_best import response_variance as variance_of
from .plans import ENTRIES, cohort_wish

CONSTRAINTS: tuple[Constraint, ...] = (
    AtMost(1),
    AtMost(2),
    AtMost(3),
    TimeBounded(5),
    TimeBounded(11),
    TimeBounded(20),
    AtMostWithin(2, 15),
    AtMostWithin(3, 20),
    Hybrid((AtMost(2), TimeBounded(15))),
    Hybrid((AtMost(3), TimeBounded(10))),
    Hybrid((AtMost(1), AtMost(2))),
)
SHAPES = ((1, 4, 1, 1), (2, 3, 1, 1), (2, 4, 2, 2), (2, 5, 2, 1), (2, 4, 1, 2), (3, 3, 1, 1))
"""z, T, every which period an entry reports, and the first of them."""
MOST_LIVED = 20
"""With more changelogs than that, two lives are not enumerated."""
ODDS = (Odds(7, 2), Odds(40, 1))


def losses() -> dict[str, float]:
    """Measure 1: the largest enumerated loss over the stated one, of one life and of two; never above 1."""
    once, twice, cases, lived = 0.0, 0.0, 0, 0
    for (z, T, every, first), constraint, closed, odds in product(SHAPES, CONSTRAINTS, (False, True), ODDS):
        if z + (not closed) < 2:
            continue
        calendar = Calendar(0, 10, T)
        group = history_group(z, range(first, T + 1, every), constraint, calendar, closed, odds)
        plan, changelogs = ReleasePlan((group,)), lived_histories(z, calendar, constraint, closed)
        worst = worst_of_laws(_sent(group, states) for states in changelogs)
        once = max(once, loss_over(worst, plan_cost(plan, calendar, constraint, closed)))
        cases += 1
        if len(changelogs) <= MOST_LIVED and odds is ODDS[0]:
            stated = lives_cost(plan, calendar, constraint, closed, lives=2)
            twice = max(twice, loss_over(_two_lives(group, changelogs, T), stated))
            lived += 1
    return {
        "1_loss_over_stated": once,
        "1_loss_of_two_lives_over_stated": twice,
        "1_cases": float(cases),
        "1_cases_of_two_lives": float(lived),
    }


def history_group(
    answers: int, periods: range, constraint: Constraint, calendar: Calendar, closed: bool, odds: Odds
) -> Group:
    """The group that reports the history at the ends of these periods."""
    return Group.of_history(History.of(odds, periods, constraint, calendar, closed), answers)


def _sent(group: Group, states: Sequence[int]) -> dict[tuple[int, ...], Fraction]:
    return {sent: chance for sent, (chance, _) in transcripts(group, questions(group, states)).items()}


def loss_over(worst: Fraction, stated: Decimal) -> float:
    """The logarithm of a ratio over a loss that is stated, rounded only at the end."""
    with localcontext(prec=60):
        return float((Decimal(worst.numerator).ln() - Decimal(worst.denominator).ln()) / stated)


def _two_lives(group: Group, changelogs: Sequence[tuple[int, ...]], periods: int) -> Fraction:
    """The largest ratio of all that two lives send, whenever a copy of the store was made."""
    worst = Fraction(1)
    for copied in range(periods):
        pairs = [(a, b) for a, b in product(changelogs, changelogs) if a[: copied + 1] == b[: copied + 1]]
        worst = max(worst, worst_of_laws(_both_lives(group, one, other, copied) for one, other in pairs))
    return worst


def _both_lives(group: Group, one: Sequence[int], other: Sequence[int], copied: int) -> dict[tuple[int, ...], Fraction]:
    first, again = questions(group, one, copied), questions(group, other, copied)
    law = {}
    for begun, (chance, memory) in transcripts(group, questions(group, one[: copied + 1])).items():
        if not first:
            law[begun] = chance
            continue
        for (sent, (p, _)), (more, (q, _)) in product(
            transcripts(group, first, memory).items(), transcripts(group, again, memory).items()
        ):
            law[*begun, *sent, *more] = chance * p * q
    return law


TINY = tuple(product(((2, 1), (3, 1), (3, 2), (4, 1)), (1.0, 2.0, 4.0)))
"""T, k and ε of the twelve cases of `joint_best`."""
LONGER = (((5, 1), 2.0), ((5, 1), 4.0))


def tiny() -> dict[str, float]:
    """Measure 2: response variance of the best mix of joint groups and histories over the certified bound."""
    figures = {}
    for (T, k), epsilon in (*TINY, *LONGER):
        histories = all_histories(T, k)
        bound = variance_of(optimum(histories, epsilon).bound, histories)
        rows = [information_of_history(group, histories) for group in tiny_groups(T, k, epsilon)]
        if T < 5:
            rows += [information(group, histories) for group in joint_groups(T, k, epsilon)]
        mix = best_of(distinct(rows), histories)
        figures[f"2_T{T}_k{k}_eps{epsilon:g}_over_bound"] = variance_of(mix.square, histories) / bound
    twelve = [figures[f"2_T{T}_k{k}_eps{epsilon:g}_over_bound"] for (T, k), epsilon in TINY]
    return figures | {
        "2_worst_of_twelve_over_bound": max(twelve),
        "2_twelve_within_1_percent": float(sum(ratio <= 1.01 for ratio in twelve)),
    }


def tiny_groups(T: int, k: int, epsilon: float) -> Iterator[Group]:
    """Histories at all rows of times, with at most k changes after the first."""
    for first, every in product(range(1, T + 1), range(1, T + 1)):
        for last in range(first, T + 1, every):
            periods = range(first, last + 1, every)
            if len(periods) > 1 or every == 1:
                yield history_group(2, periods, AtMost(k + 1), Calendar(0, 1, T), True, Odds.within(epsilon))


def information_of_history(group: Group, histories: Histories) -> Floats:
    """Σ_o q_o q_o' / mean(q_o) of all that an entry of a history group sends, as `information` gives it; (n, n)."""
    ends = [node.end for track in group.tracks for node in track.nodes()]
    told = float(group.histories.told)
    reported = [tuple(states[end] for end in ends) for states in histories]
    every = sorted(set(reported))  # all that are possible: there are no histories but these
    rows = np.array([[told * (sent == truth) + (1 - told) / len(every) for truth in reported] for sent in every])
    informed: Floats = rows.T @ (rows / rows.mean(axis=1)[:, None])
    return informed


POPULATIONS, DRAWS = 5, 20
NOTHING = 1e-5
"""With a smaller error nearly everybody tells the truth, and what little is left is in few surveys that are drawn."""
MIXED = (
    (12, 3, 1, 4, True),
    (12, 3, 1, 6, True),
    (12, 3, 2, 8, True),
    (12, 3, 2, 8, False),
    (64, 4, 3, 2, True),
    (64, 4, 3, 8, True),
    (64, 4, 3, 12, True),
    (64, 4, 3, 16, True),
    (64, 4, 3, 16, False),
    (64, 4, 3, 32, True),
)
"""T, z, the most changes, ε, and whether retrospective."""


def mixed() -> dict[str, float]:
    """Measure 3: the error of the best plans, n = 20,000, exact given everybody's history, and simulated beside it."""
    figures: dict[str, float] = {}
    for T, z, changes, epsilon, retrospective in MIXED:
        wish = cohort_wish(epsilon, retrospective=retrospective, answers=z, periods=T, most_changes=changes)
        planned = optimal_plan(wish)
        survey = planned.option.survey
        tried = [closed_cohort(ENTRIES, z, T, changes, np.random.default_rng(seed)) for seed in range(POPULATIONS)]
        exact = [exact_error(each, survey, retrospective=retrospective).mean ** 2 for each in tried]
        simulated = []
        for seed, each in enumerate(tried):
            draws = (np.random.default_rng([7, seed, draw]) for draw in range(DRAWS))
            simulated.append(simulated_errors(each, survey, draws, retrospective=retrospective).mean())
        name = f"T{T}_z{z}_k{changes}_eps{epsilon}_{'retrospective' if retrospective else 'online'}"
        figures[f"3_{name}"] = float(np.sqrt(np.mean(exact)))
        figures[f"3_{name}_simulated"] = float(np.sqrt(np.mean(simulated)))
        figures[f"3_{name}_in_histories"] = planned.share_of("history")
        if figures[f"3_{name}"] > NOTHING:
            figures[f"3_{name}_predicted_over_simulated"] = planned.option.error(wish) / figures[f"3_{name}_simulated"]
    return figures


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
