"""`changeling-sim capacity`: options in; machines, money and a day out."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from changeling_protocol import Survey
from changeling_statistics import read_survey
from rich.console import Console
from rich.table import Table

from . import options
from .capacity.day import MINUTES, Day, Region, simulated_day
from .capacity.demand import DAY_SECONDS, Demand, demand_of
from .capacity.design import Design
from .capacity.sizing import GIGABYTE, RUNS, Machine, Prices, Sizing, sized
from .fleet.rhythm import Rhythm

DEVICES = (10**7, 10**8, 10**9)
REGIONS = ((0.3, 2.0), (0.4, 18.0), (0.3, 10.0))
"""Shares of the devices, and the busiest hour there, UTC."""


def capacity(
    survey_file: Annotated[Path, typer.Argument(metavar="SURVEY", help="The survey, signed or not.")],
    devices: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="How many, as 1e8; may be repeated.", show_default="1e7 1e8 1e9"),
    ] = None,
    surveys: Annotated[int, typer.Option(min=1, help="So many surveys like it, each answered by all devices.")] = 1,
    uploads_a_day: Annotated[float, typer.Option(min=0.01, help="How often a device's app runs.")] = 1.0,
    retention: Annotated[
        int | None,
        typer.Option(
            parser=options.duration,
            metavar="DURATION",
            help="How long the log keeps an envelope.",
            show_default="the survey's grace",
        ),
    ] = None,
    design: Annotated[
        Design | None,
        typer.Option(
            help="Log and ids in one store; the log in segments; or besides, the fold on Spark.",
            show_default="the first that has room",
        ),
    ] = None,
    shards: Annotated[int, typer.Option(min=1, help="Stores that share the surveys, each with a fold.")] = 1,
    key_life: Annotated[
        int,
        typer.Option(parser=options.duration, metavar="DURATION", help="How long devices seal to one key."),
    ] = "30d",  # type: ignore[assignment]
    reads: Annotated[float, typer.Option(min=0, help="Results a second that no cache before the server has.")] = 10.0,
    swing: Annotated[float, typer.Option(min=0, max=1, help="How far the busiest hour is above the mean.")] = 0.6,
    cores: Annotated[int, typer.Option(min=1, help="Of a machine.")] = 16,
    memory: Annotated[float, typer.Option(min=1, help="Of a machine, in gigabytes.")] = 64,
    core_hour: Annotated[float, typer.Option(min=0, help="Price of a processor's hour.")] = 0.04,
    stored: Annotated[float, typer.Option(min=0, help="Price of a gigabyte's month.")] = 0.023,
    put: Annotated[float, typer.Option(min=0, help="Price of writing one object.")] = 5e-6,
    lost_region: Annotated[
        str | None,
        typer.Option(metavar="FROM-UNTIL", help="Go through a day in which the largest region is lost: 17-20."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON instead.")] = False,
) -> None:
    """How many machines a survey takes, how much of one server's limits, and what a day with a lost region is like.

    Costs are those that `python -m benchmarks scale` measured; docs/scale.md says how far they can be believed.
    """  # fmt: skip
    survey = read_survey(survey_file)
    counts = [options.count(text) for text in devices] if devices else list(DEVICES)
    machine, prices = Machine(cores, memory * GIGABYTE), Prices(core_hour, stored, put)
    made: list[tuple[Demand, Sizing]] = []
    for count in counts:
        demand = demanded(survey, count, surveys, uploads_a_day, retention)
        demand = replace(demand, key_days=key_life / DAY_SECONDS, reads=reads)
        made.append((demand, sized(demand, design, Rhythm(swing), machine, prices, shards)))
    day = None if lost_region is None else day_of(*made[-1], _hours(lost_region), swing)
    if as_json:
        typer.echo(json.dumps(_as_json(made, day), indent=1))
        return
    console = Console()
    head, *rows = rows_of(made)
    console.print(_printed("What it takes", head, rows))
    for demand, sizing in made:
        console.print(f"{demand.devices:,}: {_why(sizing)}")
    if day is not None:
        columns = ("hour", "made an hour", "taken an hour", "waiting on devices", "waiting in the log")
        console.print(_printed("A day with a lost region, millions", columns, rows_of_day(day)))


def demanded(
    survey: Survey, devices: int, surveys: int = 1, uploads_a_day: float = 1.0, retention: int | None = None
) -> Demand:
    """What so many surveys, all like this one, ask for together."""
    one = demand_of(survey, devices, uploads_a_day=uploads_a_day, retention=retention)
    return Demand(
        devices * surveys,
        one.envelopes * surveys,
        one.envelope_bytes,
        one.closings,
        one.open_closings,
        one.kept_days,
        one.cells * surveys,
        surveys,
    )


def day_of(demand: Demand, sizing: Sizing, lost: tuple[float, float], swing: float = 0.6) -> Day:
    """Two days on the machines of a sizing, the largest region's servers gone between two hours of the first."""
    largest = max(share for share, _ in REGIONS)
    regions = [Region(share, peak, lost if share == largest else None) for share, peak in REGIONS]
    accept = sizing.stages[0]
    accepting = accept.cores * demand.envelopes / accept.seconds
    every = round(MINUTES / RUNS) if sizing.design is Design.SPARK else 1
    return simulated_day(demand.envelopes, regions, accepting, 4 / 3 * sizing.mean, swing, every=every)


