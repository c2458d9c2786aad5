"""`changeling-sim plan`: from a wish to a table of plans, a picture and a survey file."""

from pathlib import Path
from typing import Annotated

import typer
from changeling_commands.questionnaires import (
    answers_of,
    error_in_words,
    planned_questions,
    refuse_hopeless_questions,
    say_questions,
)
from changeling_commands.wishes import (
    WishOptions,
    names_of,
    planning_bar,
    refuse_hopeless,
    say_detection,
    say_freezing,
    settled,
)
from changeling_protocol import Survey
from changeling_statistics import Comparison, Option, compare_plans, write_survey
from rich.console import Console
from rich.markup import escape

from .options import ReportOption, recorder, write_report
from .plots import draw_comparison, save_plan_plot
from .reports import print_comparison


def plan(
    options: WishOptions,
    choose: Annotated[
        str, typer.Option(metavar="NAME", help="The plan to write: paper, flat, sampled, panel or optimal.")
    ] = "optimal",
    delta: Annotated[float, typer.Option(metavar="DELTA", help="Of the (epsilon, delta) figures.")] = 1e-6,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the chosen plan's survey.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw errors and the release graph.")] = None,
    report: ReportOption = None,
) -> None:
    """Find the best release plan for a budget, and show it beside the plans that others would make."""
    console = recorder()
    if options.questions is not None:
        planned, listed = planned_questions(options)
        say_questions(console, planned, listed, options)
        write_report(console, report, "The plan of a survey")
        if output is not None:
            refuse_hopeless_questions(planned, options.anyway)
            write_survey(output, options.handled(planned.survey))
            console.print(f"wrote {escape(str(output))}; not signed yet")
        return
    answers = answers_of(options)
    asked = settled(console, options, answers)
    with planning_bar() as progress:
        comparison = compare_plans(asked.wish, progress)
    chosen = comparison.choose(choose)
    survey = options.applied(chosen.survey, names_of(answers))
    print_comparison(console, comparison, delta, survey.relay)
    about = survey.questions[0]
    if options.estimand != "histogram":
        error = error_in_words(options.estimand, about, chosen.error(asked.wish), options.devices)
        console.print(f"Error of {error}.", highlight=False)
    say_detection(console, about, chosen.prediction, options)
    say_freezing(console, asked.wish, comparison.planned, asked.habits)
    _warn(console, comparison, chosen, survey)
    if report is not None:
        console.picture(draw_comparison(comparison, chosen), "Errors of the plans over time, and the release graph")
    write_report(console, report, f"The plan of a survey: {about.text}")
    if plot is not None:
        save_plan_plot(comparison, chosen, plot)
        console.print(f"wrote {escape(str(plot))}")
    if output is not None:
        refuse_hopeless(chosen, options.anyway)
        write_survey(output, survey)
        console.print(f"wrote {escape(str(output))}, the plan {escape(chosen.title)}; not signed yet")


def _warn(console: Console, comparison: Comparison, chosen: Option, survey: Survey) -> None:
    """Prints a warning if the chosen plan will show nothing, or nodes have too few reports to be published."""
    if chosen.hopeless:
        console.print(f"[yellow]warning:[/] {chosen.hopeless}", highlight=False)
        return
    least = chosen.least_reports(comparison.wish.devices)
    if least < survey.minimum:
        console.print(
            f"[yellow]warning:[/] some nodes will have about {least:,.0f} reports, and fewer than {survey.minimum} "
            "are not published: choose a smaller --minimum, or more devices",
            highlight=False,
        )
