"""What a survey is expected to show, before anybody answers: for operators, in a table and in a word."""

import sys
from math import inf, isfinite
from typing import TYPE_CHECKING

import typer
from changeling_protocol import Survey
from changeling_statistics import format_duration, format_instant
from rich.table import Table

from .tables import console

if TYPE_CHECKING:
    from changeling_statistics import Option

POINT = 0.01
HOPELESS = 0.1
"""A standard error of a share from which on a survey says next to nothing: a band of 95% is then 40 points wide."""
MANY_DEVICES = 10_000_000
"""More devices than nearly any survey has; asked of one that is published by whoever does not say how many it has."""


def expected_of(survey: Survey, devices: int) -> "Option | None":
    """The survey's own plan with what is predicted for so many devices; None where it has too many periods for that."""
    from changeling_statistics import MOST_PLANNED_PERIODS, Option, predict

    if survey.calendar.periods > MOST_PLANNED_PERIODS:
        return None
    return Option("the survey's own", "", survey, predict(survey, devices))


def is_hopeless(option: "Option") -> bool:
    """Whether so many devices would show nothing."""
    return not option.prediction.mean < HOPELESS


def ask_if_hopeless(survey: Survey, devices: int) -> None:
    """Ask whether to publish a survey of which so many devices would show nothing.

    Raises ValueError for a no, and where nobody is there to answer.
    """
    option = expected_of(survey, devices)
    if option is None or not is_hopeless(option):
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
