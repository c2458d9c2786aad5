"""Machines and money: what a day asks for, times what an upload costs, where the log lies and who folds it."""

from dataclasses import dataclass
from math import ceil

from ..fleet.rhythm import Rhythm
from .demand import DAY_SECONDS, ID_BYTES, Demand
from .design import ACCEPTING, COUNTING, DISK, IDS, OPENING, Design, needed
from .measured import ENVELOPE_BYTES, KEY, OBJECT, RESULT, SPARK, UNITS

MONTH_DAYS = 30.4
GIGABYTE = 1e9
REMEMBERED_ID_BYTES = 12
"""Of each id a fold holds one half in memory, and bits that say of most others that they are not there."""
MOST_REMEMBERED_BYTES = 384 * 2**20
"""So much of that one fold holds; beyond, it reads pieces of the sorted ids for each batch."""
REREAD_SECONDS = 80e-6
"""Of a processor, for each id and each run of ids that is not remembered: a piece of about 64 kB is read."""
LONG_RUNS = 7
"""So many of the longest runs of a closing there are at most; nearly all ids are in them."""
FOLDS = 24.0 * 3600
"""In a day, of a server: about one a second."""
RUNS = 24.0
"""In a day, on Spark: so results are an hour old at most, and all ids that are kept are read and written so often."""
COMMITS = 20.0
"""Objects a second, of a server before an object store that is sent no more than UPLOADS_AN_OBJECT in such a time."""
UPLOADS_AN_OBJECT = 32
"""So many that come sooner make an object at once: `ingest.bucketed.BucketWriter.pace`."""
BUCKET_IDS = 500_000
"""So many are in one file, of a run on Spark."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What one machine has, and how far it is used.

    memory, disk: bytes. busy: the share of its processors that may be, at peak hours.
    """

    cores: int = 16
    memory: float = 64 * GIGABYTE
    disk: float = 1000 * GIGABYTE
    busy: float = 0.6


