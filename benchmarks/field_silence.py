"""Measure 3 of the field: silence that depends on the answer, and the bound that assumes nothing of the silent.

Who holds the last answer is silent at half of the closings, the others at a twentieth. Two thousand surveys with either
plan; a run counts as covered if the bound holds the truth for every answer at every time that is looked at.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
from changeling_simulations import Field, sample_field
from changeling_statistics import Floats, Histogram, intervals, series
from threadpoolctl import threadpool_limits

from .field_scenarios import ANSWERS, PERIODS, TIMES, Scenario, scenarios

SURVEYS, BATCHES, SEED = 2_000, 4, 3
RELUCTANT = Field(reluctance=(0.05, *(0.05,) * (ANSWERS - 1), 0.5))


def measure() -> dict[str, float]:
    """By plan: the share of runs that the bound covers, of figures that the interval covers, and how wide both are,
    in points, mean over times and answers."""
    listed = [
        replace(scenario, field=RELUCTANT, name=scenario.name.removeprefix("silent_"))
        for scenario in scenarios()
        if scenario.name.startswith("silent_")
    ]
    numbers = [(number, batch) for number in range(len(listed)) for batch in range(BATCHES)]
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        batches = list(workers.map(partial(_batch, listed), numbers))
    figures: dict[str, float] = {}
    for number, scenario in enumerate(listed):
        mine = [batch for (at, _), batch in zip(numbers, batches, strict=True) if at == number]
        bounds, stated, truth = (np.concatenate([batch[part] for batch in mine]) for part in range(3))
        figures |= {
            f"3_bound_covers_{scenario.name}": float(_inside(truth, bounds).all((1, 2)).mean()),
            f"3_bound_width_{scenario.name}": 100 * float((bounds[..., 1] - bounds[..., 0]).mean()),
            f"3_interval_covers_{scenario.name}": float(_inside(truth, stated).mean()),
            f"3_interval_width_{scenario.name}": 100 * float((stated[..., 1] - stated[..., 0]).mean()),
        }
    return figures


def _inside(truth: Floats, ends: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return (ends[..., 0] <= truth) & (truth <= ends[..., 1])


def _batch(listed: list[Scenario], numbers: tuple[int, int]) -> tuple[Floats, Floats, Floats]:
    """Bounds and intervals, shape (surveys, times, z, 2), and the truth, (surveys, times, z), as shares of those that
    are heard of by then."""
    scenario, size = listed[numbers[0]], SURVEYS // BATCHES
    bounds, stated = np.empty((2, size, len(TIMES), ANSWERS, 2))
    truth = np.empty((size, len(TIMES), ANSWERS))
    generator = np.random.default_rng([SEED, *numbers])
    with threadpool_limits(1):
        for row in range(size):
            drawn = sample_field(scenario.population, scenario.survey, scenario.field, generator)
            published = series(scenario.survey, drawn.tallies, PERIODS)
            for at, time in enumerate(TIMES):
                histogram, known = published[time - 1], drawn.known[time]
                if not isinstance(histogram, Histogram):
                    raise ArithmeticError(f"period {time} of {scenario.name} is not estimable")
                bounds[row, at] = histogram.basis.bounds() / known.sum()
                stated[row, at] = intervals(histogram.estimate, 0.95) / known.sum()
                truth[row, at] = known[1:] / known.sum()
    return bounds, stated, truth
