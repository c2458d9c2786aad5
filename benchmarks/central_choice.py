"""Measures 11 to 13 of the central releases: streams that react, the choice of the mechanism, and a yearly panel."""

from fractions import Fraction
from importlib.resources import files
from itertools import pairwise, product
from math import exp, inf, log, sqrt
from typing import Any

import numpy as np
from changeling_central import (
    Asked,
    Blocks,
    Law,
    LinearQuery,
    NodeNoise,
    PeriodChange,
    Shape,
    all_offers,
    answer_query,
    compared,
    counting,
    drawn_ahead,
    histogram_query,
)
from changeling_central.ahead import estimated_changes
from changeling_central.testing import SeededNoise
from changeling_protocol import AtMost, Calendar
from changeling_statistics import read_csv

ONE, NONE, HALF, SMALL, RUNS, SEED = Fraction(1), Fraction(0), Fraction(1, 2), Fraction(1, 10**6), 2000, 12
BUDGETS: dict[str, tuple[Fraction, Fraction | None]] = {
    "pure": (NONE, None),
    "delta": (SMALL, None),
    "rho": (NONE, HALF),
}
FARTHEST = 9
"""Units of noise that are followed where streams react, at scales below 1."""
YEAR, YEARS = 365 * 86_400, 6


def measure() -> dict[str, float]:
    """Ratios, and root mean squared errors in people."""
    return {**reacting(), **choice(), **panel()}


def reacting() -> dict[str, float]:
    """What everything that may be published of three periods tells of an entry, over e^epsilon, where the entry and all
    others decide by what was published; noise is followed to 9 units, which is right to a thousandth."""
    epsilon, largest = Fraction(3), -inf
    for share in (-1.0, 0.0, 1.0):
        shape = Shape(Blocks(3, (1, 3)), ((share, 0.0, 0.0),))
        mechanism = drawn_ahead(counting(["a"], ["a"], "a"), Calendar(0, 1, 3), AtMost(2), epsilon, shape)
        scales = np.concatenate(shape.scales(mechanism.rate))[:, None]
        z = np.indices((2 * FARTHEST + 1,) * len(scales)).reshape(len(scales), -1) - FARTHEST
        law = np.exp(-np.abs(z) / scales)
        law /= np.exp(-np.abs(np.arange(-FARTHEST, FARTHEST + 1)) / scales).sum(1, keepdims=True)
        measured = [z[a:b] for a, b in pairwise(np.cumsum((0, *shape.blocks.counts)))]
        noise = estimated_changes(shape.blocks, shape.weights(mechanism.rate), 0, measured).cumsum(0)
        for comes_at, goes_at, others_at in product((-1, 0, 1), repeat=3):
            worlds = [_world(noise, law.prod(0), there, (comes_at, goes_at, others_at)) for there in (0, 1)]
            for o, chance in worlds[0].items():
                if min(chance, worlds[1].get(o, 0.0)) > 1e-4:
                    largest = max(largest, abs(log(chance / worlds[1][o])) - float(epsilon))
    return {"11_reacting_largest_ratio_over_e_epsilon": exp(largest)}


def _world(noise: Any, chances: Any, there: int, at: tuple[int, int, int]) -> dict[int, float]:
    """The chance of each thing that may be published; at: what the entry comes, it goes and others come below."""
    level, present, gone = (np.zeros(len(chances), np.int64) for _ in range(3))
    seen = published = level
    for period in range(3):
        comes, goes = there * (1 - present) * (1 - gone) * (published >= at[0]), present * (published < at[1])
        present, gone = present + comes - goes, gone + goes
        level = level + comes - goes + (published < at[2])
        published = level + noise[period]
        seen = seen * 1000 + published
    found, which = np.unique(seen, return_inverse=True)
    return dict(zip(found.tolist(), np.bincount(which, chances).tolist(), strict=True))


