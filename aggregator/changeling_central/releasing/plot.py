"""A picture of a release: the published levels, a line each, with bands of two standard errors where these are known.

Imports matplotlib only when a picture is asked for.
"""

from collections import defaultdict
from datetime import datetime
from pathlib import Path

from ..colours import COLOURS
from .output import read_rows

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
    lines: dict[str, list[tuple[datetime, float, float | None]]] = defaultdict(list)
    for _, time, name, estimate, error_ in read_rows(published):
        lines[name].append((datetime.fromisoformat(time).replace(tzinfo=None), estimate, error_))
    if not lines:
        raise ValueError(f"{published} holds no releases to draw")
    levels = [name for name in lines if name.rpartition(", change over")[0] not in lines]  # nodes are no levels
    largest = sorted(levels, key=lambda name: -max(value for _, value, _ in lines[name]))[:MOST_LINES]
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    banded = False
    for number, name in enumerate(largest):
        colour = COLOURS[number % len(COLOURS)]
        known = [(time, value, 2 * error) for time, value, error in lines[name] if error is not None]
        if known:
            banded = True
            at = date2num([time for time, _, _ in known])  # type: ignore[no-untyped-call]
            low, high = [value - error for _, value, error in known], [value + error for _, value, error in known]
            axes.fill_between(at, low, high, color=colour, alpha=0.15, lw=0)
        times, values, _ = zip(*lines[name], strict=True)
        axes.plot(times, values, color=colour, lw=1.2, ls="-" if number < len(COLOURS) else "--", label=name)
    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.grid(alpha=0.25, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylabel("estimate ± 2 standard errors" if banded else "estimate")
    axes.set_title(title, fontsize=11, loc="left")
    axes.legend(frameon=False, fontsize=8, ncols=2)
    figure.savefig(path, dpi=150)
