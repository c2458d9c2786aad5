"""The commands of `changeling survey` that need more than a server: `new` has the planner, `notice` the client SDK."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from changeling_aggregator.cli.access import console
from changeling_aggregator.cli.survey import app, code, expectation_table, extend, sign
from changeling_protocol import Survey
from changeling_statistics import write_survey

from .questionnaires import (
    answers_of,
    error_in_words,
    planned_questions,
    refuse_hopeless_questions,
    say_questions,
)
from .wishes import (
    WishOptions,
    ask_to_overwrite,
    asking_to_overwrite,
    names_of,
    planning_bar,
    refuse_hopeless,
    say_detection,
    say_freezing,
    settled,
    taking,
)


def new(
    options: WishOptions,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")],
    points: Annotated[float, typer.Option(metavar="X", help="Say how many devices it takes for this error.")] = 1.0,
) -> None:
    """Write a survey as readable JSON, with the plan that shows most, and print what it will show and cost.

    Nothing is signed yet: read the file, then use `changeling survey sign`. `changeling-sim plan` shows the plan beside
    others.
    """
    if not points > 0:
        raise ValueError(f"a standard error to reach is above 0 points, got {points}")
    if options.questions is None and not options.question:
        raise ValueError("say what is asked: --question and --answers, or a file of --questions")
    ask_to_overwrite(output)
    if options.questions is not None or options.ask_freezing:
        planned, listed, habits = planned_questions(console(), options)
        say_questions(console(), planned, listed, options, habits, points)
        refuse_hopeless_questions(planned, options.anyway)
        survey = options.handled(planned.survey)
    else:
        survey = _of_alike_questions(options, points)
    write_survey(output, survey)
    typer.echo(f"wrote {output}; not signed yet")


def _of_alike_questions(options: WishOptions, points: float) -> Survey:
    """The survey of one question, or of several with the same answers; what it will show is printed."""
    from changeling_statistics import optimal_plan, plan_in_words

    answers = answers_of(options)
    asked = settled(console(), options, answers)
    wish, planned = asked.wish, asked.planned
    if planned is None:
        with planning_bar() as progress:
            planned = optimal_plan(wish, progress)
    survey = options.applied(planned.option.survey, names_of(answers))
    option = replace(planned.option, survey=survey)
    typer.echo(f"The plan: {plan_in_words(planned)}.")
    console().print(expectation_table(option, points))
    if wish.questions == 1:
        typer.echo(planned.distance.words)
    about = survey.questions[0]
    if options.estimand != "histogram":
        typer.echo(f"Error of {error_in_words(options.estimand, about, option.error(wish), wish.devices)}.")
    say_detection(console(), about, option.prediction, options)
    say_freezing(console(), wish.constraint, planned, asked.habits)
    refuse_hopeless(option, asked.habits, options.anyway)
    if option.least_reports(wish.devices) < survey.minimum:
        typer.echo("warning: some of its nodes will have fewer reports than are shown: choose a smaller --minimum")
    return survey


def notice(file: Annotated[Path, typer.Argument(metavar="SURVEY", help="A survey, signed or not.")]) -> None:
    """Print a paragraph for the privacy notice of an app that asks the survey. The signature is not checked."""
    from changeling_client import privacy_notice
    from changeling_statistics import read_survey

    typer.echo(privacy_notice(read_survey(file)))


for command in app.registered_commands:
    if command.callback in (sign, code, extend):
        command.callback = asking_to_overwrite(command.callback)
app.command()(taking(WishOptions, new))
app.command()(notice)
