"""How many machines a survey takes: a table of what an upload costs a server, and the command that multiplies it.

The costs are those of one machine, as `python -m benchmarks scale scale.capacity` and `make bench-costs` measured them;
docs/scale.md says how far they can be believed.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Annotated

import typer
from changeling_commands import read_count, read_duration
from changeling_protocol import HEAD_BYTES, MOST_SPANNED_PERIODS, SEAL_BYTES, Node, Survey, closings, upload_bytes
from changeling_statistics import counterpart_of, read_survey
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class UnitCost:
    """start·times + each·n, for n uploads at so many times: in processor seconds, or in bytes.

    A fold takes something however little there is to count, and each upload the same again.

    >>> UnitCost(1.0, 0.5).of(4, times=3)
    5.0
    """

    start: float
    each: float

    def of(self, uploads: float, times: float = 1.0) -> float:
        """The cost of so many uploads together, in so many folds where it is folds that start."""
        return self.start * times + self.each * uploads


COSTS = {
    "accept": UnitCost(0.01, 110e-6),
    "opening": UnitCost(0.02, 85e-6),
    "counting": UnitCost(0.03, 4.5e-6),
    "stored": UnitCost(540e3, 176.0),
    "server_memory": UnitCost(132e6, 0.5),
    "fold_memory": UnitCost(127e6, 60.0),
}
"""The costs of one server's stages, for uploads that each are a request and answer one closing with one report.

accept: checking, appending and acknowledging, in the server's process. opening: HPKE and columns, in processes of the
fold. counting: checks, duplicates and tallies, in the fold's own process. All in processor seconds, of SQLite, between
what an idle machine and a busy one took; segments in a folder take as much. stored: files of log and ids, in bytes.
server_memory, fold_memory: the most memory of each process, in bytes."""
OBJECT = {"written": 2.0e-3, "read": 2.3e-3}
"""Processor seconds of an object of a bucket's log: the server's, and the fold's, which writes each 16 anew as one."""
SPARK = {"run": 1.5, "envelope": 115e-6, "closing": 3.3e-6, "id": 1.4e-6, "shuffled": 27.0, "shuffled_id": 18.0}
"""A run of the fold on Spark: processor seconds of a run, an envelope, a closing beyond an envelope's first, and an id
that was counted before; and bytes on workers' disks of a closing and of such an id."""
KEY_SECONDS, RESULT_SECONDS = 390e-6, 1.3e-3
"""An answer to a device that asks for the sealing key; to a reader, of a result that was asked for before."""

DAY_SECONDS, MONTH_DAYS, GIGABYTE = 86_400, 30.4, 1e9
BUSIEST_HOUR, BUSY = 1.6, 0.6
"""Arrivals of the busiest hour, times the day's mean; the share of processors that may be used then."""
ENVELOPE_BYTES, ID_BYTES, CELL_BYTES, REQUEST_BYTES = 112.0, 16, 8, 3
REMEMBERED_ID_BYTES, MOST_REMEMBERED_BYTES = 12, 384 * 2**20
"""A fold holds one half of each id in memory, and no more than so many bytes of them; the rest it reads again."""
REREAD_SECONDS = 7 * 80e-6
"""Processor seconds of an id that is not remembered: a piece of 64 kB of each of the seven longest runs of ids."""
FOLDS, RUNS, READS = 24.0 * 3600, 24.0, 10.0
"""A day's folds of a server; a day's runs on Spark; how many results a second reach the servers, past all caches."""
COMMITS, UPLOADS_AN_OBJECT, BUCKET_IDS = 20.0, 32, 500_000
"""Objects a second of a server before an object store, or one for so many uploads; ids in a file of a run on Spark."""
SPARK_CORE_BYTES = 1.6e9
FOLD_AWAY_SECONDS, RUNS_MISSED, ROOM = 3600.0, 1, 1.25
"""A store's settings have room for so long without the fold, or so many runs on Spark that fail, in the busiest hours;
and for so many times the bytes that are kept."""
ACCEPTING, DISK = "one process to accept", "one disk"


