"""Measure 5 of scale: what the capacity model says of a run ten times larger than those that it was fitted on.

Real servers on SQLite, each with a store of its own, are sent a fleet's uploads at once, one to a request, as fast as
they are answered, and fold them. Processor seconds are those of the processes: the server's, the fold's, and of those
that open envelopes. The model is fitted to medians of runs of two sizes, made before and after the large one.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from statistics import median

from changeling_protocol import Node
from changeling_simulations.capacity.costs import Cost, UnitCosts, fitted
from changeling_simulations.fleet.sealing import Load, sealed
from changeling_simulations.fleet.sending import send
from changeling_simulations.fleet.server import Server
from changeling_simulations.fleet.wishes import Wishes

from tests.aggregator.serving import TOKEN, ServerProcess

from .server_world import prepared

SMALL = (4_000, 12_000)
LARGE = 120_000
ROUNDS = 3
WARMING = 2_000
"""So many uploads are sent and folded before anything is measured: processes start, and modules are loaded, once."""
COUNTING_GROWTH = 0.2
"""Of counting an upload among SMALL's, the share that is taken to grow with log2 of how many there are: an id is looked
up among sorted ones, and written again each time that runs of ids become a longer one. Sizes as near each other as
SMALL's cannot tell it."""

SECONDS = ("accept", "opening", "counting")

Measured = dict[str, float]
"""By the names of UnitCosts."""


def measure() -> dict[str, float | None]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        log = prepared(folder)
        (folder / "envelopes").mkdir()
        load = sealed(log.survey, log.key, Wishes(WARMING + LARGE, Node(7, 8), None), folder / "envelopes")
        log.store.close()
        small: dict[int, list[Measured]] = {size: [] for size in SMALL}
        large: Measured = {}
        for round_ in range(ROUNDS):
            if round_ == ROUNDS // 2:
                large = run(folder, load, LARGE)
            for size in SMALL:
                small[size].append(run(folder, load, size))
    model = modelled(small)
    figures: dict[str, float | None] = {"5_bytes_of_a_request": float(median(load.size))}
    for name, cost in asdict(model).items():
        figures |= {f"5_{name}_{part}": coefficient for part, coefficient in cost.items()}
    groups = {"cpu": SECONDS, "bytes": ("stored",), "memory": ("server_memory", "fold_memory")}
    for group, names in groups.items():
        predicted = sum(getattr(model, name).of(LARGE) for name in names)
        found = sum(large[name] for name in names)
        figures |= {f"5_{group}_predicted": predicted, f"5_{group}_measured": found}
        figures[f"5_{group}_error"] = predicted / found - 1
    for name, found in large.items():
        figures[f"5_{name}_error"] = getattr(model, name).of(LARGE) / found - 1
    return figures


def modelled(runs: dict[int, list[Measured]]) -> UnitCosts:
    """The costs that fit the medians of runs, by their sizes."""
    sizes = sorted(runs)
    costs: dict[str, Cost] = {}
    for field in fields(UnitCosts):
        medians = [median(each[field.name] for each in runs[size]) for size in sizes]
        costs[field.name] = fitted(sizes, medians, COUNTING_GROWTH if field.name == "counting" else 0.0)
    return UnitCosts(**costs)


def run(folder: Path, load: Load, uploads: int) -> Measured:
    """One server with a new store is sent the first so many uploads, and folds them."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        shutil.copy(folder / "server.db", place)
        with ServerProcess(Path(place)) as server:
            requests = load.requests()
            send(islice(requests, WARMING), server.url)
            _fold(server)
            before = of_processes(server.process.pid)
            sent = send(islice(requests, uploads), server.url)
            _fold(server)
            after = of_processes(server.process.pid)
        if sent.requests != uploads or sent.told:
            raise ValueError(f"of {uploads} uploads {sent.requests} were taken, and {dict(sent.told)} refused")
        figures = {name: value - (before[name] if name in SECONDS else 0.0) for name, value in after.items()}
        figures["stored"] = float(sum(file.stat().st_size for file in Path(place).glob("server.db*")))
    return figures


def _fold(server: ServerProcess) -> None:
    """To the log's end, however long that takes on a machine that others use as well."""
    with Server(server.url, TOKEN) as asked:
        asked.fold()


def of_processes(server: int) -> Measured:
    """What the processes of a server have taken so far: its own, its child that folds, and those that open."""
    (fold,) = [child for child in children(server) if "spawn_main" in command(child)]
    openers = [child for child in children(fold) if "spawn_main" in command(child)]
    return {
        "accept": processor_seconds(server),
        "opening": sum(map(processor_seconds, openers)),
        "counting": processor_seconds(fold),
        "server_memory": most_bytes(server),
        "fold_memory": most_bytes(fold),
    }


def children(process: int) -> Iterator[int]:
    """The processes that a process has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue  # it has ended meanwhile
        if int(parent) == process:
            yield int(stat.parent.name)


def command(process: int) -> str:
    """Its command line."""
    return Path(f"/proc/{process}/cmdline").read_text()


def processor_seconds(process: int) -> float:
    """Of all its threads."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def most_bytes(process: int) -> float:
    """The most that it ever resided in."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
