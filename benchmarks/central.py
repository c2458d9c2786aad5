"""Measures of a curator's releases: 6, 9, 10, 12, 14 and 15 of `make bench-central`.

Mean squared errors are predicted from noise alone, which is exact. Beside them: the best of dpcrpy by the errors that
it states, and what no factorization A = B C can go below. For k = 1 that is (‖A‖_* / T)² / 2ρ, ‖·‖_* the sum of
singular values; for more mutations ‖A M^(1/2)‖_*² / T·2ρ, M the second moment of any law over what an entry may do.
"""

import contextlib
import io
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from math import inf, sqrt
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
import polars as pl
from changeling_central import (
    Asked,
    LinearQuery,
    OpenDPNoise,
    PeriodChange,
    PooledNoise,
    all_offers,
    answer_query,
    compared,
    counting,
    drawn_ahead,
    histogram_query,
    release,
    square_root,
    square_root_concentrated,
)
from changeling_central.afterwards import best_estimates
from changeling_central.testing import SeededNoise
from changeling_protocol import AtMost, AtMostWithin, Calendar, Constraint, format_instant
from changeling_statistics import Changelog, Counts, Floats, read_csv

ONE, NONE, HALF, SMALL, TWICE = Fraction(1), Fraction(0), Fraction(1, 2), Fraction(1, 10**6), AtMost(2)
BUDGETS: dict[str, tuple[Fraction, Fraction | None]] = {
    "pure": (NONE, None),
    "delta": (SMALL, None),
    "rho": (NONE, HALF),
}
COUNT = counting(["a"], ["a"], "a")
DATA = Path(__file__).parents[1] / "data" / "flights_in_air_2013_01.csv.gz"
START, HOURS = 1_356_998_400, 744
"""January 2013, UTC; what lands in February is left out."""
SEED, RUNS = 12, 2000


def flights() -> tuple[Changelog, LinearQuery, list[Counts]]:
    """26,398 flights, a column for each airline: the changelog, its query, and the true change of every hour."""
    log_ = read_csv(DATA)
    query = answer_query("each answer", log_.answers, log_.answers, fixed=True)
    parts = log_.mutations().by_period(START, 3600, HOURS)
    return log_, query, [PeriodChange(log_, part, query).net for part in parts]


def wide_query(width: int) -> LinearQuery:
    """A query of so many columns, each a run of its own."""
    return LinearQuery(tuple(map(str, range(width))), ((0,) * width, (1, *(0,) * (width - 1))), (1,), (1,), fixed=True)


def measured_error(made: Any, changes: list[Counts], runs: int) -> float:
    """The root mean squared error of a release's levels, over so many runs at once."""
    mechanism = replace(made, query=wide_query(runs * len(changes[0])))
    state, noise, squares, true = mechanism.start(), SeededNoise(SEED), [], 0 * changes[0]
    for change in changes:
        true = true + change
        state, level = mechanism.step(state, np.tile(change, runs), noise)
        squares.append(float(np.mean((level.values - np.tile(true, runs)) ** 2)))
    return sqrt(np.mean(squares))


# 6, 9 and 10: errors beside what is possible


def errors() -> dict[str, float | None]:
    """Mean squared errors of a count over 720 periods; root mean squared errors of flights by airline, in planes."""
    T, figures = 720, dict[str, float | None]()
    for k in (1, 2):
        of_count = COUNT, Calendar(0, 3600, T), AtMost(k), ONE
        figures[f"6_mse_pure_k{k}"] = mean_variance(drawn_ahead(*of_count))
        figures[f"6_mse_rho_k{k}"] = mean_variance(square_root_concentrated(*of_count))
        figures[f"6_lower_bound_rho_k{k}"] = lower_bound(k, T)
    figures |= {f"6_mse_dpcrpy_best_{name}": dpcrpy_best(name, T) for name in ("pure", "rho")}
    return figures | come_and_gone() | by_hour()


def come_and_gone() -> dict[str, float]:
    """Mean squared errors of counts of entries that come and go, at epsilon 1."""
    return {
        f"9_mse_k2_t{periods}": mean_variance(drawn_ahead(COUNT, Calendar(0, 3600, periods), TWICE, ONE))
        for periods in (12, 31, 52, 168, 365, 720)
    }


def mean_variance(mechanism: Any) -> float:
    return float(np.mean([mechanism.variance(step) for step in range(1, mechanism.calendar.periods + 1)]))


