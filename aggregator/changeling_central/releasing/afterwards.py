"""What is known when more is over: the best estimates from all nodes that were published, and changes over windows.

Made of the output alone, by weighted least squares on its release graph: post-processing, which costs nothing. The
levels of a release use the nodes that had closed by then; these use those that closed later as well, so they change as
nodes are added, and the file is written anew each time. Of the square root, whose noise is one for all levels, the
changes over windows are read off the levels, with their exact errors.
"""

import re
from collections import defaultdict
from math import sqrt
from pathlib import Path

import numpy as np
from changeling_protocol import Calendar, Node

from ..changes.hdcr import NodeRelease
from ..changes.mean_query import Shown
from ..changes.release_graph import network_of
from .method import ReleaseMechanism
from .output import Output, over_window, read_rows, written_rows

_NODE = re.compile(r"(?P<name>.*), change over (?P<periods>\d+) periods?", re.S)
AT_ONCE = 128
"""Times whose weights are held in memory together."""


def check_windows(name: str, mechanism: ReleaseMechanism[object], levels: bool, window: int) -> None:
    """ValueError, which says what to take, where the published levels do not tell how far a window's change is off.

    name: of the mechanism. levels: it publishes the query's columns, and no mean. window: in periods.
    """
    if not levels:
        raise ValueError("windows are changes of counts and sums: take a sum in place of the mean")
    if mechanism.window_variance(window, window) is None:
        raise ValueError(
            f"--afterwards: the levels of {name} do not tell how far a window's change is off; take --nodes with hdcr "
            "or dcr, --mechanism square-root with a --delta or at --rho, or leave --afterwards out: then the windows "
            "are released directly"
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
    suffix = head.path.suffix
    head.path.write_bytes(
        head.header() + b"".join(written_rows(suffix, n, calendar.time(n), rows[n]) for n in sorted(rows))
    )


def _from_levels(
    published: Path, window: int, head: Output, levels: ReleaseMechanism[object]
) -> dict[int, list[Shown]]:
    """The changes over windows that end with each period, as the levels tell them, with their exact errors."""
    at = {(row.period, row.name): row.estimate for row in read_rows(published)}
    rows: dict[int, list[Shown]] = defaultdict(list)
    for (period, name), value in at.items():
        variance = levels.window_variance(period, window) if period >= window else None
        if variance is not None:
            change = value - at.get((period - window, name), 0.0)
            rows[period].append(Shown(f"{name}{over_window(window)}", change, sqrt(variance) * head.unit))
    return rows


def _from_nodes(published: Path, window: int | None) -> dict[int, list[Shown]]:
    nodes: dict[str, list[NodeRelease]] = defaultdict(list)
    for row in read_rows(published):
        if (said := _NODE.fullmatch(row.name)) and row.standard_error is not None:
            node = Node(row.period - int(said["periods"]), row.period)
            nodes[said["name"]].append(NodeRelease(node, np.array([row.estimate]), row.standard_error**2))
    if not nodes:
        raise ValueError(f"{published} holds no nodes: release with --nodes")
    rows: dict[int, list[Shown]] = defaultdict(list)
    for name, each in nodes.items():
        for period, shown in _estimates(name, each, window):
            rows[period].append(shown)
    return rows


def _estimates(name: str, nodes: list[NodeRelease], window: int | None) -> list[tuple[int, Shown]]:
    last = max(release.node.end for release in nodes)
    network = network_of(nodes, last)
    changes = np.array([release.values for release in nodes], np.float64)
    levels = network.fit(changes)[:, 0]
    found = []
    for first in range(1, last + 1, AT_ONCE):
        times = list(range(first, min(first + AT_ONCE, last + 1)))
        to_zero = network.unit_sources(times)
        errors = np.sqrt(network.rows(to_zero) ** 2 @ network.variance)
        found += [(t, Shown(f"{name}, afterwards", levels[t], error)) for t, error in zip(times, errors, strict=True)]
        if window is None or times[-1] < window:
            continue
        ends = [t for t in times if t >= window]
        sources = np.zeros((last + 1, len(ends)))
        for column, t in enumerate(ends):
            sources[t, column], sources[t - window, column] = 1.0, -1.0
        errors = np.sqrt(network.rows(sources) ** 2 @ network.variance)
        label = f"{name}, afterwards{over_window(window)}"
        found += [
            (t, Shown(label, levels[t] - levels[t - window], error)) for t, error in zip(ends, errors, strict=True)
        ]
    return found
