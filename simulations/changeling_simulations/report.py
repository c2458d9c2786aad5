"""What `changeling-sim` prints of an experiment."""

from collections.abc import Mapping

import numpy as np
from changeling_statistics import format_duration
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .experiment import Experiment, epsilon_text
from .trials import Trials

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
