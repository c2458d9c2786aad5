"""`changeling-sim sweep`: a grid of simulated surveys, from a TOML file to a table."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .options import ReportOption, recorder, write_report
from .plots import draw_sweep
from .reports import sweep_table
from .sweep import partial_rows, read_sweep, rows_of, sweep


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
