"""`changeling release`: publish a count of a changelog, period after period, with central differential privacy."""

import sys
import time
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from typing import Annotated, Any

import typer
from changeling_statistics.changelog import MICRO, Changelog, read_csv, read_parquet
from changeling_statistics.constraint_words import constraint_of
from changeling_statistics.durations import format_duration, parse_duration
from changeling_statistics.instants import format_instant, parse_instant
from rich.console import Console
from rich.progress import Progress

from ..changes.answer_query import answer_query
from ..changes.linear_query import LinearQuery
from ..guard import frozen
from .calendar import calendar_for
from .limits import budget, check_budget, check_changelog, check_output, check_plot
from .output import Output
from .run import Release, run
from .terms import begun, terms_of
from .wish import MECHANISMS, Wish

TOGETHER = 128
"""Periods saved and published at a time: a flush of the disk takes as long as drawing for many."""


def option(panel: str, said: str, *names: str) -> Any:
    return typer.Option(*names, help=said, rich_help_panel=panel)


WHAT, PROMISE, WHEN, HOW, FILES = "What is published", "What is promised", "When", "How", "Files"


def release(
    changelog: Annotated[
        Path, typer.Argument(help="A .csv, .csv.gz or .parquet file of entry,time,answer; an empty answer deletes.")
    ],
    query: Annotated[
        str, option(WHAT, "answer == 'A', answer in ('A', 'B'), any answer, each answer, sum of answer …")
    ],
    every: Annotated[str, option(WHEN, "One release per so long: 15m, 1h, 1d.")],
    epsilon: Annotated[str, option(PROMISE, "What an entry may lose over the whole release: 1, 0.5, 1/3.")],
    at_most: Annotated[int | None, option(PROMISE, "An entry mutates at most so often; insertion counts.")] = None,
    within: Annotated[
        str | None, option(PROMISE, "Its mutations lie within so long of its first. With --at-most: either.")
    ] = None,
    delta: Annotated[str, option(PROMISE, "Above 0: less noise, at an (epsilon, delta) guarantee.")] = "0",
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
    mechanism: Annotated[str, option(HOW, f"{', '.join(MECHANISMS)}")] = "hdcr",
    law: Annotated[str, option(HOW, "The noise: laplace or gaussian")] = "laplace",
    branching: Annotated[int | None, option(HOW, "Of hdcr's hierarchy; chosen if left out.")] = None,
    layers: Annotated[int | None, option(HOW, "Of hdcr's hierarchy; chosen if left out.")] = None,
    output: Annotated[
        Path | None,
        option(FILES, "A .csv or .jsonl file; if left out, NAME.released.csv in this folder.", "--output", "-o"),
    ] = None,
    plot: Annotated[Path | None, option(FILES, "Draw what was published: .png, .svg, .pdf.")] = None,
) -> None:
    """Publish a count of a changelog continually, with standard errors; run again, it goes on where it stopped.

    A sum (sum of answer from 0 to 100 by 5) clips and rounds; an answer that is no finite number adds 0. Give --start
    and --until: else they are read from the data, and not protected. Of pan-private the promise about outputs alone is
    kept, as the changelog lies beside it.

    The state beside the output (OUTPUT.state) holds true sums: keep it where the changelog is kept.
    """
    if find_spec("opendp") is None or find_spec("dp_accounting") is None:
        raise ValueError("a central release needs exact noise and accounting: pip install 'changeling[central]'")
    constraint = constraint_of(at_most, None if within is None else parse_duration(within))
    wish = Wish(mechanism, law, branching, layers)
    spent = budget(epsilon), budget(delta)
    check_budget(*spent)
    check_changelog(changelog)
    if output is None:
        output = Path(changelog.name.removesuffix(".gz")).with_suffix(".released.csv")
    check_output(output)
    if plot is not None:
        check_plot(plot, changelog)
    log = read_parquet(changelog) if changelog.suffix == ".parquet" else read_csv(changelog)
    state = output.with_name(output.name + ".state")
    before = begun(state)
    counted = _query(query, log, answers, fixed)
    dates = calendar_for(log, parse_duration(every), start, until, before)
    calendar = dates.calendar
    if before is not None:
        before.refuse_others(terms_of(query, counted, calendar, constraint, *spent))
    elif dates.from_data:
        _say(
            "the calendar is read from the data, whole days around its first and last mutation; where one entry could "
            "be seen in that, give --start and --until"
        )
    if dates.left:
        _say(f"the last {format_duration(dates.left)} before --until are no whole period, and are not released")
    if freeze:
        log = frozen(log, constraint, fixed)
    method = wish.method(counted, calendar, constraint, *spent, None if before is None else before.terms["mechanism"])
    last = calendar.closed(time.time() if through is None else parse_instant(through) + 1e-6)
    written = Output(output, counted.names, float(counted.unit))
    asked = Release(log, counted, query, calendar, constraint, method, written, state, dates.from_data)
    done = _follow(asked, last)
    end = format_instant(calendar.time(last)) + ", the calendar's end" * (last == calendar.periods)
    cost = f"epsilon {epsilon.strip()}" + f", delta {delta.strip()}" * (spent[1] > 0)
    given = ", given the calendar, which was read from the data and is not protected" * dates.from_data
    _say(
        f"published {done} periods, until {end}, to {output}; the whole release costs an entry at most {cost}{given} "
        f"({method.guarantee.neighbours}; {method.guarantee.source})"
    )
    if int(log.time.max()) > calendar.time(calendar.periods) * MICRO:
        _say("the changelog goes on after the calendar's end: what lies beyond is not part of this release")
    if plot is not None and last:  # before the first period has ended there is nothing to draw
        from .plot import save_release_plot

        save_release_plot(output, plot, f"{query}, every {format_duration(calendar.period)}, ε = {epsilon.strip()}")


def _follow(asked: Release, last: int) -> int:
    """How many periods were published."""
    # OpenDP loads slowly, so only now.
    from ..noise import OpenDPNoise
    from ..pooled_noise import PooledNoise

    done, unknown = 0, False
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("releasing", total=last)
        try:
            for period, level in run(asked, PooledNoise(OpenDPNoise()), last, together=TOGETHER):
                progress.update(task, completed=period)
                done, unknown = done + 1, isnan(level.variance)
        except OSError as error:
            raise OSError(f"{error}; nothing is lost: once that is mended, the same command goes on") from error
    if unknown:
        _say("no standard error of this mechanism is known, so that column is empty")
    return done


def _say(sentence: str) -> None:
    typer.echo(f"changeling: {sentence}", err=True)


def _query(text: str, log: Changelog, answers: str | None, fixed: bool) -> LinearQuery:
    declared = None if answers is None else [name.strip() for name in answers.split(",")]
    if declared is not None and not all(declared):
        raise ValueError(f"one of the --answers has no name: {answers!r}")
    return answer_query(text, log.answers, declared, fixed)
