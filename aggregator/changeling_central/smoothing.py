"""What a release tells when a belief about the truth is brought along: less noise, some bias, and intervals with both.

The published levels y are the truth x and noise n, whose covariance K is known by what stands at an output's head.
The truth is taken for a Gaussian process: a level that nobody knows, a drift, seasons (a value for every hour of the
day or day of the week, fixed or slowly changing), and what moves by itself in every period:

    x ~ N(0, S),  S = Σ_c v_c S_c,        x̃ = S (S + K)⁻¹ y,        E (x̃ - x)² = S - S (S + K)⁻¹ S

The variances v_c are those that make y most likely, with a broad belief of how much each is. E (x̃ - x)² is noise and
squared bias together, mean over all truths of that kind; it is raised by what the v_c may be off. It is
post-processing: it reads no data and costs nothing. Source: Rasmussen, Williams 2006, chapters 2 and 5; Harvey 1989
(drifts and seasons).
"""

import json
from base64 import b64decode
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import numpy as np
from changeling_statistics import Floats
from threadpoolctl import threadpool_limits

from .files import Output, PublishedRow, published_row, read_about, read_rows, replaced
from .levels import variances_of
from .noise import Law
from .offers import Made
from .optimised import covariance_of
from .queries import ShownNumber
from .shape import Blocks, Shape, laplace_variance
from .square_root import level_coefficients
from .statement import NOISE

MOST_SMOOTHED = 2000
"""Periods: matrices over all of them are taken."""
SEASONS = (86_400, 7 * 86_400, 365.2425 * 86_400)
"""In seconds: of the day, of the week and of the year."""
BELIEF = 4.0
"""A standard deviation of the belief about ln v_c."""
MOST_STEPS, NEAR = 40, 0.02
"""Of Newton's search for the ln v_c, by average information (Gilmour, Thompson, Cullis 1995); and where it ends."""
MEMORY = 4.0
"""Of a season that changes, in seasons."""
SMOOTHED = ", smoothed"
PROMISE = "low, high hold noise and bias, if levels drift and have seasons as is believed"