def rows_of(made: Sequence[tuple[Demand, Sizing]]) -> list[tuple[str, ...]]:
    """What is printed of sizes: a name, and a cell for each of them."""
    rows: list[tuple[str, list[str]]] = [
        ("devices", [f"{demand.devices:,}" for demand, _ in made]),
        ("envelopes a second, mean", [f"{sizing.mean:,.0f}" for _, sizing in made]),
        ("at the busiest hour", [f"{sizing.peak:,.0f}" for _, sizing in made]),
        ("bytes of an envelope", [f"{demand.envelope_bytes:,.0f}" for demand, _ in made]),
        ("ids kept", [f"{demand.kept_ids:,.3g}" for demand, _ in made]),
        ("log and ids, GB", [f"{sizing.stored / GIGABYTE:,.0f}" for _, sizing in made]),
        ("tallies, MB", [f"{demand.tally_bytes / 1e6:,.2f}" for demand, _ in made]),
        ("design", [sizing.design for _, sizing in made]),
        ("memory, GB", [f"{sizing.memory / GIGABYTE:,.1f}" for _, sizing in made]),
        ("objects written a second", [f"{sizing.puts:,.0f}" for _, sizing in made]),
        ("shuffled by a run, GB", [f"{sizing.shuffled / GIGABYTE:,.0f}" for _, sizing in made]),
    ]
    for place, stage in enumerate(made[0][1].stages):
        rows.append((f"cores to {stage.name}", [f"{sizing.stages[place].cores:,.2f}" for _, sizing in made]))
    rows += [
        ("machines", [f"{sizing.machines:,}" for _, sizing in made]),
        ("money a month", [f"{sizing.month:,.0f}" for _, sizing in made]),
    ]
    limits = [dict(sizing.limits) for _, sizing in made]
    rows += [(f"of {name}", [f"{each[name]:,.2f}" for each in limits]) for name in limits[0]]
    return [(name, *cells) for name, cells in rows]


def rows_of_day(day: Day) -> list[tuple[str, ...]]:
    """What is printed of a day, every second hour of its first 24 and of the morning after, in millions."""
    rows = []
    for hour in range(0, 36, 2):
        minutes = slice(60 * hour, 60 * hour + 60)
        figures = (day.made[minutes].sum(), day.taken[minutes].sum(), day.on_devices[60 * hour], day.in_log[60 * hour])
        rows.append((f"{hour}", *(f"{figure / 1e6:,.2f}" for figure in figures)))
    return rows


def _why(sizing: Sizing) -> str:
    """What is behind the choice of a design, in a sentence."""
    if not sizing.over:
        return f"{sizing.design}. One server with one store has room for it."
    return f"{sizing.design}. One server with one store lacks room for {', '.join(sizing.over)}."


def _printed(title: str, head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(head):
        table.add_column(column, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _hours(text: str) -> tuple[float, float]:
    first, _, last = text.partition("-")
    try:
        begin, end = float(first), float(last)
    except ValueError:
        begin, end = 0.0, 0.0
    if not 0 <= begin < end <= 24:
        raise ValueError(f"hours of a day are like 17-20, got {text!r}")
    return begin, end


def _as_json(made: Sequence[tuple[Demand, Sizing]], day: Day | None) -> dict[str, Any]:
    content: dict[str, Any] = {
        "sizes": [{"demand": asdict(demand), "sizing": asdict(sizing)} for demand, sizing in made]
    }
    if day is not None:
        content["day"] = {
            "most_waiting_on_devices": float(day.on_devices.max()),
            "most_waiting_in_log": float(day.in_log.max()),
            "fold_lag_minutes": day.lag,
            "waiting_on_devices": day.on_devices.tolist(),
            "waiting_in_log": day.in_log.tolist(),
        }
    return content
