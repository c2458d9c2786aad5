"""The commands of `changeling-sim`: options in; a population, a survey and an experiment out."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from changeling_commands.running import VERSION_HINT
from changeling_protocol import AtMost, Constraint, Survey, TimeBounded
from changeling_statistics.changelog import read_csv
from changeling_statistics.survey_files import read_survey
from changeling_statistics.tallies import Tallies
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from . import options
from .bundled import changelog_path
from .calendars import calendar_for
from .experiment import Experiment, compare
from .plan_command import plan
from .plots import save_plot
from .population import Population
from .report import print_report
from .sampler import draw_members, full_attendance, sample_nodes
from .surveys import paper_survey
from .synthetic import synthetic_calendar, synthetic_changelog

HISTORIES = 10_000
"""How many histories are made up at most; a larger synthetic population is resampled from them."""
AT_MOST = 4
"""How many mutations an entry may make, if the command line does not say."""
ALL, FITTED = "all of the changelog, or 10,000", "fitted to the changelog"

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback(epilog=VERSION_HINT)
def changeling_sim() -> None:
    """What will a survey of changing answers cost in privacy, and how accurate will it be?"""


app.command()(plan)


@app.command()
def run(
    changelog: Annotated[
        str | None, typer.Argument(help="A .csv or .csv.gz of entry,time,answer, or the bundled school-to-work.")
    ] = None,
    synthetic: Annotated[bool, typer.Option("--synthetic", help="Make up a population instead.")] = False,
    answers: Annotated[int, typer.Option(min=1, metavar="Z", help="Synthetic: how many answers.")] = 4,
    changes: Annotated[float, typer.Option(min=0, metavar="X", help="Synthetic: an entry's changes, on average.")] = 2,
    gradual: Annotated[bool, typer.Option("--gradual", help="Synthetic: entries arrive all through.")] = False,
    entries: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Resample to so many entries.", show_default=ALL)
    ] = None,
    period: Annotated[
        int | None,
        typer.Option(parser=options.duration, metavar="DURATION", help="As 10s, 1h, 1d, 13w.", show_default=FITTED),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(parser=options.date, metavar="DATE", help="When the calendar starts.", show_default=FITTED),
    ] = None,
    periods: Annotated[
        int | None, typer.Option(min=1, metavar="T", help="How many periods.", show_default=FITTED)
    ] = None,
    at_most: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Mutations of an entry, insertion included.", show_default=str(AT_MOST)),
    ] = None,
    within: Annotated[
        int | None,
        typer.Option(parser=options.duration, metavar="DURATION", help="Instead: mutations so long after the first."),
    ] = None,
    branching: Annotated[int, typer.Option(min=2, metavar="C", help="Layers have nodes of 1, c, c², … periods.")] = 2,
    layers: Annotated[
        int, typer.Option(min=1, metavar="H", help="Layers of the hierarchy; 1 is the flat release.")
    ] = 1,
    epsilon: Annotated[
        Decimal, typer.Option(parser=options.epsilon, metavar="EPSILON", help="The most an entry may lose in all.")
    ] = Decimal(8),
    survey_file: Annotated[
        Path | None,
        typer.Option(
            "--survey", metavar="FILE", help="Instead of a plan and calendar: run this survey, signed or not."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The same seed repeats the run.")] = 0,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all periods and answers.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw truth and estimates: .png, .pdf, .svg.")
    ] = None,
) -> None:
    """Simulate one survey of a population, and show its estimates beside the truth."""
    console = Console()
    generator = np.random.default_rng(seed)
    if synthetic == (changelog is not None):
        raise ValueError("name one changelog, such as school-to-work, or say --synthetic")
    given = None if survey_file is None else read_survey(survey_file)
    if changelog is not None:
        source = read_csv(changelog_path(changelog), given.answers if given else None)
        calendar = given.calendar if given else calendar_for(source, period, start, periods)
    else:
        calendar = given.calendar if given else synthetic_calendar(period, start, periods)
        drawn = min(entries or HISTORIES, HISTORIES)
        kinds = len(given.answers) if given else answers
        source = synthetic_changelog(kinds, drawn, changes, calendar, generator, gradual=gradual)
        source = replace(source, answers=given.answers) if given else source
    constraint = given.constraint if given else _constraint(at_most, within)
    survey = given or paper_survey(
        source.answers, calendar, constraint, epsilon=epsilon, branching=branching, layers=layers
    )
    population = Population.from_changelog(source, calendar, constraint)
    if entries not in (None, population.entries):
        population = population.resampled(entries, generator)
    experiment = _watched(population, survey, generator)
    print_report(console, experiment)
    for path, write in ((csv, experiment.write_csv), (plot, lambda path: save_plot(experiment, path))):
        if path is not None:
            write(path)
            console.print(f"wrote {escape(str(path))}")


def _constraint(at_most: int | None, within: int | None) -> Constraint:
    if within is None:
        return AtMost(AT_MOST if at_most is None else at_most)
    if at_most is not None:
        raise ValueError("choose --at-most or --within, not both")
    return TimeBounded(within)


def _watched(population: Population, survey: Survey, generator: np.random.Generator) -> Experiment:
    """As `simulate`, with a progress bar on a terminal."""
    terminal = Console(stderr=True)
    members = draw_members(population, survey, generator)
    nodes = track(
        sample_nodes(population, survey, members, generator),
        description="sampling nodes",
        total=sum(reported.count for reported in survey.plan.tracks),
        console=terminal,
        transient=True,
        disable=not terminal.is_terminal,
    )
    return compare(population, survey, Tallies(dict(nodes), full_attendance(survey, members)))
