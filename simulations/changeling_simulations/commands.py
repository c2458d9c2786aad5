"""`changeling-sim plan`, `compare` and `sweep`, and what all commands of `changeling-sim` have in common."""

import json
import sys
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from changeling_commands import (
    WishOptions,
    ask_to_overwrite,
    planned_questions,
    planning_bar,
    refuse_hopeless_questions,
    settled,
    taking,
)
from changeling_protocol import Node, Survey
from changeling_statistics import PLANS, Comparison, Option, compare_plans, write_survey
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .comparison import compare_methods
from .plots import draw_comparison, draw_sweep
from .reports import RecordingConsole, print_comparison, sweep_table
from .sweep import partial_rows, read_sweep, rows_of, sweep

TABLE_WIDTH = 110
"""How wide tables are, in characters, if there is no terminal to fit them into."""
ReportOption: TypeAlias = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write all this as one HTML file, with its pictures.")
]


def recorder() -> RecordingConsole:
    """The console that a command prints its tables on."""
    return RecordingConsole(width=None if sys.stdout.isatty() else TABLE_WIDTH)


def write_report(console: RecordingConsole, path: Path | None, title: str) -> None:
    """Writes what was printed as a report, if one is wanted."""
    if path is not None:
        console.write(path, title)
        console.print(f"wrote {path}", highlight=False)


def rate(text: str) -> float:
    """A rate from 0 to 1, which may be written in percent, as 5%."""
    try:
        value = Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except InvalidOperation:
        raise typer.BadParameter(f"a rate is a number such as 0.05, or 5%, got {text!r}") from None
    if not (value.is_finite() and 0 <= value <= 1):
        raise typer.BadParameter(f"a rate is from 0 to 1, got {text}")
    return float(value)


def rate_option(told: str) -> Any:
    """An option that takes a rate. told: its help."""
    return typer.Option(parser=rate, metavar="RATE", help=told)


def span(text: str) -> Node:
    """A period, such as 5, or periods in a row, such as 5-7: the span (4, 7]."""
    first, _, last = text.partition("-")
    try:
        return Node(int(first) - 1, int(last or first))
    except ValueError:
        raise typer.BadParameter(f"periods are like 5 or 5-7, counted from 1, got {text!r}") from None


def plan(
    options: WishOptions,
    choose: Annotated[
        str, typer.Option(metavar="NAME", help=f"The plan to write: one of {', '.join(PLANS)}.")
    ] = "optimal",
    delta: Annotated[float, typer.Option(metavar="DELTA", help="Of the (epsilon, delta) figures.")] = 1e-6,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the chosen plan's survey.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw errors and the release graph.")] = None,
    report: ReportOption = None,
) -> None:
    """Find the best release plan for a budget, and show it beside the plans that others would make."""
    ask_to_overwrite(output)
    if choose not in PLANS:
        raise ValueError(f"no plan {choose!r}: choose one of {', '.join(PLANS)}")
    console = recorder()
    if options.questions is not None or options.ask_freezing:
        planned = planned_questions(console, options)
        write_report(console, report, "The plan of a survey")
        if output is not None:
            refuse_hopeless_questions(planned, options.anyway)
            write_survey(output, options.handled(planned.survey))
            console.print(f"wrote {output}; not signed yet")
        return
    if len(options.asked) > 1:
        raise ValueError("plans are compared for one question: list several in a file of --questions")
    asked = settled(console, options)
    with planning_bar() as progress:
        comparison = compare_plans(asked.wish, progress)
    chosen = comparison.choose(choose)
    survey = asked.survey(chosen.survey)
    print_comparison(console, comparison, delta, survey.relay)
    asked.say(console, chosen, comparison.planned)
    _warn(console, comparison, chosen, survey, asked.hopeless(chosen))
    if report is not None:
        console.picture(draw_comparison(comparison, chosen), "Errors of the plans over time, and the release graph")
    write_report(console, report, f"The plan of a survey: {survey.questions[0].text}")
    if plot is not None:
        draw_comparison(comparison, chosen).savefig(plot, dpi=150)
        console.print(f"wrote {plot}")
    if output is not None:
        asked.refuse_hopeless(chosen)
        write_survey(output, survey)
        console.print(f"wrote {output}, the plan {chosen.title}; not signed yet")


plan_command = taking(WishOptions, plan)


def _warn(console: Console, comparison: Comparison, chosen: Option, survey: Survey, hopeless: str) -> None:
    """Prints a warning if the chosen plan will show nothing, or nodes have too few reports to be published."""
    if hopeless:
        console.print(f"warning: {hopeless}", style="yellow", highlight=False)
        return
    least = chosen.least_reports(comparison.wish.devices)
    if least < survey.minimum:
        console.print(
            f"warning: some nodes will have about {least:,.0f} reports, and fewer than {survey.minimum} are not "
            "published: choose a smaller --minimum, or more devices",
            style="yellow",
            highlight=False,
        )


NOTE = (
    "Promised: what a method says that an entry loses in all. Really: what one change halfway can cost, in nats. "
    "Exposed: of those who change halfway, how many send what is more telling than the promise allows. Methods below "
    "the line count a loss for each value that is held, and not for when it changes."
)


def compare(
    options: WishOptions,
    report: ReportOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Set the best plan beside the methods of others, at one epsilon: how wrong, what is promised, what is exposed.

    Everybody has an answer from the first period to the last.
    """
    console = recorder()
    wish = replace(options, closed=True, minimum=1).wish(len(options.names))
    with planning_bar() as progress:
        found = compare_methods(wish, progress)
    if as_json:
        print(json.dumps([method.as_fields() for method in found.methods], indent=1))
        return
    console.print(found.table())
    console.print(NOTE, style="dim", highlight=False)
    write_report(console, report, "Methods at one epsilon, side by side")


_NEEDED = ("answers", "horizon", "period", "epsilon", "devices")
compare_command = taking(
    WishOptions, compare, only=(*_NEEDED, "at_most", "expected_changes", "retrospective"), required=_NEEDED
)


def sweep_command(
    experiment: Annotated[Path, typer.Argument(help="A TOML file of settings; what stands in a list is varied.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Write a row for each combination: .csv, .parquet.")],
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many run at once.", show_default="all cores")
    ] = None,
    report: ReportOption = None,
) -> None:
    """Simulate surveys over a grid of settings; killed and started again, it goes on, to the same bytes.

    The settings: seed, surveys (of each cell), answers, periods, at_most, changes, entries, epsilon,
    questions, world.
    """
    console, terminal = recorder(), Console(stderr=True)
    cells = read_sweep(experiment)
    if output.exists() and not (sys.stdin.isatty() and typer.confirm(f"{output} exists: write over it?", err=True)):
        raise ValueError(f"{output} exists, and is left as it is")
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task, refused = bar.add_task("cells", total=len(cells)), 0
        if (before := partial_rows(output)).exists():
            console.print(f"goes on with {before}", highlight=False)
        for row in sweep(cells, output, processes):
            refused += bool(row["reason"])
            bar.advance(task)
    if report is not None:
        rows = rows_of(output)
        console.print(sweep_table(rows))
        console.picture(draw_sweep(rows), "Predicted and simulated errors of all cells")
        write_report(console, report, "A sweep of simulated surveys")
    console.print(f"wrote {output}: {len(cells)} cells", highlight=False)
    if refused:
        console.print(f"no plan could be made for {refused} of those done now: their rows say why", highlight=False)
