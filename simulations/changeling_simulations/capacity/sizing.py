"""Machines and money: what a day asks for, times what an upload costs."""

from dataclasses import dataclass
from math import ceil

from ..fleet.rhythm import Rhythm
from .costs import MEASURED_BYTES, UnitCosts
from .demand import DAY_SECONDS, ID_BYTES, Demand

MONTH_DAYS = 30.4
GIGABYTE = 1e9
REMEMBERED_ID_BYTES = 8
"""Of each id a fold holds one half in memory, so that looking an id up costs no reading."""
MOST_REMEMBERED_BYTES = 256 * 2**20
"""So much of that one fold holds; beyond, it reads pieces of the sorted ids for each batch."""


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

    mean, peak: envelopes a second. stages: in the order in which an envelope passes them. stored: bytes on disks, or in
    an object store. memory: bytes, of all folds together. machines: for cores and memory. month: money.
    limits: what one server with one store has, and how many times over it is asked for; the worst first.
    """

    mean: float
    peak: float
    stages: tuple[Stage, ...]
    stored: float
    memory: float
    machines: int
    month: float
    limits: tuple[tuple[str, float], ...]

    @property
    def cores(self) -> float:
        """At the busiest moment, all stages together."""
        return sum(stage.cores for stage in self.stages)


def sized(
    demand: Demand,
    costs: UnitCosts,
    rhythm: Rhythm = Rhythm(),  # noqa: B008
    machine: Machine = Machine(),
    prices: Prices = Prices(),
    shards: int = 1,
    commits: float = 20.0,
) -> Sizing:
    """What a demand takes.

    shards: among so many folds the ids are divided, each of which then sorts so many fewer. commits: how many a second
    each server makes, each a request to an object store.
    Accepting must keep up with the peak; opening and counting, with the day's mean: they catch up at night, and are
    given a third more, so that they do.
    """
    mean = demand.envelopes / DAY_SECONDS
    peak = mean * (1 + rhythm.swing)
    ids = demand.devices / shards
    accept, opening = costs.accept.each, costs.opening.each
    counting = costs.counting.marginal(ids) * demand.closings
    stages = (
        Stage("accept", demand.envelopes * accept, peak * accept / machine.busy),
        Stage("open", demand.envelopes * opening, 4 / 3 * mean * opening),
        Stage("count", demand.envelopes * counting, 4 / 3 * mean * counting),
    )
    added = max(costs.stored.each - MEASURED_BYTES - ID_BYTES, 0.0)
    stored = demand.log_bytes + demand.id_bytes + added * demand.envelopes * demand.kept_days + demand.tally_bytes
    memory = shards * costs.fold_memory.start + REMEMBERED_ID_BYTES * demand.kept_ids
    cores = sum(stage.cores for stage in stages)
    machines = max(1, ceil(cores / machine.cores), ceil(memory / machine.memory))
    servers = max(1, ceil(stages[0].cores))
    month = (
        machines * machine.cores * 24 * MONTH_DAYS * prices.core_hour
        + stored / GIGABYTE * prices.stored
        + servers * commits * DAY_SECONDS * MONTH_DAYS * prices.request
    )
    limits = {
        "one process to accept": peak * accept,
        "one machine to open": stages[1].cores / machine.cores,
        "one process to count": 4 / 3 * mean * counting,
        "ids in the memory of one fold": REMEMBERED_ID_BYTES * demand.kept_ids / MOST_REMEMBERED_BYTES,
        "one disk": stored / machine.disk,
    }
    worst = sorted(limits.items(), key=lambda limit: -limit[1])
    return Sizing(mean, peak, stages, stored, memory, machines, month, tuple(worst))