class ServerDesign(StrEnum):
    """How a server's work is divided; each divides more than the one before, and takes more to run.

    STORE: one database has log, ids and tallies; one server accepts, and one machine folds.
    SEGMENTS: the log lies in an object store: several servers accept, and no disk limits it. One machine folds.
    SPARK: the same, and a Spark cluster folds, whose ids lie in the object store as well.
    """

    STORE = "store"
    SEGMENTS = "segments"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, and prices in one currency.

    memory, disk: bytes. core_hour: the price of a processor's hour. stored: of a gigabyte and month. put: of writing
    one object.
    """

    cores: int = 16
    memory: float = 64 * GIGABYTE
    disk: float = 1000 * GIGABYTE
    core_hour: float = 0.04
    stored: float = 0.023
    put: float = 5e-6


@dataclass(frozen=True, slots=True)
class Demand:
    """A day of a survey.

    envelopes: sent in a day, by all devices. envelope_bytes: of one, sealed. closings: that one answers, on average.
    ids: kept at once, one for each entry and open closing. kept_days: how long an envelope stays in the log.
    tally_bytes: of all tallies, which do not grow with devices.
    """

    devices: int
    envelopes: float
    envelope_bytes: float
    closings: float
    ids: float
    kept_days: float
    tally_bytes: float


def demanded(survey: Survey, devices: int, *, uploads_a_day: float = 1.0, retention: int | None = None) -> Demand:
    """The day of a survey with so many devices.

    uploads_a_day: how often a device's app runs, if there is anything to report; what closed since goes in one upload.
    retention: how long an envelope stays in the log, in seconds; by default for the survey's grace, as a server does.
    """
    calendar = survey.calendar
    ends = len(closings(survey.plan, 0, calendar.periods))
    days = calendar.period * calendar.periods / DAY_SECONDS
    uploads = min(uploads_a_day, ends / days)
    spanned = min(max(1, round(calendar.periods / days / uploads)), MOST_SPANNED_PERIODS, calendar.periods)
    spans = [Node(at, at + spanned) for at in range(0, calendar.periods - spanned + 1, spanned)][:64]
    plain = sum(upload_bytes(survey.plan, span) for span in spans) / len(spans)
    cells = sum(track.count * counterpart_of(track.randomizer).slots for track in survey.plan.tracks) * survey.strata
    return Demand(
        devices,
        devices * uploads,
        plain + HEAD_BYTES + SEAL_BYTES + REQUEST_BYTES,
        ends / days / uploads,
        devices * min(survey.grace / DAY_SECONDS * ends / days + 1, ends),
        (survey.grace if retention is None else retention) / DAY_SECONDS,
        CELL_BYTES * cells,
    )


@dataclass(frozen=True, slots=True)
class Sizing:
    """The machines and the money that a demand takes.

    mean, peak: envelopes a second. stored, shuffled, memory: bytes on disks or in an object store, on the disks of
    Spark's workers in a run, and of all processes together. puts: objects written a second. cores: by stage, at the
    busiest hour, with room. month: money. limits: how many times over one server with one store has too little of
    something, the worst first. most_store: GiB, most_waiting: requests, for the options of `changeling serve`.
    """

    design: ServerDesign
    mean: float
    peak: float
    stored: float
    shuffled: float
    puts: float
    memory: float
    cores: dict[str, float]
    machines: int
    month: float
    limits: dict[str, float]
    most_store: int
    most_waiting: int


def sized(demand: Demand, design: ServerDesign | None = None, machine: Machine = Machine()) -> Sizing:
    """The machines that a demand takes, and their price; in the first design that has room, if none is given.

    Accepting must keep up with the busiest hour; opening and counting, with the day's mean: they catch up at night, and
    are given a third more, so that they do.
    """
    answered = demand.envelopes * demand.closings
    log = demand.envelopes * demand.kept_days
    stored = log * (demand.envelope_bytes + COSTS["stored"].each - ENVELOPE_BYTES - ID_BYTES) + ID_BYTES * demand.ids
    stored += demand.tally_bytes
    alone = _cores(demand, ServerDesign.STORE, 0.0)
    limits = {
        ACCEPTING: alone["accept"],
        "one machine to open": alone["open"] / machine.cores,
        "one process to count": alone["count"],
        "a day's ids in the memory of one fold": REMEMBERED_ID_BYTES * answered / MOST_REMEMBERED_BYTES,
        DISK: stored / machine.disk,
    }
    design = design or _with_room(limits)
    objects = 0.0
    if design is not ServerDesign.STORE:
        at_most = max(max(1, ceil(alone["accept"])) * COMMITS * DAY_SECONDS, demand.envelopes / UPLOADS_AN_OBJECT)
        objects = min(at_most, demand.envelopes)
    cores = _cores(demand, design, objects)
    puts, shuffled = objects / DAY_SECONDS * 16 / 15, 0.0  # each sixteen become one, and so on
    memory = max(1, ceil(cores["accept"])) * COSTS["server_memory"].start
    if design is ServerDesign.SPARK:
        read = answered / RUNS
        shuffled = SPARK["shuffled"] * read + SPARK["shuffled_id"] * demand.ids
        puts += RUNS * (1 + (demand.ids + read) / BUCKET_IDS) / DAY_SECONDS
        memory += SPARK_CORE_BYTES * (1 + ceil(cores["open"] + cores["count"]))
    else:
        memory += COSTS["fold_memory"].start + min(REMEMBERED_ID_BYTES * answered, MOST_REMEMBERED_BYTES)
    machines = max(1, ceil(sum(cores.values()) / machine.cores), ceil(memory / machine.memory))
    daily = machines * machine.cores * 24 * machine.core_hour + puts * DAY_SECONDS * machine.put
    month = MONTH_DAYS * daily + stored / GIGABYTE * machine.stored
    mean, worst_first = demand.envelopes / DAY_SECONDS, dict(sorted(limits.items(), key=lambda limit: -limit[1]))
    peak = BUSIEST_HOUR * mean
    spark_seconds = (1 + RUNS_MISSED) * DAY_SECONDS / RUNS
    waiting = ceil(ROOM * peak * (spark_seconds if design is ServerDesign.SPARK else FOLD_AWAY_SECONDS))
    bytes_kept = stored + waiting * (demand.envelope_bytes + COSTS["stored"].each - ENVELOPE_BYTES)
    room = ceil((COSTS["stored"].start + ROOM * bytes_kept) / 2**30)
    return Sizing(
        design, mean, peak, stored, shuffled, puts, memory, cores, machines, month, worst_first, room, waiting
    )


def _with_room(limits: dict[str, float]) -> ServerDesign:
    """The first design that has room where one server with one store has too little of something so many times over."""
    over = {name for name, times in limits.items() if times > 1}
    if not over:
        return ServerDesign.STORE
    return ServerDesign.SEGMENTS if over <= {ACCEPTING, DISK} else ServerDesign.SPARK


def _cores(demand: Demand, design: ServerDesign, objects: float) -> dict[str, float]:
    """The processors of each stage on the way of an envelope, and of answers to devices and readers.

    objects: how many servers write in a day.
    """
    answered = demand.envelopes * demand.closings
    accept = demand.envelopes * COSTS["accept"].each + objects * OBJECT["written"]
    if design is ServerDesign.SPARK:
        opening = demand.envelopes * SPARK["envelope"] + objects * OBJECT["read"]
        further = SPARK["closing"] * (answered - demand.envelopes)
        counting = further + RUNS * (SPARK["run"] + SPARK["id"] * demand.ids)
    else:
        folds = min(FOLDS, demand.envelopes)
        forgotten = max(0.0, 1 - MOST_REMEMBERED_BYTES / (REMEMBERED_ID_BYTES * answered))
        opening = COSTS["opening"].of(demand.envelopes, folds)
        counting = COSTS["counting"].of(answered, folds) + answered * forgotten * REREAD_SECONDS
        counting += objects * OBJECT["read"]
    keys = demand.devices * KEY_SECONDS  # on the day on which a key begins all devices ask for it
    answer = keys + READS * DAY_SECONDS * RESULT_SECONDS
    peak, mean = BUSIEST_HOUR / DAY_SECONDS / BUSY, 4 / 3 / DAY_SECONDS
    return {"accept": accept * peak, "open": opening * mean, "count": counting * mean, "answer": answer * peak}


def capacity(
    survey_file: Annotated[Path, typer.Argument(metavar="SURVEY", help="The survey, signed or not.")],
    devices: Annotated[
        list[str] | None, typer.Option(metavar="N", help="How many; may be repeated.", show_default="1e7 1e8 1e9")
    ] = None,
    uploads_a_day: Annotated[float, typer.Option(min=0.01, help="How often a device's app runs.")] = 1.0,
    retention: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long the log keeps an envelope.", show_default="the survey's grace"),
    ] = None,
    design: Annotated[
        ServerDesign | None, typer.Option(help="How the work is divided.", show_default="the first that has room")
    ] = None,
    cores: Annotated[int, typer.Option(min=1, help="Of a machine.")] = 16,
    memory: Annotated[float, typer.Option(min=1, help="Of a machine, in gigabytes.")] = 64,
    core_hour: Annotated[float, typer.Option(min=0, help="Price of a processor's hour.")] = 0.04,
    stored: Annotated[float, typer.Option(min=0, help="Price of a gigabyte's month.")] = 0.023,
    put: Annotated[float, typer.Option(min=0, help="Price of writing one object.")] = 5e-6,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON instead.")] = False,
) -> None:
    """How many machines a survey takes, and how much of one server's limits.

    Costs are those that `python -m benchmarks scale` measured; docs/scale.md says how far they can be believed.
    """
    survey = read_survey(survey_file)
    machine = Machine(cores, memory * GIGABYTE, core_hour=core_hour, stored=stored, put=put)
    kept = None if retention is None else read_duration(retention)
    made = []
    for count in map(read_count, devices or ("1e7", "1e8", "1e9")):
        demand = demanded(survey, count, uploads_a_day=uploads_a_day, retention=kept)
        made.append((demand, sized(demand, design, machine)))
    if as_json:
        sizes = [{"demand": asdict(demand), "sizing": asdict(sizing)} for demand, sizing in made]
        typer.echo(json.dumps({"sizes": sizes}, indent=1))
        return
    console, table = Console(), Table(title="What it takes", title_justify="left")
    head, *rows = rows_of(made)
    for place, column in enumerate(head):
        table.add_column(column, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for demand, sizing in made:
        over = [name for name, times in sizing.limits.items() if times > 1]
        why = f"lacks room for {', '.join(over)}" if over else "has room for it"
        console.print(f"{demand.devices:,}: {sizing.design}. One server with one store {why}.")


def rows_of(made: list[tuple[Demand, Sizing]]) -> list[tuple[str, ...]]:
    """The rows of the table that is printed: a name, and a cell for each size."""
    columns = [_column(*each) for each in made]
    return [(name, *(column[name] for column in columns)) for name in columns[0]]


def _column(demand: Demand, sizing: Sizing) -> dict[str, str]:
    return {
        "devices": f"{demand.devices:,}",
        "envelopes a second, mean": f"{sizing.mean:,.0f}",
        "at the busiest hour": f"{sizing.peak:,.0f}",
        "bytes of an envelope": f"{demand.envelope_bytes:,.0f}",
        "ids kept": f"{demand.ids:,.3g}",
        "log and ids, GB": f"{sizing.stored / GIGABYTE:,.0f}",
        "serve --most-store, GiB": f"{sizing.most_store:,}",
        "serve --most-waiting": f"{sizing.most_waiting:,}",
        "tallies, MB": f"{demand.tally_bytes / 1e6:,.2f}",
        "design": str(sizing.design),
        "memory, GB": f"{sizing.memory / GIGABYTE:,.1f}",
        "objects written a second": f"{sizing.puts:,.0f}",
        "shuffled by a run, GB": f"{sizing.shuffled / GIGABYTE:,.0f}",
        **{f"cores to {stage}": f"{cores:,.2f}" for stage, cores in sizing.cores.items()},
        "machines": f"{sizing.machines:,}",
        "money a month": f"{sizing.month:,.0f}",
        **{f"of {name}": f"{times:,.2f}" for name, times in sizing.limits.items()},
    }