def choice() -> dict[str, float]:
    """`best`'s predicted error over the least of all that is offered, and over what it errs by, over a grid."""
    queries = {"count": counting(["a"], ["a"], "a"), "histogram": histogram_query(["a", "b"], ["a", "b"])}
    over_least, ratios = 0.0, []
    for (name, query), T, k, epsilon, budget in product(
        queries.items(), (8, 31, 168), (1, 2, 4), (HALF, Fraction(2)), BUDGETS
    ):
        delta, rho = BUDGETS[budget]
        asked = Asked(query, Calendar(0, 3600, T), AtMost(k), epsilon, delta, rho=rho)
        chosen = compared(asked)[0]
        over_least = max(over_least, chosen.error / min(chosen.error, *_errors(asked)))
        if name == "count" and T < 100:
            ratios.append(chosen.error / _measured(chosen.made, T))
    return {
        "12_best_over_least_offered": over_least,
        "12_predicted_over_measured_least": min(ratios),
        "12_predicted_over_measured_largest": max(ratios),
    }


def _errors(asked: Asked) -> list[float]:
    """Of every mechanism that is offered for what is asked and states its variance before it sees data."""
    found = []
    for offer in all_offers():
        if offer.name == "best":
            continue
        try:
            made = offer.make(asked)
        except ValueError:
            continue
        variances = [made.variance(step) for step in range(1, asked.calendar.periods + 1)]
        if made.shows == "" and all(variance is not None for variance in variances):
            found.append(sqrt(np.mean([variance or 0.0 for variance in variances])))
    return found or [inf]


def _measured(made: Any, periods: int) -> float:
    """Root mean squared error of many runs at once, a column each."""
    table = ((0,) * RUNS, (1, *(0,) * (RUNS - 1)))
    wide = LinearQuery(tuple(map(str, range(RUNS))), table, (1,), (1,), fixed=True)
    mechanism = type(made.mechanism)(
        **{name: wide if name == "query" else getattr(made.mechanism, name) for name in made.mechanism.__slots__}
    )
    state, noise, squares = mechanism.start(), SeededNoise(SEED), []
    for _ in range(periods):
        state, level = mechanism.step(state, np.zeros(RUNS, np.int64), noise)
        squares.append(float(np.mean(level.values**2)))
    return sqrt(np.mean(squares))


def panel() -> dict[str, float]:
    """What 712 young people do at the end of each of six years, every answer, no bound on changes, at epsilon 1 and at
    rho 1/2: measured; and predicted, over Laplace or Gaussian noise on every level by itself."""
    log_ = read_csv(files("changeling_simulations") / "data" / "school_to_work.csv")  # type: ignore[arg-type]
    query = answer_query("each answer", log_.answers, log_.answers)
    start = int(log_.time.min()) // 1_000_000 - 1
    calendar = Calendar(start, YEAR, YEARS)
    changes = [PeriodChange(log_, part, query).net for part in log_.mutations().by_period(start, YEAR, YEARS)]
    truth, figures = np.array(changes).cumsum(0), {}
    for name, direct in (("pure", sqrt(NodeNoise(Law.LAPLACE, YEARS).variance)), ("rho", sqrt(YEARS))):
        delta, rho = BUDGETS[name]
        chosen = compared(Asked(query, calendar, AtMost(YEARS), ONE, delta, rho=rho))[0]
        mechanism: Any = chosen.made.mechanism  # type: ignore[attr-defined]
        squares, noise = [], SeededNoise(SEED)
        for _ in range(RUNS // 4):
            state = mechanism.start()
            for change, true in zip(changes, truth, strict=True):
                state, level = mechanism.step(state, change, noise)
                squares.append(float(np.mean((level.values - true) ** 2)))
        figures[f"13_panel_rmse_{name}"] = sqrt(np.mean(squares))
        figures[f"13_panel_{name}_over_direct_levels"] = chosen.error / direct
    return figures
