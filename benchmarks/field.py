"""Measures 3 and 7 of the field: silence that depends on answers, and freezing.

What goes wrong at random is measure 2, in `coverage.field`.
"""

from dataclasses import replace
from decimal import Decimal

import numpy as np
from changeling_protocol import (
    AtMost,
    Survey,
)
from changeling_simulations import Field, Population, calendar_for, changelog_path, sample_field, simulate
from changeling_statistics import (
    Changelog,
    Floats,
    Histogram,
    SteadyChanges,
    Wish,
    intervals,
    ladder,
    pilot_of,
    read_csv,
    rung,
    series,
)

from .coverage import FIELD_ANSWERS, FIELD_PERIODS, Scenario, in_the_field, open_to_all, simulated

RELUCTANT = Field(reluctance=(0.05, *(0.05,) * (FIELD_ANSWERS - 1), 0.5))


def silence() -> dict[str, float]:
    """Measure 3: silence that depends on the answer, and the bound that assumes nothing of the silent.

    Who holds the last answer is silent at half of the closings, the others at a twentieth. Two thousand surveys with
    either plan; a run is covered if the bound holds the truth for every answer at every time that is looked at.
    By plan: the share of runs that the bound covers, of figures that the interval covers, and how wide both are,
    in points, mean over times and answers."""
    listed = [in_the_field(name, plan, RELUCTANT) for name, plan in open_to_all().items()]
    figures: dict[str, float] = {}
    for scenario, (bounds, stated, truth) in zip(listed, simulated(listed, _silent, 3), strict=True):
        figures |= {
            f"3_bound_covers_{scenario.name}": float(_inside(truth, bounds).all((1, 2)).mean()),
            f"3_bound_width_{scenario.name}": 100 * float((bounds[..., 1] - bounds[..., 0]).mean()),
            f"3_interval_covers_{scenario.name}": float(_inside(truth, stated).mean()),
            f"3_interval_width_{scenario.name}": 100 * float((stated[..., 1] - stated[..., 0]).mean()),
        }
    return figures


def _inside(truth: Floats, ends: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return (ends[..., 0] <= truth) & (truth <= ends[..., 1])


def _silent(scenario: Scenario, generator: np.random.Generator, surveys: int) -> tuple[Floats, Floats, Floats]:
    """Bounds and intervals, shape (surveys, times, z, 2), and the truth, (surveys, times, z), as shares of those that
    are heard of by then."""
    bounds, stated = np.empty((2, surveys, len(scenario.periods), FIELD_ANSWERS, 2))
    truth = np.empty((surveys, len(scenario.periods), FIELD_ANSWERS))
    for row in range(surveys):
        drawn = sample_field(scenario.population, scenario.survey, scenario.field, generator)
        published = series(scenario.survey, drawn.tallies, FIELD_PERIODS)
        for at, period in enumerate(scenario.periods):
            histogram, known = published[period - 1], drawn.known[period]
            if not isinstance(histogram, Histogram):
                raise ArithmeticError(f"period {period} of {scenario.name} is not estimable")
            bounds[row, at] = histogram.basis.figures.bounds[0] / known.sum()
            stated[row, at] = intervals(histogram.estimate, 0.95) / known.sum()
            truth[row, at] = known[1:] / known.sum()
    return bounds, stated, truth


FROZEN_SURVEYS, FROZEN_ENTRIES, FROZEN_DEVICES = 8, 2_000_000, 20_000
ALLOWED = range(3, 9)


def freezing() -> dict[str, float]:
    """Measure 7: freezing predicted, beside simulated surveys of other people, on the shipped changelog.

    Half of the young people are the pilot, the other half the population, asked every quarter at ε = 8 under the best
    plan. The simulated bias is that of the mean of surveys of two million entries. By the changes allowed: predicted
    over simulated bias, from the pilot, as bounded from the pilot's mean and spread alone, and from a pilot of the very
    people who are asked; and the error in points of surveys of 20,000 devices. Then the number of changes that the
    pilot makes best, the one that proved best, and what either comes to in error and in devices for one point.
    """
    changelog = read_csv(changelog_path("school-to-work"))
    calendar = calendar_for(changelog)
    pilot, others = (changelog.take(changelog.entry % 2 == half) for half in (0, 1))
    asked = {half: _renumbered(each) for half, each in (("pilot", pilot), ("others", others))}
    habits = pilot_of(asked["pilot"], calendar)
    same = pilot_of(asked["others"], calendar)
    made = np.bincount(asked["pilot"].entry) - 1.0
    steady = SteadyChanges(len(changelog.answers), calendar, float(made.mean()), float(made.std()))
    wish = Wish(len(changelog.answers), calendar, AtMost(1), Decimal(8), FROZEN_DEVICES)
    figures, totals, devices = dict[str, float](), dict[int, float](), dict[int, float]()
    for k in ALLOWED:
        of_k = rung(replace(wish, constraint=AtMost(k)), habits)
        survey = of_k.wish.survey(of_k.planned.plan, changelog.answers)
        population = Population.from_changelog(asked["others"], calendar, AtMost(k))
        bias = _simulated(population, survey, FROZEN_ENTRIES)[0]
        _, noise = _simulated(population, survey, FROZEN_DEVICES)
        totals[k] = float(np.hypot(bias, noise))
        room = 0.01**2 - bias**2
        devices[k] = FROZEN_DEVICES * noise**2 / room if room > 0 else np.inf
        figures |= {
            f"7_pilot_over_simulated_bias_k{k}": of_k.freezing.objective("mean") / bias,
            f"7_bound_over_simulated_bias_k{k}": steady.freezing(AtMost(k)).objective("mean") / bias,
            f"7_same_people_over_simulated_bias_k{k}": same.freezing(AtMost(k)).objective("mean") / bias,
            f"7_simulated_bias_points_k{k}": 100 * bias,
            f"7_predicted_over_simulated_total_k{k}": of_k.total / totals[k],
            f"7_total_points_k{k}": 100 * totals[k],
        }
    for name, known in (("pilot", habits), ("bound", steady)):
        chosen = min(ladder(wish, known), key=lambda each: each.total).wish.constraint
        k = min(chosen.k, max(ALLOWED)) if isinstance(chosen, AtMost) else max(ALLOWED)
        best = min(totals, key=lambda each: totals[each])
        figures |= {
            f"7_{name}_chosen_k": k,
            f"7_{name}_best_k": best,
            f"7_{name}_total_over_best": totals[k] / totals[best],
            f"7_{name}_devices_over_best": devices[k] / min(devices.values()),
        }
    return figures


def _renumbered(changelog: Changelog) -> Changelog:
    """The changelog without the entries that have no mutation in it."""
    there, entry = np.unique(changelog.entry, return_inverse=True)
    return replace(changelog, entry=entry, entries=tuple(changelog.entries[at] for at in there.tolist()))


def _simulated(population: Population, survey: Survey, entries: int) -> tuple[float, float]:
    """The bias of surveys of so many entries, and their standard error; root mean squares over times and answers."""
    generator = np.random.default_rng([7, entries])
    drawn = [simulate(population.resampled(entries, generator), survey, generator) for _ in range(FROZEN_SURVEYS)]
    errors = np.array([each.estimated_shares - each.true_shares for each in drawn])
    noise = errors.var(0, ddof=1).mean()
    return float(np.sqrt(max((errors.mean(0) ** 2).mean() - noise / FROZEN_SURVEYS, 0.0))), float(np.sqrt(noise))
