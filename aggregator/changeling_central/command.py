"""`changeling release`: the function `release` on a command line, with an option for each of `ReleaseOptions`."""

import inspect
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, get_type_hints

import typer
from rich.console import Console
from rich.progress import Progress

from .afterwards import save_release_plot, save_smoothed
from .api import FILES, Released, ReleaseOptions, default_output, release_with
from .budget import check_output, exact
from .dates import local_instant, zone_name
from .files import read_about
from .offers import all_offers
from .statement import NOISE, state_beside

PICTURES = (".png", ".svg", ".pdf")
MECHANISMS = "\n\n".join(f"{offer.name}: {offer.summary}" for offer in all_offers())
"""What `--mechanism` takes, a line each: the end of the command's help."""


def release(changelog: Path, plot: Path | None = None, **given: object) -> None:
    """Publish a count of a changelog continually, with standard errors; run again, it goes on where it stopped.

    A query may name any column. A sum or a mean (mean of price from 0 to 100 by 5) clips and rounds; an answer that is
    no finite number adds 0. Give --start and --until: else they are read from the data, and not protected.

    The losses of all releases of a changelog add up in a ledger beside it. What is said here as not private comes from
    the data: keep it to yourself.

    The state beside the output (OUTPUT.state) holds true sums: keep it where the changelog is kept.
    """
    if plot is not None:
        _check_plot(plot, changelog)
    output = Path(str(given.pop("output"))) if given["output"] else default_output(changelog)
    overwrite = _asks_before_overwriting(output)
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("choosing the noise", total=None)
        options = ReleaseOptions(
            **{**given, "output": output},  # type: ignore[arg-type]  # as the signature below has them
            overwrite=overwrite,
            on_note=_say,
            on_period=lambda period, last: progress.update(task, completed=period, total=last, description="releasing"),
        )
        released = release_with(changelog, options)
    _conclude(options, released)
    if (
        plot is not None and released.last and not options.plan
    ):  # before the first period has ended there is nothing to draw
        price = f"ρ = {options.rho}" if options.epsilon is None else f"ε = {str(options.epsilon).strip()}"
        title = f"{options.query}, every {options.every}, {price}"
        save_release_plot(released.output, plot, title)


def smooth(
    published: Annotated[Path, typer.Argument(help="The .csv or .jsonl output of `changeling release`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .csv or .jsonl file; NAME.smoothed.csv if left out.")
    ] = None,
) -> None:
    """Estimate levels better from what is published alone, under drift and seasons; it costs nothing.

    Intervals hold noise and bias, as far as levels drift and have a day, a week or a year. Later periods change
    earlier estimates.
    """
    path = published.with_name(f"{published.name.split('.')[0]}.smoothed.csv") if output is None else output
    check_output(path)
    if path.exists() and path.samefile(published):
        raise ValueError(f"{path} is the release: choose another output")
    _say(f"wrote {save_smoothed(published, path)} smoothed levels to {path}")


def _parameters() -> Iterator[inspect.Parameter]:
    """The command's parameters: the changelog, an option for each field that has a help, and the picture."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    argument = typer.Argument(help="A .csv, .csv.gz or .parquet file of entry,time,answer; an empty answer deletes.")
    yield inspect.Parameter("changelog", keyword, annotation=Annotated[Path, argument])
    hints = get_type_hints(ReleaseOptions)
    for each in (each for each in fields(ReleaseOptions) if each.metadata):
        kind, default = hints[each.name], inspect.Parameter.empty if each.default is MISSING else each.default
        taken = kind if kind in (bool, int, int | None) else str if each.default is MISSING else str | None
        flags = [f"--{each.name.replace('_', '-')}", *(["-o"] if each.name == "output" else [])]
        option = typer.Option(*flags, help=each.metadata["text"], rich_help_panel=each.metadata["panel"])
        yield inspect.Parameter(
            each.name,
            keyword,
            default=str(default) if default == 0 and kind is not bool else default,
            annotation=Annotated[taken, option],
        )
    picture = typer.Option(help="Draw what was published: .png, .svg, .pdf.", rich_help_panel=FILES)
    yield inspect.Parameter("plot", keyword, default=None, annotation=Annotated[Path | None, picture])


release.__signature__ = inspect.Signature(list(_parameters()))  # type: ignore[attr-defined]


def _asks_before_overwriting(output: Path) -> bool:
    """True if the user, asked, lets a file that is no release's be written over; False where there is none to ask."""
    if not output.is_file() or state_beside(output).exists() or not sys.stdin.isatty() or read_about(output):
        return False
    return typer.confirm(f"{output} exists, and is no release that could go on. Overwrite it?", err=True)


def _conclude(options: ReleaseOptions, released: Released) -> None:
    """Say what is published, until when, and what it costs."""
    for key, value in released.about:
        if key != NOISE:  # matrices, which are for programs: the head of the output has them
            _say(f"{key}: {value}")
    calendar, last = released.calendar, released.last
    end = local_instant(calendar.time(last), zone_name(calendar)) + ", the calendar's end" * (last == calendar.periods)
    delta = f", delta {str(options.delta).strip()}" * (exact(options.delta) > 0)
    if options.plan:
        _say("that is a plan: nothing was drawn, written or charged")
        return
    cost = f"rho {options.rho}" if options.epsilon is None else f"epsilon {str(options.epsilon).strip()}{delta}"
    given = ", given the calendar, which was read from the data and is not protected" * released.calendar_from_data
    whom = "an entry" if options.person is None else "a person"
    _say(
        f"published {released.published} periods, until {end}, to {released.output}; the whole release costs {whom} "
        f"at most {cost}{given}"
    )
    if released.ledger is not None:
        _say(released.ledger.said())


def _check_plot(plot: Path, changelog: Path) -> None:
    """Known before the release, not after: ValueError for another kind of file, no folder, and the changelog itself."""
    if plot.suffix not in PICTURES:
        raise ValueError(f"a picture is a .png, .svg or .pdf file, got {plot.name}")
    check_output(plot)
    if plot.exists() and plot.samefile(changelog):
        raise ValueError(f"{plot} is the changelog: a picture would be written over it")


def _say(sentence: str) -> None:
    typer.echo(f"changeling: {sentence}", err=True)
