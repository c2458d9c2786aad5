"""The cost of a survey and what it is expected to show, as tables for people and in a word."""

import sys
from collections.abc import Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING

import typer
from changeling_protocol import Group, Survey, Track, group_cost, rounded_up, track_cost
from changeling_statistics import format_duration, format_instant, total_cost
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from changeling_statistics import Option


def console() -> Console:
    """Standard output, at its full width where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 110)


def cost_table(survey: Survey) -> Table:
    """The most that each track, or joint group, can cost an entry, and the dearest group; odds are of one report."""
    table = Table(title="What the plan can cost an entry", show_footer=True)
    table.add_column("track", footer="an entry, at most", justify="right")
    table.add_column("reports on", footer="")
    table.add_column("nodes", justify="right")
    table.add_column("width", justify="right")
    table.add_column("largest odds", justify="right")
    table.add_column("epsilon", justify="right", footer=f"{rounded_up(survey.cost):.4f}")
    for number, group in enumerate(survey.plan.groups):
        for track_number, track in survey.plan.numbered(number):
            losses = track.randomizer.losses
            table.add_row(
                str(track_number),
                "changes" if track.reports_changes else "states",
                str(track.count),
                format_duration(track.width * survey.calendar.period),
                f"{float(max(losses.mutations, losses.appears, losses.vanishes).exp()):.6g} : 1",
                _charge(survey, group, track),
            )
    return table


def total_table(surveys: Sequence[Survey]) -> Table:
    """The cost of successive surveys to a person who takes part in all of them, each and together, and per week."""
    total, weekly = total_cost(surveys)
    table = Table(title="What a person can lose in all, with one entry in each", show_footer=True)
    table.add_column("survey", footer="together, at most", no_wrap=True)
    table.add_column("from")
    table.add_column("to")
    table.add_column("epsilon", justify="right", footer=f"{total}")
    table.add_column("a week, on average", justify="right", footer=f"{weekly}")
    for survey in surveys:
        calendar = survey.calendar
        ends = format_instant(calendar.start), format_instant(calendar.time(calendar.periods))
        table.add_row(survey.id.hex(), *ends, f"{survey.epsilon}", f"{survey.per_week}")
    return table


def _charge(survey: Survey, group: Group, track: Track) -> str:
    """The cost of a track; of a joint group, which costs its odds whole, it stands at the first track."""
    circumstances = survey.calendar, survey.constraint, survey.closed
    if group.joint is None:
        return f"{rounded_up(track_cost(track, *circumstances)):.4f}"
    return f"{rounded_up(group_cost(group, *circumstances)):.4f} jointly" if track is group.tracks[0] else ""


def shown_error(error: float | None, digits: int = 1) -> str:
    """A standard error; a question mark where its variance came out below zero."""
    return "?" if error is None else f"{error:,.{digits}f}"


POINT = 0.01
MANY_DEVICES = 10_000_000
"""More devices than nearly any survey has; asked of one that is published by whoever does not say how many it has."""


def expected_of(survey: Survey, devices: int) -> "Option | None":
    """The survey's own plan with what is predicted for so many devices; None where it has too many periods for that."""
    from changeling_statistics import MOST_PLANNED_PERIODS, Option, predict

    if survey.calendar.periods > MOST_PLANNED_PERIODS:
        return None
    return Option("the survey's own", "", survey, predict(survey, devices))


def ask_if_hopeless(survey: Survey, devices: int) -> None:
    """Ask whether to publish a survey of which so many devices would show nothing.

    Raises ValueError for a no, and where nobody is there to answer.
    """
    option = expected_of(survey, devices)
    if option is None or not option.hopeless:
        return
    console().print(expectation_table(option))
    refusal = f"of {devices:,} devices this survey would show nothing: --yes publishes it all the same"
    if not sys.stdin.isatty():
        raise ValueError(refusal)
    try:
        agreed = typer.confirm(f"{devices:,} devices would show nothing. Publish it all the same?")
    except typer.Abort:
        agreed = False
    if not agreed:
        raise ValueError("not published")


def expectation_table(option: "Option", points: float = 1.0) -> Table:
    """How accurate a survey will be, when its figures are shown, and what it costs.

    points: the standard error that devices are counted for, in percentage points.
    """
    survey, prediction = option.survey, option.prediction
    table = Table(title=f"What it will show of {prediction.devices:,} devices", show_header=False, title_justify="left")
    table.add_column()
    table.add_column()
    table.add_row("standard error of a share, online", _error(prediction.mean, prediction.devices))
    table.add_row("in its worst period", _error(prediction.worst, prediction.devices))
    needed = prediction.devices_for(points * POINT) if prediction.mean < inf else inf
    table.add_row(
        f"devices for an error of {points:g} point{'s' * (points != 1)}",
        f"{_rounded(needed):,}" if isfinite(needed) else "no number does",
    )
    table.add_row("first figures", _first(option))
    waits = format_duration(survey.skew + survey.spread), format_duration(survey.grace)
    table.add_row("shown, for good", f"{waits[0]} after a period's close, and {waits[1]} after it")
    fewest = f"{option.least_reports(prediction.devices):,.0f}"
    table.add_row("shown at all", f"what {survey.minimum} devices reported, or more; the fewest expected are {fewest}")
    table.add_row("epsilon for life", f"{survey.epsilon}")
    table.add_row("epsilon a week, on average", f"{survey.per_week}")
    return table


def _first(option: "Option") -> str:
    errors = option.prediction.errors
    period = next((number for number, error in enumerate(errors.tolist(), 1) if isfinite(error)), None)
    if period is None:
        return "none: no nodes of the plan connect a period with the start"
    when = format_instant(option.survey.calendar.time(period))
    return f"of period {period}, which closes at {when}, {100 * errors[period - 1]:.3g} points"


def _error(error: float, devices: int) -> str:
    if not isfinite(error):
        return "there is no estimate of some periods"
    return f"{100 * error:.3g} points, or {_rounded(error * devices):,} devices"


def _rounded(number: float) -> int:
    """To three digits."""
    return round(float(f"{number:.3g}"))
