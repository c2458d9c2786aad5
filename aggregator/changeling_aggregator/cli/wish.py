"""`changeling survey new`: from a wish to a survey, with the planner's plan and what it will show."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import Calendar
from changeling_statistics import constraint_of, parse_count, parse_duration, parse_epsilon, parse_instant, write_survey

from .expectations import HOPELESS, expectation_table, is_hopeless
from .tables import console


def new(
    question: Annotated[str, typer.Option(help="What people are asked.")],
    answers: Annotated[str, typer.Option(help="The answers, with commas between them.")],
    start: Annotated[str, typer.Option(help="When the first period begins: ISO 8601, UTC by default.")],
    period: Annotated[str, typer.Option(help="The shortest span that is reported on: 10s, 1h, 1d, 13w.")],
    epsilon: Annotated[str, typer.Option(help="What an entry may lose over the whole survey.")],
    devices: Annotated[str, typer.Option(help="How many are expected to answer: 20000, 1e6.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    periods: Annotated[int | None, typer.Option(help="How many periods there are.")] = None,
    horizon: Annotated[str | None, typer.Option(help="How long the survey lasts, instead of --periods.")] = None,
    at_most: Annotated[
        int | None, typer.Option(help="An entry's answer changes at most so often; appearing counts.")
    ] = None,
    within: Annotated[
        str | None, typer.Option(help="An entry's changes lie within so long of its first. With --at-most: both hold.")
    ] = None,
    closed: Annotated[bool, typer.Option("--closed", help="Everybody has an answer from first to last.")] = False,
    expected_changes: Annotated[
        float | None,
        typer.Option(help="Changes of an entry over the whole survey, expected.", show_default="half of those allowed"),
    ] = None,
    points: Annotated[float, typer.Option(help="Say how many devices it takes for this standard error.")] = 1.0,
    skew: Annotated[str, typer.Option(help="How far a device's clock may be off.")] = "5m",
    spread: Annotated[str, typer.Option(help="Answers are spread over so long after a period's close.")] = "1h",
    grace: Annotated[str, typer.Option(help="Reports are taken for so long after a period's close.")] = "7d",
    minimum: Annotated[int, typer.Option(help="Nodes with fewer reports are not published.")] = 100,
    relay: Annotated[str, typer.Option(help="The URL of the relay that shuffles its envelopes.")] = "",
) -> None:
    """Write a survey as readable JSON, with the plan that shows most, and print what it will show and cost.

    Nothing is signed yet: read the file, then use `changeling survey sign`. `changeling-sim plan` shows the plan beside
    others.
    """
    from changeling_statistics import Wish, optimal_plan, plan_in_words, steady_changes

    calendar = _calendar(start, period, periods, horizon)
    constraint = constraint_of(at_most, None if within is None else parse_duration(within))
    names = tuple(answer.strip() for answer in answers.split(","))
    if not points > 0:
        raise ValueError(f"a standard error to reach is above 0 points, got {points}")
    waits = parse_duration(skew), parse_duration(spread), parse_duration(grace)
    wish = Wish(
        answers=len(names),
        calendar=calendar,
        constraint=constraint,
        epsilon=parse_epsilon(epsilon),
        devices=parse_count(devices),
        closed=closed,
        expected=steady_changes(calendar, constraint, expected_changes),
        minimum=minimum,
    )
    planned = optimal_plan(wish)
    survey = wish.survey(planned.plan, names, question)
    survey = replace(survey, skew=waits[0], spread=waits[1], grace=waits[2], relay=relay)
    option = replace(planned.option, survey=survey)
    write_survey(output, survey)
    typer.echo(f"The plan: {plan_in_words(planned)}.")
    console().print(expectation_table(option, points))
    if is_hopeless(option):
        typer.echo(f"warning: an error of {100 * HOPELESS:.0f} points or more shows nothing; ask more devices, or less")
    elif option.least_reports(wish.devices) < minimum:
        typer.echo("warning: some of its nodes will have fewer reports than are shown: choose a smaller --minimum")
    typer.echo(f"wrote {output}; not signed yet")


def _calendar(start: str, period: str, periods: int | None, horizon: str | None) -> Calendar:
    seconds = parse_duration(period)
    if (periods is None) == (horizon is None):
        raise ValueError("say how long the survey lasts: either --periods or --horizon")
    if horizon is not None:
        periods, rest = divmod(parse_duration(horizon), seconds)
        if rest:
            raise ValueError(f"a horizon of {horizon} is no whole number of periods of {period}")
    return Calendar(int(parse_instant(start)), seconds, periods or 0)
