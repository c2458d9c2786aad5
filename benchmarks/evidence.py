"""Measures 3 and 5 of the evidence: methods of others, and liars."""

from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from itertools import product

import numpy as np
from changeling_protocol import AtMost, Calendar
from changeling_simulations import closed_cohort, compare_methods, paper_survey, sample_tallies
from changeling_simulations.field_sampler import invented_tallies
from changeling_statistics import Solution, Wish, histogram_figures, optimal_plan, releases

DEVICES, ANSWERS = 20_000, 4
EPSILONS, HORIZONS, CHANGES = (1, 2, 8, 32), (12, 64, 365), (1, 3, None)
ROUNDING = 1.001
"""Odds are whole numbers below the budget, so that equal methods differ in the last digits."""
LIARS, LIED_PERIODS, LIED_EPSILONS = 200, 12, (1, 4, 8)


def compared() -> dict[str, float]:
    """Measure 3: cases of methods that keep a whole life's promise, and how many are better than ours.

    Each by what is known as each period closes, and, on horizons of up to 64 periods, by what is known at the end; of
    365 periods by the latter alone, to which PrivUnitG belongs. No method here bridges a period that a server loses.
    `worst` is the least of their errors over ours.
    """
    wishes = [
        Wish(
            answers=ANSWERS,
            calendar=Calendar(0, "1d", periods),
            constraint=AtMost(most or periods),
            epsilon=Decimal(epsilon),
            devices=DEVICES,
            closed=True,
            minimum=1,
            retrospective=retrospective,
            bridge=False,
        )
        for epsilon, periods, most in product(EPSILONS, HORIZONS, CHANGES)
        for retrospective in ((True,) if periods > 64 else (False, True))
    ]
    with ProcessPoolExecutor() as pool:
        ratios = [ratio for of_wish in pool.map(_over_ours, wishes) for ratio in of_wish]
    return {
        "3_cases": len(ratios),
        "3_better_than_ours": sum(ratio * ROUNDING < 1 for ratio in ratios),
        "3_worst": min(ratios),
    }


def _over_ours(wish: Wish) -> list[float]:
    """The error over ours of each method that keeps a whole life's promise, and knows no more than the wish asks."""
    found = compare_methods(wish)
    ours = found.planned.option.prediction.mean
    known = {"each period", *(["at the end"] if wish.retrospective else [])}
    return [each.error / ours for each in found.methods if each.whole_life and each.when in known and not each.is_ours]


def lied() -> dict[str, float]:
    """Measure 5: how far invented entries move a share, over the bound behind the published count of them for a point.

    With an influence of I, f of them beside n move it by f (I + 1) / (n + f) at most. Of every plan, each group in turn
    is that of all liars; they answer at random, or raise one answer.
    """
    constraint, calendar = AtMost(3), Calendar(0, "1d", LIED_PERIODS)
    generator = np.random.default_rng(5)
    population = closed_cohort(DEVICES, ANSWERS, LIED_PERIODS, 2, generator)
    wishes = [
        Wish(ANSWERS, calendar, constraint, epsilon=Decimal(e), devices=DEVICES, closed=True) for e in LIED_EPSILONS
    ]
    surveys = [wish.survey(optimal_plan(wish).plan, population.answers) for wish in wishes]
    surveys += [paper_survey(population.answers, calendar, constraint, epsilon=Decimal(8), layers=h) for h in (1, 3)]
    tried, worst = 0, {"random": 0.0, "targeted": 0.0}
    for survey in surveys:
        honest = sample_tallies(population, survey, generator)
        before, _ = histogram_figures(Solution(releases(survey, honest)), LIED_PERIODS)
        bound = LIARS * (before.influence + 1) / (before.entries[:, None] + LIARS)
        shares = before.values / before.entries[:, None]
        for group, (kind, pushed) in product(range(len(survey.plan.groups)), (("random", 0), ("targeted", 1))):
            lies = invented_tallies(survey, LIARS, pushed, generator, group=group)
            after, _ = histogram_figures(Solution(releases(survey, honest + lies)), LIED_PERIODS)
            moved = np.abs(after.values / after.entries[:, None] - shares)
            worst[kind] = max(worst[kind], float((moved / bound).max()))
            tried += 1
    return {"5_cases": tried, **{f"5_{kind}_shift_over_bound": shift for kind, shift in worst.items()}}
