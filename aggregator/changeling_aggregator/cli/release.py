"""`changeling release`: publish a count of a changelog, period after period, with central differential privacy."""

import re
import sys
import time
from fractions import Fraction
from importlib.util import find_spec
from math import ceil, isnan
from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import AtMost, Calendar, Constraint, Hybrid, TimeBounded
from rich.console import Console
from rich.progress import Progress

from ..central.changes.answer_query import answer_query
from ..central.changes.hdcr import hierarchy
from ..central.changes.hierarchy_choice import best_hierarchy
from ..central.changes.linear_query import LinearQuery
from ..central.guard import frozen
from ..central.node_noise import Law
from ..central.release.counters import COUNTERS, counter_method
from ..central.release.limits import budget, check_budget, check_changelog, check_output, check_periods, check_plot
from ..central.release.methods import HierarchyMethod, Method
from ..central.release.output import Output
from ..central.release.run import Release, run, saved_calendar
from ..changelog import MICRO, Changelog
from ..durations import format_duration, parse_duration
from ..instants import format_instant, parse_instant

MOST_MUTATIONS = 10**9
MECHANISMS = ("hdcr", "dcr", *COUNTERS)


def release(
    changelog: Annotated[Path, typer.Argument(help="A changelog: .csv, .csv.gz or .parquet.")],
    query: Annotated[str, typer.Option(help="answer == 'A', answer in ('A', 'B'), any answer, each answer, …")],
    every: Annotated[str, typer.Option(help="One release per: 15m, 1h, 1d.")],
    epsilon: Annotated[str, typer.Option(help="What an entry may lose over the whole release.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .csv or .jsonl.")],
    at_most: Annotated[int | None, typer.Option(help="An entry mutates at most so often; insertion counts.")] = None,
    within: Annotated[
        str | None, typer.Option(help="An entry's mutations lie within so long of its first. With --at-most: either.")
    ] = None,
    delta: Annotated[str, typer.Option(help="Above 0: sharper noise, at an (epsilon, delta) guarantee.")] = "0",
    mechanism: Annotated[str, typer.Option(help=", ".join(MECHANISMS) + ".")] = "hdcr",
    law: Annotated[str, typer.Option(help="laplace or gaussian noise.")] = "laplace",
    answers: Annotated[str | None, typer.Option(help="The columns of `each answer`, with commas between.")] = None,
    fixed: Annotated[bool, typer.Option("--fixed", help="No entry ever holds two different answers: checked.")] = False,
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Freeze an entry that breaks the constraint, instead of stopping.")
    ] = False,
    branching: Annotated[int | None, typer.Option(help="Of the hierarchy; chosen if left out.")] = None,
    layers: Annotated[int | None, typer.Option(help="Of the hierarchy; chosen if left out.")] = None,
    start: Annotated[str | None, typer.Option(help="When the first period begins: ISO 8601.")] = None,
    until: Annotated[str | None, typer.Option(help="When the last period ends: ISO 8601.")] = None,
    through: Annotated[
        str | None,
        typer.Option(help="Release periods that end by then, as the changelog is whole until then; now if left out."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw what was published: .png, .svg, .pdf.")] = None,
) -> None:
    """Publish a count of a changelog continually, with standard errors; run again, it goes on where it stopped.

    The state beside the output (OUTPUT.state) holds true sums: keep it where the changelog is kept.
    """
    if find_spec("opendp") is None or find_spec("dp_accounting") is None:
        raise ValueError("a central release needs exact noise and accounting: pip install 'changeling[central]'")
    constraint = _constraint(at_most, within)
    spent = budget(epsilon), budget(delta)
    check_budget(*spent)
    check_changelog(changelog)
    check_output(output)
    if plot is not None:
        check_plot(plot, changelog)
    log = _read(changelog)
    state = output.with_name(output.name + ".state")
    counted = _query(query, log, answers, fixed)
    calendar = _calendar(log, parse_duration(every), start, until, saved_calendar(state))
    if freeze:
        log = frozen(log, constraint, fixed)
    method = _method(counted, calendar, constraint, *spent, law, mechanism, branching, layers)
    last = calendar.closed(time.time() if through is None else parse_instant(through) + 1e-6)
    asked = Release(
        log, counted, query, calendar, constraint, method, Output(output, counted.names, float(counted.unit)), state
    )
    _follow(asked, last)
    if plot is not None and last:  # before the first period has ended there is nothing to draw
        from ..central.release.plot import save_release_plot

        save_release_plot(output, plot, f"{query}, every {format_duration(calendar.period)}, ε = {epsilon}")


def _follow(asked: Release, last: int) -> None:
    # OpenDP loads slowly, so only now.
    from ..central.noise import OpenDPNoise
    from ..central.pooled_noise import PooledNoise

    err = Console(stderr=True)
    done, unknown = 0, False
    with Progress(console=err, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("releasing", total=last)
        for period, level in run(asked, PooledNoise(OpenDPNoise()), last):
            progress.update(task, completed=period)
            done, unknown = done + 1, isnan(level.variance)
    guarantee = asked.method.guarantee
    cost = f"epsilon {float(guarantee.epsilon):g}" + (f", delta {float(guarantee.delta):g}" if guarantee.delta else "")
    end = format_instant(asked.calendar.time(last)) + ", the calendar's end" * (last == asked.calendar.periods)
    if unknown:
        typer.echo("changeling: no standard error of this mechanism is known, so that column is empty", err=True)
    typer.echo(
        f"published {done} periods, until {end}, to {asked.output.path}; the whole release costs an entry at most "
        f"{cost} ({guarantee.neighbours}; {guarantee.source})",
        err=True,
    )


def _read(path: Path) -> Changelog:
    return Changelog.from_parquet(path) if path.suffix == ".parquet" else Changelog.from_csv(path)


def _query(text: str, log: Changelog, answers: str | None, fixed: bool) -> LinearQuery:
    declared = None if answers is None else [name.strip() for name in answers.split(",")]
    if declared is not None and not re.fullmatch(r"each\s+answer", text.strip()):
        raise ValueError(f"--answers names the columns of `each answer`; the query is {text!r}")
    if declared is not None and not all(declared):
        raise ValueError(f"one of the --answers has no name: {answers!r}")
    try:
        return answer_query(text, log.answers, declared, fixed)
    except (OverflowError, RecursionError, MemoryError):
        raise ValueError("not a query: its numbers are too large, or it is too long") from None


def _constraint(at_most: int | None, within: str | None) -> Constraint:
    bounds: list[AtMost | TimeBounded] = []
    if at_most is not None:
        if at_most > MOST_MUTATIONS:
            raise ValueError(f"--at-most is at most {MOST_MUTATIONS}, got {at_most}")
        bounds.append(AtMost(at_most))
    if within is not None:
        bounds.append(TimeBounded(parse_duration(within)))
    if not bounds:
        raise ValueError("say how often an entry may mutate: --at-most, --within or both")
    return bounds[0] if len(bounds) == 1 else Hybrid(tuple(bounds))


def _calendar(log: Changelog, period: int, start: str | None, until: str | None, saved: Calendar | None) -> Calendar:
    """As asked for; else as the release began; else as the data say, with a warning."""
    if saved is not None:
        start = start or format_instant(saved.start)
        until = until or format_instant(saved.time(saved.periods))
    if start is None or until is None:
        typer.echo(
            "changeling: the calendar is read from the data, whole days around its first and last mutation; "
            "where one entry could be seen in that, give --start and --until",
            err=True,
        )
    day = max(86_400, period)
    first = int(parse_instant(start)) if start else int(log.time.min()) // (day * MICRO) * day
    end = int(parse_instant(until)) if until else -(-int(log.time.max()) // (day * MICRO)) * day
    if end - first < period:
        raise ValueError(f"from {format_instant(first)} to {format_instant(end)} there is no period")
    periods = ceil((end - first) / period) if until is None else (end - first) // period
    return check_periods(Calendar(first, period, periods))


def _method(
    query: LinearQuery,
    calendar: Calendar,
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction,
    law: str,
    mechanism: str,
    branching: int | None,
    layers: int | None,
) -> Method:
    if law not in tuple(Law):
        raise ValueError(f"the noise is laplace or gaussian, got {law!r}")
    if mechanism not in MECHANISMS:
        raise ValueError(f"there is no mechanism {mechanism!r}: choose {', '.join(MECHANISMS)}")
    noise = Law(law)
    if mechanism != "hdcr" and (branching, layers) != (None, None):
        raise ValueError(f"--branching and --layers are of hdcr's hierarchy, and {mechanism} has none")
    if layers is not None and layers > calendar.periods.bit_length():
        raise ValueError(f"{layers} layers are too many for {calendar.periods} periods")
    if mechanism in COUNTERS:
        if delta or noise is not Law.LAPLACE:
            raise ValueError(f"{mechanism} is released at a pure epsilon, with laplace noise")
        return counter_method(mechanism, query, calendar, constraint, epsilon)
    if mechanism == "dcr":
        branching, layers = 2, 1
    if branching is None or layers is None:
        best = best_hierarchy(query, calendar, constraint, epsilon, delta, noise)
        branching = best.branching if branching is None else branching
        layers = best.layers if layers is None else layers
    return HierarchyMethod(hierarchy(query, calendar, constraint, epsilon, delta, branching, layers, noise))
