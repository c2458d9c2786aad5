"""(ε, δ) and shuffled figures against whoever knows an entry's group and drawn nodes, by exact computation."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from random import Random

import pytest
from changeling_protocol import KaryResponse, Odds, ReleasePlan, StateSpace, Survey
from changeling_statistics import delta_at, epsilon_at, shuffled_loss, worst_curve
from changeling_statistics.shuffled import linked_epsilon, rounds_epsilon

from ..protocol.examples import survey
from ..protocol.loss_cases import LossCase, joint_loss_cases, loss_cases
from .exactly import against, flat, histogram_law, relayed, shuffled_pairs, surveyed
from .known_draws import TooLarge, group_deltas, worst_deltas

EPSILONS = (0.0, 0.2, 0.7, 1.5)


@pytest.mark.parametrize(("seed", "count"), [(3, 25), pytest.param(11, 50, marks=pytest.mark.heavy)])
def test_random_surveys_stay_within_every_stated_figure(seed, count):
    """Small surveys of every kind: of no figure the exact δ exceeds the stated one, and many are reached."""
    found = [*checked_cases(seed, count)]
    assert max(ratios.largest for ratios in found) <= 1
    assert sum(ratios.approximate > 0.999 for ratios in found) > 10
    assert any(ratios.helps for ratios in found)


@pytest.mark.parametrize("entries", [1, 2, 4])
def test_the_enumeration_agrees_with_that_of_histograms_in_fractions(entries):
    """One state, told once: over all inputs of all entries."""
    response = KaryResponse(StateSpace(1), Odds(4, 1))
    curve = worst_curve(shuffled_pairs(response, entries))
    found = worst_deltas(surveyed(flat(response, 1), k=1), entries, EPSILONS)
    assert found == pytest.approx([curve.delta_at(epsilon) for epsilon in EPSILONS], abs=1e-12)


def test_the_enumeration_takes_the_mean_over_what_the_others_draw():
    """Two entries, one node of two: with a chance of one half the other reports elsewhere and hides nothing."""
    response = KaryResponse(StateSpace(1), Odds(4, 1))
    panel = surveyed(flat(response, 2, reported=1), k=1)
    alone, beside = (against(*(histogram_law(response, (u, *v)) for u in (0, 1))) for v in ((), (0,)))
    (found,) = group_deltas(panel, 0, 2, (0.3,))
    assert found == pytest.approx((alone.delta_at(0.3) + beside.delta_at(0.3)) / 2, abs=1e-12)


MOST_ENTRIES = 4
DELTAS = (0.001, 0.01, 0.05, 0.15, 0.3)
MOST_SYMBOLS = 16


@dataclass(frozen=True, slots=True)
class Ratios:
    """Exact δ over stated δ: a figure holds if its ratio is at most 1.

    approximate: of the (ε, δ) figure at the δ asked for. at_half: of δ at half of the pure epsilon.
    shuffled: of the shuffled figure. bounds: of each bound that it is made of, by itself, at the worst.
    helps: whether the shuffled figure is below the (ε, δ) one.
    """

    approximate: float
    at_half: float
    shuffled: float
    bounds: float
    helps: bool

    @property
    def largest(self) -> float:
        """The largest of all."""
        return max(self.approximate, self.at_half, self.shuffled, self.bounds)


def checked_cases(seed: int, count: int) -> Iterator[Ratios]:
    """What is found of so many random surveys that are small enough to be enumerated."""
    random = Random(seed)
    while count:
        entries = 1 + count % MOST_ENTRIES
        try:
            found = ratios_of(random_survey(random, entries), entries, random.choice(DELTAS))
        except TooLarge:
            continue
        yield found
        count -= 1


def ratios_of(survey: Survey, entries: int, delta: float) -> Ratios:
    """What is exactly told beyond the stated figures, of so many entries. Raises TooLarge."""
    half = float(survey.cost) / 2
    approximate = epsilon_at(survey, delta)
    alone, at_half = worst_deltas(survey, 1, (approximate, half))
    stated = shuffled_loss(survey, delta, entries).epsilon
    shuffled, bounds = [], []
    for number, group in enumerate(survey.plan.groups):
        epsilons = [stated, linked_epsilon(survey, group, delta, entries)]
        if group.joint is None:
            epsilons.append(rounds_epsilon(survey, group, delta, entries)[0])
        together, *each = group_deltas(survey, number, entries, epsilons)
        shuffled.append(together)
        bounds += each
    return Ratios(
        _ratio(alone, delta),
        _ratio(at_half, delta_at(survey, half)),
        _ratio(max(shuffled), delta),
        _ratio(max(bounds), delta),
        stated < approximate,
    )


def _ratio(exact: float, stated: float) -> float:
    """Exact over stated; 0 where both are 0."""
    return float(exact) / stated if stated else inf if exact else 0.0


def random_survey(random: Random, entries: int) -> Survey:
    """A plan whose charge is enumerated, or the groups of two, with random shares; smaller, where entries are many."""
    case = random.choice(_cases(2 + (entries < 4) + (entries < 3)))
    beside = [other for other in _cases(case.calendar.periods) if _circumstances(other) == _circumstances(case)]
    groups = {*case.plan.groups, *(random.choice(beside).plan.groups if random.random() < 0.5 else ())}
    plan = ReleasePlan(tuple(replace(group, share=random.randint(1, 3)) for group in sorted(groups, key=str)))
    answers = tuple("abc"[: case.answers])
    known = {"calendar": case.calendar, "constraint": case.constraint, "closed": case.closed}
    return relayed(survey(plan, answers=answers, **known))


@cache
def _cases(most_periods: int) -> list[LossCase]:
    """Those of so many periods whose transcripts can be enumerated."""
    return [
        case
        for case in (*loss_cases(), *joint_loss_cases())
        if case.calendar.periods <= most_periods
        and all(track.randomizer.symbols <= MOST_SYMBOLS for track in case.plan.tracks)
    ]


def _circumstances(case: LossCase) -> tuple[object, ...]:
    return case.answers, case.calendar, case.constraint, case.closed