@dataclass(frozen=True, slots=True)
class Prices:
    """In one currency. core_hour: of a processor. stored: a gigabyte and month. request: one PUT to an object store."""

    core_hour: float = 0.04
    stored: float = 0.023
    request: float = 5e-6


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the way from a request to a tally.

    seconds: of a processor, in a day. cores: at the busiest moment, with room.
    """

    name: str
    seconds: float
    cores: float


@dataclass(frozen=True, slots=True)
class Sizing:
    """What a demand takes.

    design: where the log lies, and who folds it. mean, peak: envelopes a second. stages: in the order in which an
    envelope passes them; the last is what is answered to devices and readers. stored: bytes on disks, or in an object
    store. shuffled: bytes that a run on Spark has on its workers' disks. puts: objects written, a second.
    memory: bytes, of all processes together. machines: for cores and memory. month: money.
    limits: what one server with one store has, and how many times over it is asked for; the worst first.
    """

    design: Design
    mean: float
    peak: float
    stages: tuple[Stage, ...]
    stored: float
    shuffled: float
    puts: float
    memory: float
    machines: int
    month: float
    limits: tuple[tuple[str, float], ...]

    @property
    def cores(self) -> float:
        """At the busiest moment, all stages together."""
        return sum(stage.cores for stage in self.stages)

    @property
    def over(self) -> tuple[str, ...]:
        """What one server with one store has too little of, the worst first."""
        return tuple(name for name, times in self.limits if times > 1)


def sized(
    demand: Demand,
    design: Design | None = None,
    rhythm: Rhythm = Rhythm(),  # noqa: B008
    machine: Machine = Machine(),
    prices: Prices = Prices(),
    shards: int = 1,
) -> Sizing:
    """What a demand takes.

    design: None for the simplest that has room for it. shards: so many stores, each with surveys of its own, share all.
    Accepting must keep up with the peak; opening and counting, with the day's mean: they catch up at night, and are
    given a third more, so that they do.
    """
    limits = _limits(demand, rhythm, machine, shards)
    chosen = needed(limits) if design is None else design
    mean, units = demand.envelopes / DAY_SECONDS, UNITS[chosen]
    stages = _stages(demand, chosen, rhythm, machine, shards)
    servers = max(shards, ceil(stages[0].cores))
    added = max(units.stored.each - ENVELOPE_BYTES - ID_BYTES, 0.0)
    stored = demand.log_bytes + demand.id_bytes + added * demand.envelopes * demand.kept_days + demand.tally_bytes
    memory = servers * units.server_memory.start
    shuffled = 0.0
    objects = _objects(demand, chosen, rhythm, machine, shards)
    puts = objects / DAY_SECONDS * 16 / 15  # each sixteen become one, and so on
    if chosen is Design.SPARK:
        read = demand.answered / RUNS
        shuffled = SPARK.shuffled * read + SPARK.shuffled_id * demand.kept_ids
        puts += RUNS * (1 + (demand.kept_ids + read) / BUCKET_IDS) * demand.surveys / DAY_SECONDS
        memory += SPARK.memory * (1 + ceil(stages[1].cores + stages[2].cores))
    else:
        remembered = min(REMEMBERED_ID_BYTES * demand.answered / shards, MOST_REMEMBERED_BYTES)
        memory += shards * (units.fold_memory.start + remembered)
    machines = max(1, ceil(sum(stage.cores for stage in stages) / machine.cores), ceil(memory / machine.memory))
    month = (
        machines * machine.cores * 24 * MONTH_DAYS * prices.core_hour
        + stored / GIGABYTE * prices.stored
        + puts * DAY_SECONDS * MONTH_DAYS * prices.request
    )
    worst = sorted(limits.items(), key=lambda limit: -limit[1])
    peak = mean * (1 + rhythm.swing)
    return Sizing(chosen, mean, peak, stages, stored, shuffled, puts, memory, machines, month, tuple(worst))


def _stages(
    demand: Demand, design: Design, rhythm: Rhythm, machine: Machine, shards: int
) -> tuple[Stage, Stage, Stage, Stage]:
    units, busiest = UNITS[design], (1 + rhythm.swing) / DAY_SECONDS / machine.busy
    folds = min(FOLDS * shards, demand.envelopes)
    accept = demand.envelopes * units.accept.each
    objects = _objects(demand, design, rhythm, machine, shards)
    accept += objects * OBJECT.written
    if design is Design.SPARK:
        opening = demand.envelopes * SPARK.envelope + objects * OBJECT.read
        counting = SPARK.closing * (demand.answered - demand.envelopes) + RUNS * (
            SPARK.run + SPARK.id * demand.kept_ids
        )
    else:
        opening = units.opening.of(demand.envelopes, folds)
        forgotten = max(0.0, 1 - MOST_REMEMBERED_BYTES * shards / (REMEMBERED_ID_BYTES * demand.answered))
        counting = units.counting.of(demand.answered, folds)
        counting += demand.answered * forgotten * LONG_RUNS * REREAD_SECONDS + objects * OBJECT.read
    keys, reads = KEY.seconds, demand.reads * DAY_SECONDS * RESULT.seconds
    return (
        Stage("accept", accept, accept * busiest),
        Stage("open", opening, 4 / 3 * opening / DAY_SECONDS),
        Stage("count", counting, 4 / 3 * counting / DAY_SECONDS),
        # On the day on which a key begins all devices ask for it.
        Stage(
            "answer", demand.keys_asked * keys + reads, (demand.keys_asked * demand.key_days * keys + reads) * busiest
        ),
    )


def _objects(demand: Demand, design: Design, rhythm: Rhythm, machine: Machine, shards: int) -> float:
    """How many objects servers write in a day: COMMITS a second each, or one for UPLOADS_AN_OBJECT if that is more."""
    if design is Design.STORE:
        return 0.0
    cores = demand.envelopes * UNITS[design].accept.each * (1 + rhythm.swing) / DAY_SECONDS / machine.busy
    paced = max(shards, ceil(cores)) * COMMITS * DAY_SECONDS
    return min(max(paced, demand.envelopes / UPLOADS_AN_OBJECT), demand.envelopes)


def _limits(demand: Demand, rhythm: Rhythm, machine: Machine, shards: int) -> dict[str, float]:
    """How many times over what each of so many servers with a store of its own has is asked for."""
    accept, opening, counting, _ = _stages(demand, Design.STORE, rhythm, machine, shards)
    kept = demand.log_bytes + demand.id_bytes + demand.tally_bytes
    added = UNITS[Design.STORE].stored.each - ENVELOPE_BYTES - ID_BYTES
    limits = {
        ACCEPTING: accept.cores,
        OPENING: opening.cores / machine.cores,
        COUNTING: counting.cores,
        IDS: REMEMBERED_ID_BYTES * demand.answered / MOST_REMEMBERED_BYTES,
        DISK: (kept + added * demand.envelopes * demand.kept_days) / machine.disk,
    }
    return {name: times / shards for name, times in limits.items()}
