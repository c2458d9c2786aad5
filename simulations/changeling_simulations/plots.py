"""A picture of an experiment: the truth and the estimates with their bands, one panel an answer.

Imports matplotlib only when a plot is asked for, and draws without a display.
"""

from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .experiment import Experiment, epsilon_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRUTH, FROZEN, ESTIMATE = "#222222", "#D55E00", "#0072B2"
"""Black, vermilion and blue of Okabe and Ito's palette, told apart by the colour-blind."""

PANELS_A_ROW = 3
MOST_MARKERS = 60


def save_plot(experiment: Experiment, path: Path, title: str | None = None) -> None:
    """Draws an experiment into a file: PNG, or what format the path's suffix names.

    title: if not given, it tells the number of entries and the total epsilon.
    Raises ValueError for a format there is not, OSError if the file cannot be written.
    """
    draw(experiment, title).savefig(path, dpi=150)


def draw(experiment: Experiment, title: str | None = None) -> "Figure":
    """The picture of an experiment: percent of the entries over time, with bands of ±2 standard errors."""
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
    figure.suptitle(title or _title(experiment), fontsize=11)
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=len(lines), frameon=False, fontsize=9)
    return figure


def _draw_answer(panel: "Axes", experiment: Experiment, answer: int) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    times = np.array([time.replace(tzinfo=None) for time in experiment.times()], "datetime64[us]")  # knows no zones
    estimate = 100 * experiment.estimated_shares[:, answer]
    band = 200 * experiment.share_errors[:, answer]
    panel.fill_between(
        times, estimate - band, estimate + band, color=ESTIMATE, alpha=0.2, lw=0, label="±2 standard errors"
    )
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
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def _title(experiment: Experiment) -> str:
    epsilon = epsilon_text(experiment.survey.cost)
    return f"{experiment.entries:,} entries, each loses at most ε = {epsilon} over the whole survey"
