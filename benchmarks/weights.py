"""Measure 5 of the release plans: the solve of the release graph against the paper's cover sums."""

from collections.abc import Iterator

import numpy as np
from changeling_protocol import Node, cover
from changeling_statistics import Floats, Network
from changeling_statistics.estimation.network import online_rows

BRANCHING, LAYERS, PERIODS = 2, 9, 256
SEED = 5
RANDOM_HIERARCHIES = ((2, 9, 256), (3, 5, 243), (4, 4, 256), (7, 3, 100))
"""c, h and T of those whose planned variances are drawn at random, to look for a time where the solve is worse."""


def measure() -> dict[str, float]:
    """Cover variance over solve variance: mean over times where all variances are equal, and the least of all."""
    equal = hierarchy(BRANCHING, LAYERS, PERIODS, None)
    cover, online, retrospective = variances(equal)
    generator = np.random.default_rng(SEED)
    least = min(float((cover / online).min()), float((online / retrospective).min()))
    for c, h, T in RANDOM_HIERARCHIES:
        by_cover, by_prefix, by_all = variances(hierarchy(c, h, T, generator))
        least = min(least, float((by_cover / by_prefix).min()), float((by_prefix / by_all).min()))
    return {
        "5_cover_over_solve_online": float(cover.mean() / online.mean()),
        "5_cover_over_solve_retrospective": float(cover.mean() / retrospective.mean()),
        "5_least_ratio_at_any_time": least,
    }


def hierarchy(branching: int, layers: int, periods: int, generator: np.random.Generator | None) -> Network:
    """Cadences of c^i periods; variances 1, or log-uniform over two orders of magnitude."""
    spans = sorted(_spans([branching**i for i in range(layers)], periods), key=lambda span: (span[1], span[0]))
    start, end = np.array(spans, dtype=np.intp).T
    variance = np.ones(len(spans)) if generator is None else 10 ** generator.uniform(-1, 1, len(spans))
    return Network(periods, start, end, variance)


def variances(network: Network) -> tuple[Floats, Floats, Floats]:
    """Of the histograms at times 1 to T by cover sums, online and retrospectively, the edges' being the true ones."""
    times = range(1, network.periods + 1)
    cover = np.array([cover_row(network, time) ** 2 @ network.variance for time in times])
    solved = (row for _, row, _ in online_rows(network, network.periods))
    online = np.array([np.inf if row is None else row**2 @ network.variance for row in solved])
    rows = network.rows(network.unit_sources(times))
    return cover, online, rows**2 @ network.variance


def _spans(widths: list[int], periods: int) -> Iterator[tuple[int, int]]:
    for width in widths:
        for start in range(0, periods - width + 1, width):
            yield start, start + width


def cover_row(network: Network, period: int) -> Floats:
    """The paper's own estimator: 1 on the fewest edges that cover the periods up to one, else 0; shape (E,)."""
    spans = {(s, e): at for at, (s, e) in enumerate(zip(network.start.tolist(), network.end.tolist(), strict=True))}
    row = np.zeros(len(network.start))
    for node in cover(Node(0, period), {end - start for start, end in spans}):
        row[spans[node.start, node.end]] = 1.0
    return row
