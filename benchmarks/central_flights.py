"""Measure 2 of the central releases: planes in the air by airline, every hour, each at the same total epsilon.

26,398 flights, each inserted at take-off and deleted at landing (k = 2, one answer for life). A column an airline, in
parallel, as no flight is of two. Error: over all hours, airlines and runs. The table and a picture go to build/bench.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from changeling_central import (
    LinearQuery,
    MechanismChoice,
    NodeRelease,
    Noise,
    PeriodChange,
    ReleaseMechanism,
    answer_query,
)
from changeling_central.testing import SeededNoise
from changeling_papers import (
    BestEstimates,
    Hdcr,
    PanPrivateCounter,
    best_hierarchy,
    cover_sum,
    hierarchy,
    retrospective,
)
from changeling_protocol import AtMost, Calendar
from changeling_statistics import Changelog, Counts, Floats, read_csv

DATA = Path(__file__).parents[1] / "data" / "flights_in_air_2013_01.csv.gz"
OUTPUT = Path("build/bench")
START, HOURS = 1_356_998_400, 744
"""January 2013, UTC; what lands in February is left out."""
EPSILONS, TWICE, SEED = (Fraction(1), Fraction(10)), AtMost(2), 2
RUNS = {"counter": 3, "pan-private": 3, "infinite": 3, "partitioning": 3, "dynamic": 1}
"""How often each is run; PPCum is no mechanism of `changeling release`, and has a counter for each airline here."""
HIERARCHY_RUNS = 6

Series = Floats
"""Estimates at every hour, shape (hours, airlines)."""


def measure() -> dict[str, float]:
    """Root mean squared errors by mechanism, in planes, and mean squared errors over that of the hierarchy's graph.

    At total epsilon 1 and 10. `always_zero` is the error of publishing zeros: whoever is above it tells nothing.
    """
    log = flights()
    query = answer_query("each answer", log.answers, log.answers, fixed=True)
    parts = [PeriodChange(log, part, query) for part in log.mutations().by_period(START, 3600, HOURS)]
    truth = np.array([part.gained - part.lost for part in parts]).cumsum(0).astype(np.float64)
    found: dict[str, float] = {"2_updates_over_mean_planes_aloft": len(log) / float(truth.sum(1).mean())}
    for epsilon in EPSILONS:
        errors, shown = errors_at(epsilon, query, parts, truth)
        found |= {f"{name}_eps_{epsilon}": figure for name, figure in figures(errors).items()}
        draw(truth, shown, list(query.names), epsilon)
    return found


def errors_at(
    epsilon: Fraction, query: LinearQuery, parts: list[PeriodChange], truth: Series
) -> tuple[dict[str, float], dict[str, Series]]:
    """Mean squared errors by mechanism, and the series of the last run of each."""
    calendar = Calendar(START, 3600, HOURS)
    changes = np.array([part.gained - part.lost for part in parts])
    errors: dict[str, float] = {}
    shown: dict[str, Series] = {}
    best = best_hierarchy(query, calendar, TWICE, epsilon)
    for name, (branching, layers) in {"binary": (2, 10), "best": (best.branching, best.layers)}.items():
        mechanism = hierarchy(query, calendar, TWICE, epsilon, shape=(branching, layers))
        sums: dict[str, list[float]] = {"cover": [], "graph": [], "retrospective": []}
        for run in range(HIERARCHY_RUNS):
            for kind, series in hierarchical(mechanism, changes, SeededNoise(SEED + run)):
                sums[kind].append(float(((series - truth) ** 2).mean()))
                shown[f"hdcr {kind} {name}"] = series
        errors |= {f"hdcr_{name}_{kind}": float(np.mean(found)) for kind, found in sums.items()}
    for kind, runs in RUNS.items():
        found = []
        for noise in map(SeededNoise, range(SEED, SEED + runs)):
            if kind == "pan-private":
                shown[kind] = pan_private(epsilon / TWICE.k, changes, noise)
            else:
                shown[kind] = counted(MechanismChoice(kind).made(query, calendar, TWICE, epsilon), parts, noise)
            found.append(float(((shown[kind] - truth) ** 2).mean()))
        errors[kind.replace("-", "_")] = float(np.mean(found))
    return errors | {"always_zero": float((truth**2).mean())}, shown


def figures(errors: dict[str, float]) -> dict[str, float]:
    found = {f"2_rmse_{name}": float(np.sqrt(error)) for name, error in errors.items()}
    graph = errors["hdcr_best_graph"]
    found |= {f"2_mse_over_graph_{name}": error / graph for name, error in errors.items() if "hdcr" not in name}
    for name in ("binary", "best"):
        cover = errors[f"hdcr_{name}_cover"]
        found[f"2_cover_over_graph_{name}"] = cover / errors[f"hdcr_{name}_graph"]
        found[f"2_cover_over_retrospective_{name}"] = cover / errors[f"hdcr_{name}_retrospective"]
    return found | {"2_cover_binary_over_graph_best": errors["hdcr_binary_cover"] / graph}


def flights() -> Changelog:
    return read_csv(DATA)


def hierarchical(mechanism: Hdcr, changes: Any, noise: Noise) -> Iterator[tuple[str, Series]]:
    """The same nodes three ways: cover sums, best estimates online, best estimates from all nodes."""
    estimates = BestEstimates(len(changes), mechanism.widths, changes.shape[1])
    state, frontier = mechanism.start(), estimates.start()
    nodes: list[NodeRelease] = []
    graph = []
    for change in changes:
        state, closed = mechanism.step(state, change, noise)
        nodes.extend(closed)
        frontier, level = estimates.step(frontier, closed)
        graph.append(level.values)
    yield "graph", np.array(graph)
    yield "cover", np.array([cover_sum(nodes, 0, t, mechanism.widths).values for t in range(1, len(changes) + 1)])
    yield "retrospective", retrospective(nodes, len(changes))[0][1:]


def counted(mechanism: ReleaseMechanism[object], parts: list[PeriodChange], noise: Noise) -> Series:
    """The levels that the mechanism releases at the end of every hour."""
    state, levels = mechanism.start(), []
    for part in parts:
        state, level = mechanism.step(state, part, noise)
        levels.append(level.values)
    return np.array(levels)


def pan_private(epsilon: Fraction, changes: Counts, noise: Noise) -> Series:
    """The sums that PPCum tells at the end of every hour, of each airline at this epsilon for one change."""
    counter, columns = PanPrivateCounter(len(changes), epsilon), []
    for column in changes.T.tolist():
        memory, told = counter.start(), []
        for change in column:
            memory, output = counter.step(memory, change, noise)
            told.append(float(output))
        columns.append(told)
    return np.array(columns).T


def draw(truth: Series, shown: dict[str, Series], names: list[str], epsilon: Fraction) -> None:
    """All airlines together and the largest one, over the first ten days."""
    from matplotlib.figure import Figure

    largest, hours = int(truth.sum(0).argmax()), np.arange(1, 241)
    panels: list[tuple[str, Callable[[Series], Floats]]] = [
        ("all airlines", lambda series: np.asarray(series.sum(1), np.float64)),
        (names[largest], lambda series: np.asarray(series[:, largest], np.float64)),
    ]
    colours = ("#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#009E73")
    drawn = ("hdcr graph best", "counter", "dynamic", "partitioning", "pan-private", "infinite")
    figure = Figure(figsize=(10, 6), layout="constrained")
    for axes, (title, of) in zip(figure.subplots(2, 1, sharex=True), panels, strict=True):
        for name, colour in zip(drawn, colours, strict=True):
            axes.plot(hours, of(shown[name])[:240], color=colour, lw=1, label=name)
        axes.plot(hours, of(truth)[:240], color="#222222", lw=1.5, label="truth")
        reach = float(of(truth).max())
        axes.set_ylim(-1.5 * reach, 2.5 * reach)
        axes.set_title(f"{title}, ε = {epsilon}", fontsize=10, loc="left")
        axes.grid(alpha=0.25, lw=0.5)
    axes.set_xlabel("hours since 2013-01-01 00:00 UTC")
    axes.legend(frameon=False, fontsize=8, ncols=7)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUTPUT / f"central_flights_eps_{epsilon}.png", dpi=130)
