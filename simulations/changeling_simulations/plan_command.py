"""`changeling-sim plan`: from a wish to a table of plans, a picture and a survey file."""

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import Calendar, Constraint, ExpectedChanges, Survey, check_answers
from changeling_statistics import (
    Comparison,
    Objective,
    Option,
    Wish,
    compare_plans,
    constraint_of,
    format_duration,
    steady_changes,
    write_survey,
)
from rich.console import Console
from rich.markup import escape

from . import options
from .plots import save_plan_plot
from .reports import print_comparison

YEAR = 31_557_600
"""A mean year in seconds."""
DELTA = 1e-6
WIDTH = 110
"""How wide tables are, in characters, if there is no terminal to fit them into."""


def plan(
    answers: Annotated[str, typer.Option(metavar="Z", help="How many answers, or their names with commas between.")],
    horizon: Annotated[int, typer.Option(parser=options.duration, metavar="DURATION", help="How long: 365d, 52w.")],
    period: Annotated[int, typer.Option(parser=options.duration, metavar="DURATION", help="The shortest span: 1d.")],
    epsilon: Annotated[Decimal, typer.Option(parser=options.epsilon, metavar="EPSILON", help="An entry's most loss.")],
    devices: Annotated[int, typer.Option(parser=options.count, metavar="N", help="How many will answer: 1e6.")],
    at_most: Annotated[
        int | None, typer.Option(metavar="K", help="An entry's answer changes at most so often; appearing counts.")
    ] = None,
    within: Annotated[
        int | None,
        typer.Option(
            parser=options.length,
            metavar="DURATION",
            help="An entry's changes lie within so long of its first. With --at-most: both hold.",
        ),
    ] = None,
    closed: Annotated[bool, typer.Option("--closed", help="Everybody has an answer from first to last.")] = False,
    expected_changes: Annotated[
        float | None,
        typer.Option(metavar="X", help="Changes of an entry over the horizon, expected.", show_default="half of K - 1"),
    ] = None,
    changes_per_year: Annotated[float | None, typer.Option(metavar="X", help="The same as a rate.")] = None,
    retrospective: Annotated[
        bool, typer.Option("--retrospective", help="Histograms are wanted when all is over, from everything.")
    ] = False,
    objective: Annotated[str, typer.Option(metavar="mean|worst", help="The error to make small.")] = "mean",
    bridge: Annotated[
        bool, typer.Option("--bridge/--no-bridge", help="Any one lost period is bridged within a tenth of the horizon.")
    ] = True,
    choose: Annotated[str, typer.Option(metavar="NAME", help="paper, flat, sampled, panel or optimal.")] = "optimal",
    delta: Annotated[float, typer.Option(metavar="DELTA", help="Of the (epsilon, delta) figures.")] = DELTA,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the chosen plan's survey.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw errors and the release graph.")] = None,
    question: Annotated[str, typer.Option(help="What people are asked.")] = "Which of these is your answer?",
    start: Annotated[
        int | None, typer.Option(parser=options.date, metavar="DATE", show_default="tomorrow", help="Of the calendar.")
    ] = None,
    skew: Annotated[int, typer.Option(parser=options.duration, help="How far a clock may be off.")] = "5m",  # type: ignore[assignment]
    spread: Annotated[int, typer.Option(parser=options.duration, help="Answers spread over so long.")] = "1h",  # type: ignore[assignment]
    grace: Annotated[int, typer.Option(parser=options.duration, help="Reports are taken so long.")] = "7d",  # type: ignore[assignment]
    minimum: Annotated[int, typer.Option(help="Nodes with fewer reports are not published.")] = 100,
    relay: Annotated[
        str | None,
        typer.Option(parser=options.url, metavar="URL", help="The relay that will shuffle the survey's envelopes."),
    ] = None,
) -> None:
    """Find the best release plan for a budget, and show it beside the plans that others would make."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    names = _names(answers)
    calendar = _calendar(horizon, period, start)
    constraint = constraint_of(at_most, within)
    wish = Wish(
        answers=len(names),
        calendar=calendar,
        constraint=constraint,
        epsilon=epsilon,
        devices=devices,
        closed=closed,
        expected=_expected(expected_changes, changes_per_year, calendar, constraint),
        retrospective=retrospective,
        objective=_objective(objective),
        bridge=bridge,
        minimum=minimum,
    )
    comparison = compare_plans(wish)
    chosen = comparison.choose(choose)
    survey = replace(
        chosen.survey,
        question=question,
        answers=names,
        skew=skew,
        spread=spread,
        grace=grace,
        relay=relay or "",
    )
    print_comparison(console, comparison, delta, survey.relay)
    _warn(console, comparison, chosen, survey)
    if plot is not None:
        save_plan_plot(comparison, chosen, plot)
        console.print(f"wrote {escape(str(plot))}")
    if output is not None:
        write_survey(output, survey)
        console.print(f"wrote {escape(str(output))}, the plan {escape(chosen.title)}; not signed yet")


def _names(text: str) -> tuple[str, ...]:
    """The names of the answers: as given, with commas between them, or numbered if only their number is given."""
    if not text.strip().lstrip("-").isdecimal():
        return tuple(name.strip() for name in text.split(","))
    count = int(text)
    check_answers(count)
    return tuple(f"answer {i}" for i in range(1, count + 1))


def _calendar(horizon: int, period: int, start: int | None) -> Calendar:
    periods, rest = divmod(horizon, period)
    if not periods or rest:
        shorter, longer = max(1, periods) * period, (periods + 1) * period
        raise ValueError(
            f"a horizon of {format_duration(horizon)} is no whole number of periods of {format_duration(period)}: "
            f"choose {format_duration(shorter)} or {format_duration(longer)}"
        )
    if start is None:
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        start = int((midnight + timedelta(days=1)).timestamp())
    return Calendar(start, period, periods)


def _expected(
    changes: float | None, per_year: float | None, calendar: Calendar, constraint: Constraint
) -> ExpectedChanges:
    """Steady changes: over the whole calendar, or the same as a rate; None for what is not said."""
    if changes is not None and per_year is not None:
        raise ValueError("choose --expected-changes or --changes-per-year, not both")
    if per_year is not None:
        changes = per_year * calendar.periods * calendar.period / YEAR
    return steady_changes(calendar, constraint, changes)


def _objective(text: str) -> Objective:
    if text == "mean":
        return "mean"
    if text == "worst":
        return "worst"
    raise ValueError(f"the objective is mean or worst, got {text!r}")


def _warn(console: Console, comparison: Comparison, chosen: Option, survey: Survey) -> None:
    """Prints a warning if nodes of the chosen plan are expected to have too few reports to be published."""
    least = chosen.least_reports(comparison.wish.devices)
    if least < survey.minimum:
        console.print(
            f"[yellow]warning:[/] some nodes will have about {least:,.0f} reports, and fewer than {survey.minimum} "
            "are not published: choose a smaller --minimum, or more devices",
            highlight=False,
        )