def noise_covariance(made: Made, periods: int) -> Floats:
    """The covariance of the noise of a column's levels, shape (periods, periods), in the query's units squared.

    made: what the release's mechanism was made with. ValueError for one whose levels' covariance is not known.
    """
    match made:
        case {"kind": "fresh", "law": str(law), "bits": int(bits), "own": str(own), "common": str(common)}:
            of_own, of_common = variances_of(Law(law), bits, float.fromhex(own), float.fromhex(common))
            return np.eye(periods) * of_own + of_common
        case {"kind": "square-root", "band": int(band), "bits": int(bits), "scale": str(drawn_at)}:
            beta = level_coefficients(periods, band) * float.fromhex(drawn_at) * 2.0**-bits
            at = np.subtract.outer(np.arange(periods), np.arange(periods))
            drawn = np.where(at >= 0, beta[at], 0.0)
            covariance: Floats = drawn @ drawn.T
            return covariance
        case {"kind": "ahead", "widths": list(widths), "curves": str(curves), "rate": str(rate)}:
            numbers = [float.fromhex(number) for number in curves.split()]
            shape = Shape(Blocks(periods, tuple(widths)), tuple(zip(*[iter(numbers)] * 3, strict=True)))
            information, at = np.zeros((periods, periods)), np.arange(periods)
            for width, scales in zip(widths, shape.scales(float.fromhex(rate)), strict=True):
                measured = 1 / laplace_variance(scales)[at // width]
                information += np.where(at[:, None] // width == at // width, measured, 0.0)
            levels: Floats = np.linalg.inv(information).cumsum(0).cumsum(1)
            return levels
        case {"kind": "optimised", "law": str(law), "matrix": str(matrix), "shift": int(shift), "scale": str(drawn_at)}:
            return covariance_of(b64decode(matrix), periods, Law(law), shift, float.fromhex(drawn_at))
    raise ValueError(
        f"the levels of {made.get('kind', 'this mechanism')} have no covariance that is known: smooth those of ahead, "
        "square-root or fresh"
    )


def smoothed(published: Path) -> list[PublishedRow]:
    """The best estimates of all levels of an output, from all of them, with intervals that hold noise and bias.

    published: a .csv or .jsonl file that a release wrote. Returns a row for each period and column; columns whose
    standard errors are not those of levels, as nodes and means, are left out.
    ValueError for a file without the recipe of its noise, for more than MOST_SMOOTHED periods and where nothing can be
    smoothed.
    """
    found = []
    for name, (rows, covariance) in level_columns(published).items():
        times = np.array([datetime.fromisoformat(row.time).timestamp() for row in rows])
        values, variances = best_estimates(np.array([row.estimate for row in rows]), covariance, times)
        found += [
            published_row(row.period, row.time, ShownNumber(f"{name}{SMOOTHED}", values[n], np.sqrt(variances[n])))
            for n, row in enumerate(rows)
        ]
    return sorted(found, key=lambda row: row.period)


def level_columns(published: Path) -> dict[str, tuple[list[PublishedRow], Floats]]:
    """The columns of an output that are levels: their rows, and the covariance of their noise, in entries squared.

    The noise of two columns is independent, but where levels are drawn afresh by a law of vectors, whose common part
    this does not tell. Columns whose standard errors are not those of levels, as nodes and means, are left out.
    ValueError for a file without the recipe of its noise, for more than MOST_SMOOTHED periods, and without a level.
    """
    recipe = read_about(published).get(NOISE) if published.exists() else None
    if recipe is None:
        raise ValueError(f"{published} does not say what its noise was made with: take the output of a release")
    columns: dict[str, list[PublishedRow]] = defaultdict(list)
    for row in read_rows(published):
        columns[row.name].append(row)
    said = json.loads(recipe)
    longest = max(map(len, columns.values()), default=0)
    if longest > MOST_SMOOTHED:
        raise ValueError(f"{published} holds {longest} periods, and a covariance is of at most {MOST_SMOOTHED}")
    K = noise_covariance(said["made"], int(said["periods"]))
    found = {}
    for name, rows in columns.items():
        at = np.array([row.period for row in rows]) - 1
        errors = np.array([np.nan if row.standard_error is None else row.standard_error for row in rows])
        unit = errors**2 / np.diag(K)[at]
        if np.ptp(unit) <= 1e-3 * unit.mean() and unit[0] > 0:
            found[name] = rows, K[np.ix_(at, at)] * unit[0]
    if not found:
        raise ValueError(f"{published} holds no levels with known errors")
    return found


def best_estimates(y: Floats, K: Floats, times: Floats) -> tuple[Floats, Floats]:
    """The smoothed levels, and the variance of what they err by, noise and bias; shape (periods,) each.

    y: the published levels. K: the covariance of their noise. times: the ends of the periods, Unix seconds.
    """
    import scipy.linalg  # noqa: F401  # late, as it loads slowly; now, as only what is loaded is limited

    with threadpool_limits(1):  # threads that wait for each other take ten times as long where others work
        return _best_estimates(y, K, times)


def _best_estimates(y: Floats, K: Floats, times: Floats) -> tuple[Floats, Floats]:
    from scipy.linalg import cho_factor, cho_solve

    parts = _parts(times)
    signal = max(float(y.var() - np.trace(K) / len(y)), 0.05 * float(np.trace(K)) / len(y))
    start = np.log([signal / float(np.diag(part).max()) for part in parts])
    anywhere = 1e3 * (float(np.mean(y**2)) + signal)  # the level, of which nothing is believed
    logs, step, unlikely = start, np.zeros(len(parts)), np.inf
    for _ in range(MOST_STEPS):
        v = np.exp(logs + step)
        total = K + anywhere + np.tensordot(v, parts, 1)
        factor = cho_factor(total, lower=True)
        weighed = cho_solve(factor, y)
        away = (logs + step - start) / BELIEF
        value = float(np.log(np.diag(factor[0])).sum() + 0.5 * (y @ weighed + away @ away))
        if value > unlikely + 1e-9:  # too far: back
            step = step / 4
            continue
        logs, unlikely = logs + step, value
        moved = v[:, None] * (parts @ weighed)
        inverse = cho_solve(factor, np.eye(len(y)))
        spread = np.tensordot(parts, inverse, 2) * v
        slope = 0.5 * (spread - moved @ weighed) + away / BELIEF
        curvature = 0.5 * moved @ inverse @ moved.T + np.eye(len(parts)) / BELIEF**2
        step = np.clip(-np.linalg.solve(curvature, slope), -2, 2)
        if np.abs(step).max() < NEAR:
            break
    by_variance = K @ inverse @ moved.T  # how the estimates move with each ln v
    unsure = np.sum(by_variance * np.linalg.solve(curvature, by_variance.T).T, 1)
    return y - K @ weighed, np.maximum(np.diag(K - K @ inverse @ K), 0.0) + unsure


def _parts(times: Floats) -> Floats:
    """The S_c: what moves by itself, a drift, and each season that comes round twice, fixed and slowly changing."""
    count = len(times)
    period = float(np.median(np.diff(times))) if count > 1 else 1.0
    step = np.arange(1.0, count + 1)
    parts = [np.eye(count), np.minimum(step[:, None], step)]
    for season in SEASONS:
        phases = round(season / period)
        if 2 <= phases <= count // 2:
            phase = np.rint(times / season * phases) % phases
            same = (phase[:, None] == phase).astype(np.float64)
            apart = np.abs(np.subtract.outer(times, times)) / season
            parts += [same, same * np.exp(-apart / MEMORY)]
    return np.array(parts)


def save_smoothed(published: Path, output: Path) -> int:
    """Write the smoothed levels of an output to another file; returns how many rows. Errors as of `smoothed`."""
    rows = smoothed(published)
    head = Output(output, (), 0.0, (*read_about(published).items(), ("smoothed", PROMISE)))
    replaced(output, head.header() + b"".join(head.written(row) for row in rows))
    return len(rows)
