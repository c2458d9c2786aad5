"""What is made of the rows of a release at no cost: a picture, changes over windows, smoothed levels.

Changes over windows are read off the levels, with their exact errors. Smoothing brings a belief about the truth along:
less noise, some bias, and intervals with both. The published levels y are the truth x and noise n, whose covariance K
is known by what stands at an output's head. The truth is taken for a Gaussian process: a level that nobody knows, a
drift, seasons (a value for every hour of the day or day of the week, fixed or slowly changing), and what moves by
itself in every period:

    x ~ N(0, S),  S = Σ_c v_c S_c,        x̃ = S (S + K)⁻¹ y,        E (x̃ - x)² = S - S (S + K)⁻¹ S

The variances v_c are those that make y most likely, with a broad belief of how much each is. E (x̃ - x)² is noise and
squared bias together, mean over all truths of that kind; it is raised by what the v_c may be off. Source: Rasmussen,
Williams 2006, chapters 2 and 5; Harvey 1989 (drifts and seasons). matplotlib is imported only for a picture.
"""

import json
from collections import defaultdict
from datetime import datetime
from math import sqrt
from pathlib import Path

import numpy as np
from changeling_protocol import Calendar
from changeling_statistics import Floats
from threadpoolctl import threadpool_limits

from .files import Output, PublishedRow, over_window, published_row, read_about, read_rows, replaced
from .mechanism import MOST_COVARIANCE, ReleaseMechanism
from .offers import noise_covariance
from .queries import ShownNumber
from .statement import NOISE

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222")
"""Of pictures, told apart by the colour-blind too (Okabe, Ito 2008)."""
MOST_LINES = 12


def save_release_plot(published: Path, path: Path, title: str) -> None:
    """Draw what a release file holds. The largest names are shown where there are many.

    ValueError where there is nothing to draw, or, naming the extra, no matplotlib.
    """
    try:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("a plot needs matplotlib: pip install 'changeling[central]'") from error
    lines: dict[str, list[PublishedRow]] = defaultdict(list)
    for row in read_rows(published):
        lines[row.name].append(row)
    if not lines:
        raise ValueError(f"{published} holds no releases to draw")
    largest = sorted(lines, key=lambda name: -max(row.estimate for row in lines[name]))[:MOST_LINES]
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    banded = False
    for number, name in enumerate(largest):
        colour = COLOURS[number % len(COLOURS)]
        rows = lines[name]
        times = date2num([datetime.fromisoformat(row.time).replace(tzinfo=None) for row in rows])  # type: ignore[no-untyped-call]
        if known := [(time, row.low, row.high) for time, row in zip(times, rows, strict=True) if row.low is not None]:
            banded = True
            at, low, high = zip(*known, strict=True)
            axes.fill_between(at, low, high, color=colour, alpha=0.15, lw=0)
        values, line = [row.estimate for row in rows], "-" if number < len(COLOURS) else "--"
        axes.plot(times, values, color=colour, lw=1.2, ls=line, label=name)
    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.grid(alpha=0.25, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylabel("estimate, and its 95% interval" if banded else "estimate")
    axes.set_title(title, fontsize=11, loc="left")
    axes.legend(frameon=False, fontsize=8, ncols=2)
    figure.savefig(path, dpi=150)


def check_windows(name: str, mechanism: ReleaseMechanism[object], levels: bool, window: int) -> None:
    """ValueError, which says what to take, where the published levels do not tell how far a window's change is off.

    name: of the mechanism. levels: it publishes the query's columns, and no mean. window: in periods.
    """
    if not levels:
        raise ValueError("windows are changes of counts and sums: take a sum in place of the mean")
    if mechanism.window_variance(window, window) is None:
        raise ValueError(
            f"--afterwards: the levels of {name} do not tell how far a window's change is off; take --mechanism "
            "ahead, fresh, optimised or square-root, or leave --afterwards out: then the windows are released directly"
        )


def save_windows(
    published: Path, calendar: Calendar, window: int, head: Output, levels: ReleaseMechanism[object]
) -> None:
    """Write the changes over windows that end with each period, as the levels tell them, with their exact errors.

    published: an output. window: in periods. head: the file that is written anew, and what it begins with. levels: the
    mechanism of the levels.
    """
    at = {(row.period, row.name): row.estimate for row in read_rows(published)}
    rows: dict[int, list[ShownNumber]] = defaultdict(list)
    for (period, name), value in at.items():
        variance = levels.window_variance(period, window) if period >= window else None
        if variance is not None:
            change = value - at.get((period - window, name), 0.0)
            rows[period].append(
                ShownNumber(f"{name}{over_window(window)}", change, sqrt(variance) * head.unit, head.unit)
            )
    head.path.write_bytes(head.header() + b"".join(head.shown(n, calendar.time(n), rows[n]) for n in sorted(rows)))


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


def smoothed(published: Path) -> list[PublishedRow]:
    """The best estimates of all levels of an output, from all of them, with intervals that hold noise and bias.

    published: a .csv or .jsonl file that a release wrote. Returns a row for each period and column; columns whose
    standard errors are not those of levels, as of means, are left out. ValueError for a file without the recipe of its
    noise, for more than MOST_COVARIANCE periods and where nothing can be smoothed.
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
    ValueError for a file without the recipe of its noise, for more than MOST_COVARIANCE periods, and without a level.
    """
    recipe = read_about(published).get(NOISE) if published.exists() else None
    if recipe is None:
        raise ValueError(f"{published} does not say what its noise was made with: take the output of a release")
    columns: dict[str, list[PublishedRow]] = defaultdict(list)
    for row in read_rows(published):
        columns[row.name].append(row)
    said = json.loads(recipe)
    longest = max(map(len, columns.values()), default=0)
    if longest > MOST_COVARIANCE:
        raise ValueError(f"{published} holds {longest} periods, and a covariance is of at most {MOST_COVARIANCE}")
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