def lower_bound(k: int, T: int) -> float:
    """At ρ = 1. For k = 2 the law is of an entry that comes and goes at any two times at least T/3 apart; a search over
    all laws of two times finds hardly more (6.24 for 6.21)."""
    A = np.tril(np.ones((T, T)))
    if k == 1:
        return float(np.linalg.norm(A, "nuc") / T) ** 2 / 2
    apart = (np.subtract.outer(np.arange(T), np.arange(T)) >= T // 3).astype(np.float64)
    pairs = apart / apart.sum()
    law, directions = np.linalg.eigh(np.diag(pairs.sum(0) + pairs.sum(1)) - pairs - pairs.T)
    return float(np.linalg.norm(A @ (directions * np.sqrt(np.maximum(law, 0))), "nuc")) ** 2 / T / 2


def dpcrpy_best(name: str, T: int) -> float | None:
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
    kinds = (dpcrpy.BinMech, dpcrpy.ABCRG, dpcrpy.BCRG, dpcrpy.FDA, dpcrpy.Honaker)
    makers: list[Callable[[Any], Any]] = [partial(kind, T.bit_length()) for kind in kinds]
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
    _, query, changes = flights()
    wished: dict[str, tuple[Constraint, Fraction, Fraction | None]] = {
        "pure": (TWICE, NONE, None),
        "delta": (TWICE, SMALL, None),
        "delta_within_12h": (AtMostWithin(2, 12 * 3600), SMALL, None),
        "rho_half": (TWICE, NONE, HALF),
    }
    figures = {}
    for name, (constraint, delta, rho) in wished.items():
        chosen = compared(Asked(query, Calendar(START, 3600, HOURS), constraint, ONE, delta, rho=rho))[0]
        figures[f"10_flights_rmse_{name}"] = chosen.error
        figures[f"10_flights_rmse_{name}_measured"] = measured_error(chosen.made, changes, 200)
    return figures


# 12: the choice


def choice() -> dict[str, float]:
    """`best`'s predicted error over the least of all that is offered, and over what it errs by, over a grid."""
    queries = {"count": COUNT, "histogram": histogram_query(["a", "b"], ["a", "b"])}
    over_least, ratios = 0.0, []
    for (name, query), T, k, epsilon, budget in product(
        queries.items(), (3, 8, 31, 168), (1, 2, 4), (HALF, Fraction(2)), BUDGETS
    ):
        delta, rho = BUDGETS[budget]
        pure = epsilon if rho is None else ONE  # which rho 1/2 is worth
        asked = Asked(query, Calendar(0, 3600, T), AtMost(k), pure, delta, rho=rho)
        chosen = compared(asked)[0]
        over_least = max(over_least, chosen.error / min(chosen.error, *_errors(asked)))
        if name == "count" and T < 100:
            ratios.append(chosen.error / measured_error(chosen.made, [np.zeros(1, np.int64)] * T, RUNS))
    return {
        "12_best_over_least_offered": over_least,
        "12_predicted_over_measured_least": min(ratios),
        "12_predicted_over_measured_largest": max(ratios),
    }


def _errors(asked: Asked) -> list[float]:
    """Those of every mechanism that is offered for what is asked and states its variance before it sees data."""
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


# 14: smoothing


def smoothing() -> dict[str, float]:
    """Root mean squared errors of flights in planes: of what is published, of what is smoothed, and of the means of
    every hour of the day; and the share of intervals that hold the truth."""
    _, query, changes = flights()
    random, day = np.random.default_rng(14), 24
    times: Floats = np.asarray(START + 3600.0 * (1 + np.arange(HOURS)), np.float64)
    figures: dict[str, float] = {}
    for name in ("pure", "rho"):
        delta, rho = BUDGETS[name]
        made: Any = compared(Asked(query, Calendar(START, 3600, HOURS), TWICE, ONE, delta, rho=rho))[0].made
        K = made.covariance
        root = np.linalg.cholesky(K)
        errors_: dict[str, list[Floats]] = {"published": [], "smoothed": [], "hour_means": []}
        held = []
        for true in np.cumsum(changes, 0).T.astype(np.float64):
            y = np.asarray(true + root @ random.normal(size=HOURS), np.float64)
            values, variances = best_estimates(y, K, times)
            errors_["published"].append(y - true)
            errors_["smoothed"].append(values - true)
            errors_["hour_means"].append(np.tile(y.reshape(-1, day).mean(0), HOURS // day) - true)
            held.append(np.mean(np.abs(values - true) <= 2.2 * np.sqrt(variances)))
        rmse = {kind: float(np.sqrt(np.mean(np.square(each)))) for kind, each in errors_.items()}
        figures |= {f"14_{name}_rmse_{kind}": error for kind, error in rmse.items()}
        figures[f"14_{name}_smoothed_over_published"] = rmse["smoothed"] / rmse["published"]
        figures[f"14_{name}_coverage"] = float(np.mean(held))
    return figures


# 15: a million mutations, a month of minutes


ENTRIES, PERIODS, MINUTES = 500_000, 1_000, 44_640


def scale() -> dict[str, float]:
    """Seconds and gigabytes of a process that releases a million mutations from a frame, libraries included;
    milliseconds a period of the square root over 44,640 periods, exact noise included."""
    figures: dict[str, float] = {}
    for name, delta in (("pure", "0"), ("delta", "1e-6")):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            seconds, kilobytes = pool.submit(_million, delta).result()
        figures |= {f"15_million_{name}_s": seconds, f"15_million_{name}_gb": kilobytes / 2**20}
    root, nothing = square_root(COUNT, Calendar(0, 60, MINUTES), TWICE, ONE, SMALL), np.zeros(1, int)
    state, noise = root.start(), PooledNoise(OpenDPNoise())
    began = time.perf_counter()
    for _ in range(MINUTES):
        state, _ = root.step(state, nothing, noise)
    figures["15_square_root_44640_ms"] = 1000 * (time.perf_counter() - began) / MINUTES
    return figures


def _million(delta: str) -> tuple[float, int]:
    """Half a million entries, each inserted once and deleted once, over a thousand periods."""
    random = np.random.default_rng(4)
    inserted = random.integers(0, PERIODS * 3600 * 9 // 10, ENTRIES)
    columns = {
        "entry": np.tile(np.arange(ENTRIES), 2),
        "time": np.concatenate([inserted, inserted + random.integers(1, PERIODS * 360, ENTRIES)]),
        "answer": np.repeat(["bus", ""], ENTRIES),
    }
    frame = pl.DataFrame(columns).sort("time")
    start, until = format_instant(0), format_instant(3600 * PERIODS)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        given: dict[str, Any] = {
            "every": "1h",
            "epsilon": 1,
            "delta": delta,
            "at_most": 2,
            "output": f"{folder}/out.csv",
        }
        release(frame, "any answer", **given, start=start, until=until)
        return time.perf_counter() - began, getrusage(RUSAGE_SELF).ru_maxrss
