"""Pictures of experiments, of plans' errors over time, and of a release graph as a network of resistors.

Imports matplotlib only when a plot is asked for, and draws without a display.
"""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from changeling_protocol import format_duration
from changeling_statistics import Comparison, Option, planned_variances

from .experiment import Experiment, epsilon_text
from .sweep import Row, varied

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TRUTH, FROZEN, ESTIMATE = "#222222", "#D55E00", "#0072B2"
"""Black, vermilion and blue of Okabe and Ito's palette, told apart by the colour-blind."""

PANELS_A_ROW = 3
MOST_MARKERS = 60


def save_plot(experiment: Experiment, path: Path) -> None:
    """Draws an experiment into a file: PNG, or what format the path's suffix names.

    Raises ValueError for a format there is not, OSError if the file cannot be written.

    >>> save_plot(experiment, Path("run.png"))  # doctest: +SKIP
    """
    draw_experiment(experiment).savefig(path, dpi=150)


def draw_experiment(experiment: Experiment) -> "Figure":
    """The picture of an experiment: percent of the entries over time, with 95% intervals as bands."""
    from matplotlib.figure import Figure

    answers = experiment.survey.answers
    across = 2 if len(answers) == 4 else min(PANELS_A_ROW, len(answers))
    down = ceil(len(answers) / across)
    figure = Figure(figsize=(3.6 * across, 1.0 + 2.2 * down), layout="constrained")
    panels = figure.subplots(down, across, sharex=True, squeeze=False).ravel()
    for answer, (name, panel) in enumerate(zip(answers, panels, strict=False)):
        _draw_answer(panel, experiment, answer)
        panel.set_title(name, fontsize=10, loc="left")
    for unused in panels[len(answers) :]:
        unused.set_visible(False)
    for last in panels[max(0, len(answers) - across) : len(answers)]:
        last.tick_params(labelbottom=True)
    figure.supylabel("% of entries", fontsize=9)
    epsilon = epsilon_text(experiment.survey.cost)
    title = f"{experiment.entries:,} entries, each loses at most ε = {epsilon} over the whole survey"
    figure.suptitle(title, fontsize=11)
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=len(lines), frameon=False, fontsize=9)
    return figure


def _draw_answer(panel: "Axes", experiment: Experiment, answer: int) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    times = np.array([time.replace(tzinfo=None) for time in experiment.times()], "datetime64[us]")  # knows no zones
    estimate = 100 * experiment.estimated_shares[:, answer]
    low, high = 100 * experiment.share_intervals[:, answer].T
    panel.fill_between(times, low, high, color=ESTIMATE, alpha=0.2, lw=0, label="95% interval")
    panel.plot(times, 100 * experiment.true_shares[:, answer], color=TRUTH, lw=1.5, label="truth")
    if experiment.rms_freezing > 0:
        frozen = 100 * experiment.frozen_shares[:, answer]
        panel.plot(times, frozen, color=FROZEN, lw=1.2, ls=(0, (4, 2)), label="truth after freezing")
    marker = "o" if len(times) <= MOST_MARKERS else None
    panel.plot(times, estimate, color=ESTIMATE, lw=1, marker=marker, ms=3, label="estimate")
    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.grid(alpha=0.25, lw=0.5)
    _bare(panel)


COLOURS = {"paper": "#999999", "flat": "#CC79A7", "sampled": "#E69F00", "panel": "#009E73", "optimal": "#0072B2"}
"""Okabe and Ito's palette, told apart by the colour-blind."""
STATES, CHANGES = "#009E73", "#0072B2"
MOST_SHOWN = 36
"""How many periods of the release graph are drawn."""
THINNEST, THICKEST = 0.3, 3.4
ARC = np.linspace(0, np.pi, 40)


