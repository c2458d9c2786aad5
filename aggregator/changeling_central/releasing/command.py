"""`changeling release`: the function `release` on a command line."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from changeling_statistics import format_duration, format_instant
from rich.console import Console
from rich.progress import Progress

from .front import release as release_changelog
from .limits import budget, check_plot
from .offers import all_offers

if TYPE_CHECKING:
    from typer.models import OptionInfo


def option(panel: str, said: str, *names: str) -> "OptionInfo":
    """An option of the command. panel: the heading it stands under. said: its one line of help."""
    made: OptionInfo = typer.Option(*names, help=said, rich_help_panel=panel)
    return made


WHAT, PROMISE, WHEN, HOW, FILES = "What is published", "What is promised", "When", "How", "Files"

MECHANISMS = "\n\n".join(f"{offer.name}: {offer.summary}" for offer in all_offers())
"""What `--mechanism` takes, a line each: the end of the command's help."""


def release(
    changelog: Annotated[
        Path, typer.Argument(help="A .csv, .csv.gz or .parquet file of entry,time,answer; an empty answer deletes.")
    ],
    query: Annotated[
        str, option(WHAT, "answer == 'A', answer in ('A', 'B'), any answer, each answer, sum of answer …")
    ],
    every: Annotated[str, option(WHEN, "One release per so long: 15m, 1h, 1d.")],
    epsilon: Annotated[
        str | None, option(PROMISE, "What an entry may lose over the whole release: 1, 0.5, 1/3.")
    ] = None,
    at_most: Annotated[int | None, option(PROMISE, "An entry mutates at most so often; insertion counts.")] = None,
    within: Annotated[
        str | None, option(PROMISE, "Its mutations lie within so long of its first. With --at-most: both hold.")
    ] = None,
    delta: Annotated[str, option(PROMISE, "Above 0: less noise, at an (epsilon, delta) guarantee.")] = "0",
    rho: Annotated[str | None, option(PROMISE, "In place of both: of concentrated privacy (zCDP).")] = None,
    fixed: Annotated[
        bool, option(PROMISE, "No entry ever holds two different answers: checked; less noise.", "--fixed")
    ] = False,
    freeze: Annotated[
        bool, option(PROMISE, "Freeze an entry that breaks its promise, instead of stopping there.", "--freeze")
    ] = False,
    answers: Annotated[
        str | None, option(WHAT, "The answers there are, with commas between: `each answer` shows them.")
    ] = None,
    start: Annotated[str | None, option(WHEN, "When the first period begins, in ISO 8601.")] = None,
    until: Annotated[str | None, option(WHEN, "When the last period ends, in ISO 8601.")] = None,
    through: Annotated[
        str | None, option(WHEN, "Until when the changelog is whole: later periods wait. Now if left out.")
    ] = None,
    mechanism: Annotated[str | None, option(HOW, "One of those named below; the best if left out.")] = None,
    law: Annotated[str | None, option(HOW, "The noise: laplace or gaussian; chosen if left out.")] = None,
    branching: Annotated[int | None, option(HOW, "Of hdcr's hierarchy; chosen if left out.")] = None,
    layers: Annotated[int | None, option(HOW, "Of hdcr's hierarchy; chosen if left out.")] = None,
    adaptive: Annotated[
        bool, option(PROMISE, "Holds where people react to what is published, too; more noise.", "--adaptive")
    ] = False,
    window: Annotated[str | None, option(HOW, "Of swcr, or of --afterwards: 24h.")] = None,
    person: Annotated[
        str | None, option(PROMISE, "The column that says whose an entry is: the promise is made to persons.")
    ] = None,
    per_person: Annotated[int, option(PROMISE, "A person has at most so many entries.")] = 1,
    budget_: Annotated[
        str | None,
        option(PROMISE, "What all releases of it may cost: 3, or 3,1e-6 with a delta, or rho=1/2.", "--budget"),
    ] = None,
    ledger: Annotated[
        Path | None, option(FILES, "Where the releases of the changelog add up; CHANGELOG.ledger if left out.")
    ] = None,
    changelog_id: Annotated[
        str | None, option(FILES, "What the changelog is called in its ledger; drawn if left out.")
    ] = None,
    nodes: Annotated[bool, option(WHAT, "Publish the noisy nodes as well.", "--nodes")] = False,
    afterwards: Annotated[
        Path | None, option(FILES, "The best estimates from all --nodes so far: a .csv or .jsonl file.")
    ] = None,
    output: Annotated[
        Path | None,
        option(FILES, "A .csv or .jsonl file; if left out, NAME.released.csv in this folder.", "--output", "-o"),
    ] = None,
    plot: Annotated[Path | None, option(FILES, "Draw what was published: .png, .svg, .pdf.")] = None,
) -> None:
    """Publish a count of a changelog continually, with standard errors; run again, it goes on where it stopped.

    A query may name any column. A sum or a mean (mean of price from 0 to 100 by 5) clips and rounds; an answer that is
    no finite number adds 0. Give --start and --until: else they are read from the data, and not protected.

    The losses of all releases of a changelog add up in a ledger beside it. What is said here as not private comes from
    the data: keep it to yourself.

    The state beside the output (OUTPUT.state) holds true sums: keep it where the changelog is kept.
    """
    if plot is not None:
        check_plot(plot, changelog)
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("releasing", total=None)
        released = release_changelog(
            changelog,
            query,
            every=every,
            epsilon=epsilon,
            output=output or Path(changelog.name.removesuffix(".gz")).with_suffix(".released.csv"),
            at_most=at_most,
            within=within,
            delta=delta,
            rho=rho,
            fixed=fixed,
            freeze=freeze,
            answers=None if answers is None else _listed(answers),
            start=start,
            until=until,
            through=through,
            mechanism=mechanism,
            law=law,
            branching=branching,
            layers=layers,
            adaptive=adaptive,
            window=window,
            person=person,
            per_person=per_person,
            nodes=nodes,
            afterwards=afterwards,
            ledger=ledger,
            changelog_id=changelog_id,
            total=None if budget_ is None else _total(budget_),
            told=_say,
            reached=lambda period, last: progress.update(task, completed=period, total=last),
        )
    for key, value in released.about:
        _say(f"{key}: {value}")
    calendar, last = released.calendar, released.last
    end = format_instant(calendar.time(last)) + ", the calendar's end" * (last == calendar.periods)
    cost = f"epsilon {epsilon.strip()}" + f", delta {delta.strip()}" * (budget(delta) > 0) if epsilon else f"rho {rho}"
    given = ", given the calendar, which was read from the data and is not protected" * released.calendar_from_data
    whom = "an entry" if person is None else "a person"
    _say(
        f"published {released.published} periods, until {end}, to {released.output}; the whole release costs {whom} "
        f"at most {cost}{given}"
    )
    if released.ledger is not None:
        _say(released.ledger.said())
    if plot is not None and last:  # before the first period has ended there is nothing to draw
        from .plot import save_release_plot

        price = f"ρ = {rho}" if epsilon is None else f"ε = {epsilon.strip()}"
        title = f"{query}, every {format_duration(calendar.period)}, {price}"
        save_release_plot(released.output, plot, title)


def _say(sentence: str) -> None:
    typer.echo(f"changeling: {sentence}", err=True)


def _total(text: str) -> tuple[str, str] | str:
    if "=" in text:
        return text
    epsilon, _, delta = text.partition(",")
    return epsilon.strip(), delta.strip() or "0"


def _listed(answers: str) -> list[str]:
    names = [name.strip() for name in answers.split(",")]
    if not all(names):
        raise ValueError(f"one of the --answers has no name: {answers!r}")
    return names
