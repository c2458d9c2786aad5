"""What is made of the rows of a release once they are published: a picture, and better estimates. It costs nothing.

The levels of a release use the nodes that had closed by then. The best estimates from all nodes, by weighted least
squares on the release graph, use those that closed later as well, so they change as nodes are added, and the file is
written anew each time. Of mechanisms that publish levels alone, the changes over windows are read off these, with their
exact errors. matplotlib is imported only when a picture is asked for.
"""

import re
from collections import defaultdict
from datetime import datetime
from math import sqrt
from pathlib import Path

import numpy as np
from changeling_protocol import Calendar, Node

from .files import Output, PublishedRow, over_window, read_rows
from .mechanism import NodeRelease
from .nodes import retrospective
from .offers import ReleaseMechanism
from .queries import ShownNumber

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
    levels = [name for name in lines if name.rpartition(", change over")[0] not in lines]  # nodes are no levels
    largest = sorted(levels, key=lambda name: -max(row.estimate for row in lines[name]))[:MOST_LINES]
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


_NODE = re.compile(r"(?P<name>.*), change over (?P<periods>\d+) periods?", re.S)


def check_windows(name: str, mechanism: ReleaseMechanism[object], levels: bool, window: int) -> None:
    """ValueError, which says what to take, where the published levels do not tell how far a window's change is off.

    name: of the mechanism. levels: it publishes the query's columns, and no mean. window: in periods.
    """
    if not levels:
        raise ValueError("windows are changes of counts and sums: take a sum in place of the mean")
    if mechanism.window_variance(window, window) is None:
        raise ValueError(
            f"--afterwards: the levels of {name} do not tell how far a window's change is off; take --nodes with hdcr "
            "or dcr, --mechanism ahead, fresh or square-root, or leave --afterwards out: then the windows are released "
            "directly"
        )


def save_afterwards(
    published: Path, calendar: Calendar, window: int | None, head: Output, levels: ReleaseMechanism[object] | None
) -> None:
    """Write the estimates from all nodes of an output, a row for each period and column, and the windows' changes.

    published: an output. window: in periods, None for none. head: the file that is written anew, and what it begins
    with. levels: the mechanism, where windows are to be read off its levels; None for an output with nodes.
    ValueError where there are no nodes.
    """
    rows = _from_nodes(published, window) if levels is None else _from_levels(published, window or 0, head, levels)
    head.path.write_bytes(head.header() + b"".join(head.shown(n, calendar.time(n), rows[n]) for n in sorted(rows)))


def _from_levels(
    published: Path, window: int, head: Output, levels: ReleaseMechanism[object]
) -> dict[int, list[ShownNumber]]:
    """The changes over windows that end with each period, as the levels tell them, with their exact errors."""
    at = {(row.period, row.name): row.estimate for row in read_rows(published)}
    rows: dict[int, list[ShownNumber]] = defaultdict(list)
    for (period, name), value in at.items():
        variance = levels.window_variance(period, window) if period >= window else None
        if variance is not None:
            change = value - at.get((period - window, name), 0.0)
            rows[period].append(
                ShownNumber(f"{name}{over_window(window)}", change, sqrt(variance) * head.unit, head.unit)
            )
    return rows


def _from_nodes(published: Path, window: int | None) -> dict[int, list[ShownNumber]]:
    """The best estimates of all levels and windows, from all nodes that were published."""
    nodes: dict[str, list[NodeRelease]] = defaultdict(list)
    for row in read_rows(published):
        if (said := _NODE.fullmatch(row.name)) and row.standard_error is not None:
            node = Node(row.period - int(said["periods"]), row.period)
            nodes[said["name"]].append(NodeRelease(node, np.array([row.estimate]), row.standard_error**2))
    if not nodes:
        raise ValueError(f"{published} holds no nodes: release with --nodes")
    rows: dict[int, list[ShownNumber]] = defaultdict(list)
    for name, each in nodes.items():
        last = max(release.node.end for release in each)
        for width in (None,) if window is None or window > last else (None, window):
            values, variances = retrospective(each, last, width)
            label = f"{name}, afterwards" + ("" if width is None else over_window(width))
            for period in range(width or 1, last + 1):
                rows[period].append(ShownNumber(label, values[period, 0], sqrt(variances[period])))
    return rows
