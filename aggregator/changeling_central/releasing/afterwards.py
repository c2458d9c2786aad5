"""What is known when more is over: the best estimates from all nodes that were published, and changes over windows.

Made of the output alone, by weighted least squares on its release graph: post-processing, which costs nothing. The
levels of a release use the nodes that had closed by then; these use those that closed later as well, so they change as
nodes are added, and the file is written anew each time.
"""

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
from changeling_protocol import Calendar, Node

from ..changes.hdcr import NodeRelease
from ..changes.mean_query import Shown
from ..changes.release_graph import network_of
from .output import Output, read_rows, written_rows

_NODE = re.compile(r"(?P<name>.*), change over (?P<periods>\d+) periods?", re.S)
AT_ONCE = 128
"""Times whose weights are held in memory together."""


def save_afterwards(published: Path, path: Path, calendar: Calendar, window: int | None, head: Output) -> None:
    """Write the estimates from all nodes of an output, a row for each period and column, and the windows' changes.

    published: an output with nodes. path: a .csv or .jsonl file, written anew. window: in periods, None for none.
    head: what the file begins with. ValueError where there are no nodes.
    """
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
    path.write_bytes(
        head.header() + b"".join(written_rows(path.suffix, n, calendar.time(n), rows[n]) for n in sorted(rows))
    )


def _estimates(name: str, nodes: list[NodeRelease], window: int | None) -> list[tuple[int, Shown]]:
    last = max(release.node.end for release in nodes)
    network = network_of(nodes, last)
    changes = np.array([release.values for release in nodes], np.float64)
    levels = network.fit(changes)[:, 0]
    found = []
    for first in range(1, last + 1, AT_ONCE):
        times = list(range(first, min(first + AT_ONCE, last + 1)))
        to_zero = network.unit_sources(times)
        errors = np.sqrt(network.spread(to_zero, network.variance[:, None])[:, 0])
        found += [(t, Shown(f"{name}, afterwards", levels[t], error)) for t, error in zip(times, errors, strict=True)]
        if window is None or times[-1] < window:
            continue
        ends = [t for t in times if t >= window]
        sources = np.zeros((last + 1, len(ends)))
        for column, t in enumerate(ends):
            sources[t, column], sources[t - window, column] = 1.0, -1.0
        errors = np.sqrt(network.spread(sources, network.variance[:, None])[:, 0])
        label = f"{name}, afterwards, change over the window of {window} periods"
        found += [
            (t, Shown(label, levels[t] - levels[t - window], error)) for t, error in zip(ends, errors, strict=True)
        ]
    return found
