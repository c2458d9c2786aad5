"""The tables that `changeling-sim run` prints of an experiment, and its picture.

Imports matplotlib only when a plot is asked for, and draws without a display.
"""

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from changeling_statistics import format_duration
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .experiment import Experiment, Trials, epsilon_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LAST_PERIODS = 3


def print_report(console: Console, experiment: Experiment) -> None:
    """Prints the last periods of an experiment as a table, and all of it in a few lines."""
    console.print(_histograms(experiment))
    console.print(_summary(experiment))


def print_trials(console: Console, trials: Mapping[str, Trials], surveys: int) -> None:
    """Prints what goes wrong in the field, and what that does, a row for each of the trials.

    trials: by what goes wrong. surveys: how many there were of each.
    """
    table = Table(title=f"What the field does, over {surveys} surveys each", title_justify="left")
    table.add_column("", no_wrap=True)
    for column in ("heard", "rms error", "bias", "by chance", "95% holds", "gaps"):
        table.add_column(column, justify="right")
    for name, tried in trials.items():
        points = (f"{100 * figure:,.3g}" for figure in (tried.rms_error, tried.bias, tried.bias_by_chance))
        shares = (f"{100 * share:.1f}%" for share in (tried.coverage, tried.gaps))
        table.add_row(escape(name), f"{100 * tried.heard.mean():.1f}%", *points, *shares)
    console.print(table)
    console.print(
        "In points, against what the devices report on. Bias is what the mean error is, by chance what it would be "
        "about if there was no bias."
    )


def _histograms(experiment: Experiment) -> Table:
    table = Table(title=f"Percent of {experiment.entries:,} entries", title_justify="left")
    table.add_column("period ends", no_wrap=True)
    table.add_column("answer")
    for column in ("truth", "frozen", "estimate", "± std error"):
        table.add_column(column, justify="right")
    times = experiment.times()
    columns = (experiment.true_shares, experiment.frozen_shares, experiment.estimated_shares, experiment.share_errors)
    for i in range(max(0, len(times) - LAST_PERIODS), len(times)):
        for a, answer in enumerate(experiment.survey.answers):
            table.add_row(
                f"{times[i]:%Y-%m-%d %H:%M}".removesuffix(" 00:00") if a == 0 else "",
                escape(answer),
                *(_percent(shares[i, a]) for shares in columns),
                end_section=a == len(experiment.survey.answers) - 1,
            )
    return table


def _summary(experiment: Experiment) -> Table:
    survey = experiment.survey
    calendar = survey.calendar
    lines = [
        ("survey", f"{calendar.periods} periods of {format_duration(calendar.period)}"),
        ("reports", _reports(experiment)),
        ("epsilon", f"at most {epsilon_text(survey.cost)} an entry, for all its reports together"),
    ]
    if experiment.gaps:
        lines.append(("gaps", f"{experiment.gaps} of the periods are not estimable"))
    if experiment.gaps < calendar.periods:
        lines += _errors(experiment)
    table = Table.grid(padding=(0, 2))
    for line in lines:
        table.add_row(*line)
    return table


def _errors(experiment: Experiment) -> list[tuple[str, str]]:
    devices = experiment.devices_for()
    return [
        ("rms error", f"{_points(experiment.rms_error)}, over all periods and answers"),
        ("  noise", f"{_points(experiment.rms_noise)}, falls with more entries"),
        ("  freezing", _freezing(experiment)),
        ("entries needed", "for a standard error of one point:"),
        ("", f"{np.nanmean(devices):,.0f} on average over the periods, {np.nanmax(devices):,.0f} in the worst"),
    ]


def _reports(experiment: Experiment) -> str:
    """How many reports an entry sends, and how long the nodes are that they are about."""
    survey = experiment.survey
    widths = sorted({track.width * survey.calendar.period for track in survey.plan.tracks})
    reports = f"{experiment.reports_an_entry:,.1f}".removesuffix(".0")
    return f"{reports} an entry, on nodes of {', '.join(format_duration(width) for width in widths)}"


def _freezing(experiment: Experiment) -> str:
    if experiment.rms_freezing == 0:
        return "none: no entry mutates more often than the survey allows"
    worst = _points(experiment.worst_freezing)
    return f"{_points(experiment.rms_freezing)}, at worst {worst}: entries that mutate more than the survey allows"


def _percent(share: float) -> str:
    """A share in percent; a dash for what is not known."""
    return "-" if np.isnan(share) else f"{100 * share:.2f}"


def _points(fraction: float) -> str:
    """A fraction in percentage points."""
    return f"{100 * fraction:,.3g} points"


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