def draw_comparison(comparison: Comparison, chosen: Option) -> "Figure":
    """Above, the standard errors of every plan over time; below, the release graph of the chosen one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7.6), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(1.15, 1))
    _draw_errors(above, comparison)
    _draw_graph(below, chosen)
    return figure


def _draw_errors(panel: "Axes", comparison: Comparison) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    wish = comparison.wish
    periods = np.arange(1, wish.periods + 1)
    for name, option in comparison.options.items():
        errors = np.where(np.isfinite(option.prediction.errors), 100 * option.prediction.errors, np.nan)
        best = option is comparison.planned.option
        marker = "o" if wish.periods <= 2 else None
        panel.plot(
            periods, errors, color=COLOURS[name], lw=2.4 if best else 1.3, zorder=3 if best else 2, marker=marker
        )
    _name_lines(panel, comparison)
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.set_xlim(0, wish.periods)
    panel.set_xlabel(f"periods of {format_duration(wish.calendar.period)}", fontsize=9)
    panel.set_ylabel("standard error of a fraction, points", fontsize=9)
    when = "retrospective" if wish.retrospective else "as each period closes"
    panel.set_title(
        f"ε = {wish.epsilon}, {wish.devices:,} devices, {wish.answers} answers, {when}", fontsize=11, loc="left"
    )
    panel.grid(axis="y", which="both", lw=0.3, color="#dddddd")
    _bare(panel)


def _name_lines(panel: "Axes", comparison: Comparison) -> None:
    """Each line is named at its right end; names that would overlap are pushed apart."""
    last = [
        (float(np.log10(100 * option.prediction.errors[-1])), name, option)
        for name, option in comparison.options.items()
        if np.isfinite(option.prediction.errors[-1])
    ]
    lines = [100 * option.prediction.errors for option in comparison.options.values()]
    finite = np.concatenate([errors[np.isfinite(errors)] for errors in lines])
    gap = 0.075 * float(np.log10(finite.max() / finite.min()) + 0.15)
    at = -np.inf
    for height, name, option in sorted(last, key=lambda each: each[0]):
        at = max(height, at + gap)
        panel.annotate(
            option.title,
            (1.01, 10**at),
            xycoords=("axes fraction", "data"),
            color=COLOURS[name],
            fontsize=9,
            va="center",
            weight="bold" if option is comparison.planned.option else "normal",
            annotation_clip=False,
        )


def _draw_graph(panel: "Axes", option: Option) -> None:
    """Times on a line, reports of changes as arcs over it, of states as stems to the ground.

    The wider an edge is drawn, the smaller its variance.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    periods = option.survey.calendar.periods
    shown = min(periods, MOST_SHOWN)
    edges, states = _conductances(option), _states(option)
    largest = max((conductance for (start, _), conductance in edges.items() if start < shown), default=1.0)
    arcs, stems, arc_widths, stem_widths = [], [], [], []
    drawn = [(span, conductance) for span, conductance in edges.items() if span[0] < shown and span[1] > 0]
    tallest = max((min(end, 2 * shown) - start for (start, end), _ in drawn if start), default=1)
    for (start, end), conductance in sorted(drawn, key=lambda edge: edge[0][0] - edge[0][1]):
        width = THINNEST + (THICKEST - THINNEST) * float(np.sqrt(conductance / largest))
        if start == 0 and (0, end) in states:
            if end <= shown:
                stems.append([(end, -0.02), (end, -0.42)])
                stem_widths.append(width)
            continue
        middle, radius = (start + end) / 2, (end - start) / 2
        height = 1.0 * np.sqrt((end - start) / tallest)
        arcs.append(np.column_stack([middle - radius * np.cos(ARC), height * np.sin(ARC)]))
        arc_widths.append(width)
    panel.add_collection(LineCollection(arcs, linewidths=arc_widths, colors=CHANGES, alpha=0.75, capstyle="round"))
    panel.add_collection(LineCollection(stems, linewidths=stem_widths, colors=STATES, alpha=0.85))
    panel.plot([0, shown], [0, 0], color="#222222", lw=0.8, zorder=3)
    panel.plot(range(shown + 1), np.zeros(shown + 1), "o", ms=2.6, color="#222222", zorder=4)
    if stems:
        panel.plot([0, shown], [-0.42, -0.42], color="#222222", lw=2.2)
        panel.text(0, -0.47, "ground: before the survey, when nobody has an answer", fontsize=8, va="top")
    panel.set_xlim(-0.6, shown + 0.6)
    panel.set_ylim(-0.62 if stems else -0.12, 1.1)
    panel.set_yticks([])
    part = f", the first {shown} of {periods} periods" if shown < periods else ""
    panel.set_title(f"Release graph: {option.title}{part}", fontsize=11, loc="left")
    panel.set_xlabel("times, the ends of periods; the wider an edge, the better it conducts", fontsize=9)
    keys = [(arcs, CHANGES, "change over a node"), (stems, STATES, "state at a time")]
    handles = [Line2D([], [], color=colour, lw=2.5, label=label) for lines, colour, label in keys if lines]
    panel.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    _bare(panel)
    panel.spines["left"].set_visible(False)


def _conductances(option: Option) -> dict[tuple[int, int], float]:
    """1/σ² of every edge of the release graph, σ² being its planned variance; parallel edges are added up."""
    survey, conductances = option.survey, dict[tuple[int, int], float]()
    for group in range(len(survey.plan.groups)):
        for number, track in survey.plan.numbered(group):
            planned = planned_variances(survey, number, np.array([node.end for node in track.nodes()], np.intp))
            for node, variance in zip(track.nodes(), planned.tolist(), strict=True):
                start = node.start if track.reports_changes else 0
                conductances[start, node.end] = conductances.get((start, node.end), 0.0) + 1 / variance
    return conductances


def _states(option: Option) -> set[tuple[int, int]]:
    tracks = option.plan.tracks
    return {(0, node.end) for track in tracks if not track.reports_changes for node in track.nodes()}


def _bare(panel: "Axes") -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)


SWEPT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222")
"""The palette of Okabe and Ito, and black."""


def draw_sweep(rows: Sequence[Row]) -> "Figure":
    """The errors of a sweep over the number that has most values, a line for each combination of the others.

    Dots are what surveys came to, lines what was predicted. Of more than seven combinations the first seven are drawn.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    panel = figure.subplots()
    names, done = varied(rows), [row for row in rows if row["error"] is not None]
    numbers = [name for name in names if name != "world"]
    across = max(numbers, key=lambda name: len({row[name] for row in rows}), default="epsilon")
    others = [name for name in names if name != across]
    lines: dict[str, list[Row]] = {}
    for row in done:
        lines.setdefault(", ".join(f"{name} {row[name]}" for name in others), []).append(row)
    for (label, drawn), colour in zip(lines.items(), SWEPT, strict=False):
        drawn.sort(key=lambda row: float(row[across]))
        at = [float(row[across]) for row in drawn]
        panel.plot(at, [100 * row["predicted"] for row in drawn], color=colour, lw=1.3, label=label or "predicted")
        panel.plot(at, [100 * row["error"] for row in drawn], color=colour, marker="o", ms=4, lw=0)
    panel.set(xlabel=across, ylabel="error, points", yscale="log" if done else "linear")
    if done and min(float(row[across]) for row in done) > 0:
        panel.set_xscale("log")
    panel.grid(alpha=0.25, lw=0.5)
    _bare(panel)
    panel.legend(frameon=False, fontsize=8)
    return figure
