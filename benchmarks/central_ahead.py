"""Measures 6, 9 and 10 of the central releases: the mean squared error of levels, and of flights by hour.

Predicted from noise alone, which is exact. Beside it: the best of dpcrpy by the errors that it states, and what no
factorization A = B C can go below. For k = 1 that is (‖A‖_* / T)² / 2ρ, ‖·‖_* the sum of singular values; for more
mutations ‖A M^(1/2)‖_*² / T·2ρ, with M the second moment of any law over what an entry may do.
"""

import contextlib
import io
import warnings
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from changeling_central import (
    LinearQuery,
    Mechanism,
    MechanismChoice,
    PeriodChange,
    answer_query,
    compared,
    counting,
    drawn_ahead,
    square_root_concentrated,
)
from changeling_central.testing import SeededNoise
from changeling_protocol import AtMost, AtMostWithin, Calendar, Constraint
from scipy.spatial.distance import pdist

from .central_flights import HOURS, START, flights

T, ONE, SMALL, SEED, RUNS = 720, Fraction(1), Fraction(1, 10**6), 6, 200
CALENDAR = Calendar(0, 3600, T)
COUNT = counting(["a"], ["a"], "a")


def measure() -> dict[str, float | None]:
    """Mean squared errors in counts squared, root mean squared errors of flights in planes."""
    figures: dict[str, float | None] = {}
    for k in (1, 2):
        tree = drawn_ahead(COUNT, CALENDAR, AtMost(k), ONE)
        root = square_root_concentrated(COUNT, CALENDAR, AtMost(k), ONE)
        figures[f"6_mse_pure_k{k}"], figures[f"6_mse_rho_k{k}"] = mean_variance(tree, T), mean_variance(root, T)
        figures[f"6_lower_bound_rho_k{k}"] = lower_bound(k)
    figures |= {f"6_mse_dpcrpy_best_{name}": dpcrpy_best(name) for name in ("pure", "rho")}
    return figures | come_and_gone() | by_hour()


def come_and_gone() -> dict[str, float]:
    """Of counts of entries that come and go, at epsilon 1; and what one of them loses, over every two periods, over
    what is stated."""
    figures = {}
    for periods in (12, 31, 52, 168, 365, 720):
        tree = drawn_ahead(COUNT, Calendar(0, 3600, periods), AtMost(2), ONE)
        at = np.arange(periods)
        held = [
            (at // width == block) / scale
            for width, scales in zip(tree.widths, tree.shape.scales(tree.rate), strict=True)
            for block, scale in enumerate(scales)
        ]
        apart = pdist(np.array(held).T, "cityblock")
        figures[f"9_mse_k2_t{periods}"] = mean_variance(tree, periods)
        figures[f"9_loss_over_stated_k2_t{periods}"] = max(float(apart.max()), float(np.sum(held, 0).max()))
    return figures


def mean_variance(mechanism: Mechanism[Any, Any, Any], periods: int) -> float:
    return float(np.mean([mechanism.variance(step) for step in range(1, periods + 1)]))


def lower_bound(k: int) -> float:
    """At ρ = 1. For k = 2 the law is of an entry that comes and goes at any two times at least T/3 apart; a search over
    all laws of two times finds hardly more (6.24 for 6.21)."""
    A = np.tril(np.ones((T, T)))
    if k == 1:
        return float(np.linalg.norm(A, "nuc") / T) ** 2 / 2
    period = np.arange(T)
    apart = (np.subtract.outer(period, period) >= T // 3).astype(np.float64)
    pairs = apart / apart.sum()
    M = np.diag(pairs.sum(0) + pairs.sum(1)) - pairs - pairs.T
    law, directions = np.linalg.eigh(M)
    root = directions * np.sqrt(np.maximum(law, 0))
    return float(np.linalg.norm(A @ root, "nuc")) ** 2 / T / 2


def dpcrpy_best(name: str) -> float | None:
    """The least mean of the errors that dpcrpy's mechanisms state over T periods, k = 1; None without dpcrpy."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import dpcrpy  # type: ignore[import-not-found, import-untyped, unused-ignore]
            from dpcrpy.framework.noiMech import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
                GaussNoiMech,
                LapNoiMech,
            )
    except ImportError:
        return None
    powers = T.bit_length()
    kinds = (dpcrpy.BinMech, dpcrpy.ABCRG, dpcrpy.BCRG, dpcrpy.FDA, dpcrpy.Honaker)
    makers: list[Callable[[Any], Any]] = [partial(kind, powers) for kind in kinds]
    makers += [partial(dpcrpy.TwoLevel, 27), lambda noise: dpcrpy.AuBCRComp(T, noiMech=noise)]
    if name == "rho":  # at a pure epsilon its k-ary trees stop with an error
        makers.append(lambda noise: dpcrpy.KTCRComp(T, 2, noiMech=noise))
    found = []
    for make in makers:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            noise: Any = LapNoiMech(1.0) if name == "pure" else GaussNoiMech(sigma0=1 / sqrt(2))
            mechanism = make(noise)
            found.append(float(np.mean([mechanism.dpRelease(0.0)[1] for _ in range(T)])))
    return min(found)


def by_hour() -> dict[str, float]:
    """Flights in the air by airline: predicted, and measured on the changelog with the mechanism that is chosen."""
    log = flights()
    query = answer_query("each answer", log.answers, log.answers, fixed=True)
    calendar = Calendar(START, 3600, HOURS)
    changes = [PeriodChange(log, part, query).net for part in log.mutations().by_period(START, 3600, HOURS)]
    truth = np.array(changes).cumsum(0)
    width = query.width * RUNS
    rows = ((0,) * width, (1, *(0,) * (width - 1)))
    wide = LinearQuery(tuple(map(str, range(width))), rows, (1,), (1,), fixed=True)  # all runs at once
    asked: dict[str, tuple[Constraint, Fraction]] = {
        "pure": (AtMost(2), Fraction(0)),
        "delta": (AtMost(2), SMALL),
        "delta_within_12h": (AtMostWithin(2, 12 * 3600), SMALL),
    }
    figures = {}
    for name, (constraint, delta) in asked.items():
        chosen = compared(MechanismChoice().asked(query, calendar, constraint, ONE, delta))[0]
        mechanism: Any = replace(chosen.made.mechanism, query=wide)  # type: ignore[attr-defined]
        state, noise, squares = mechanism.start(), SeededNoise(SEED), []
        for net, true in zip(changes, truth, strict=True):
            state, level = mechanism.step(state, np.tile(net, RUNS), noise)
            squares.append(float(np.mean((level.values - np.tile(true, RUNS)) ** 2)))
        figures[f"6_flights_rmse_{name}"] = chosen.error
        figures[f"6_flights_rmse_{name}_measured"] = sqrt(np.mean(squares))
    rho = compared(MechanismChoice().asked(query, calendar, AtMost(2), ONE, Fraction(0), None, Fraction(1, 2)))[0]
    figures["10_flights_rmse_rho_half"] = rho.error
    return figures
