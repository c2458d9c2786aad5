"""Measure 14 of the central releases: what smoothing is worth on flights by hour and airline."""

from typing import Any

import numpy as np
from changeling_central import Asked, PeriodChange, answer_query, compared
from changeling_central.afterwards import best_estimates
from changeling_central.release_mechanisms import noise_covariance
from changeling_protocol import AtMost, Calendar
from changeling_statistics import Floats

from .central_choice import BUDGETS, ONE
from .central_flights import HOURS, START, flights

SEED, REACH, DAY = 14, 2.2, 24


def measure() -> dict[str, float]:
    """Root mean squared errors in planes, over hours and airlines: of what is published, of what is smoothed, of the
    means of every hour of the day; and the share of intervals that hold the truth."""
    log = flights()
    query = answer_query("each answer", log.answers, log.answers, fixed=True)
    calendar, random = Calendar(START, 3600, HOURS), np.random.default_rng(SEED)
    truth = np.array([PeriodChange(log, part, query).net for part in log.mutations().by_period(START, 3600, HOURS)])
    times: Floats = np.asarray(START + 3600.0 * (1 + np.arange(HOURS)), np.float64)
    figures: dict[str, float] = {}
    for name in ("pure", "rho"):
        delta, rho = BUDGETS[name]
        made: Any = compared(Asked(query, calendar, AtMost(2), ONE, delta, rho=rho))[0].made
        K = noise_covariance(made.made_with(), HOURS)
        root = np.linalg.cholesky(K)
        errors: dict[str, list[Floats]] = {"published": [], "smoothed": [], "hour_means": []}
        held = []
        for true in truth.cumsum(0).T.astype(np.float64):
            y = np.asarray(true + root @ random.normal(size=HOURS), np.float64)
            values, variances = best_estimates(y, K, times)
            means = y.reshape(-1, DAY).mean(0)
            errors["published"].append(y - true)
            errors["smoothed"].append(values - true)
            errors["hour_means"].append(np.tile(means, HOURS // DAY) - true)
            held.append(np.mean(np.abs(values - true) <= REACH * np.sqrt(variances)))
        for kind, each in errors.items():
            figures[f"14_{name}_rmse_{kind}"] = float(np.sqrt(np.mean(np.square(each))))
        figures[f"14_{name}_smoothed_over_published"] = (
            figures[f"14_{name}_rmse_smoothed"] / figures[f"14_{name}_rmse_published"]
        )
        figures[f"14_{name}_coverage"] = float(np.mean(held))
    return figures
