"""Measure 5 of scale: what the capacity model says of a run ten times larger than those that it was fitted on.

Real servers on SQLite, each with a store of its own, are sent a fleet's uploads, one to a request, as fast as they are
answered, and fold them, some at a time. Processor seconds are those of the processes: the server's, the fold's, and of
those that open envelopes. The model is fitted to medians of runs of three sizes. Their steps take turns with those of
the large run, so that whatever else the machine does meets both alike.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import islice, zip_longest
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from changeling_aggregator.store import Store
from changeling_aggregator.testing.killing import prepared_log
from changeling_aggregator.testing.serving import TOKEN, RunningServer
from changeling_protocol import Node
from changeling_reader import ServerClient
from changeling_simulations.capacity import UnitCost, UnitCosts
from changeling_simulations.fleet.devices import Wishes
from changeling_simulations.fleet.sealing import Load, sealed
from changeling_simulations.fleet.sending import send
from scipy.optimize import nnls

from tests.processes import children


class Size(NamedTuple):
    """Of a run. uploads: in all. folded: at a time."""

    uploads: int
    folded: int


SMALL = (Size(4_000, 4_000), Size(8_000, 1_000), Size(12_000, 4_000))
LARGE = Size(120_000, 4_000)
ROUNDS = 3
WARMING = 2_000
"""So many uploads are sent and folded before anything is measured: processes start, and modules are loaded, once."""
_ALL_THREADS_RUN = 2
"""Which of a process's clocks Linux gives under such a number; clock_getcpuclockid(3) makes it so."""

SECONDS = ("accept", "opening", "counting")

Measured = dict[str, float]
"""By the names of UnitCosts; and how many `objects` the log was written in, where it lies in segments."""


def measure() -> dict[str, float | None]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        load = made(folder, WARMING + LARGE.uploads)
        small: dict[Size, list[Measured]] = {size: [] for size in SMALL}
        large: list[Measured] = []
        small_runs = (each for _ in range(ROUNDS) for size in SMALL for each in steps(folder, load, size, small[size]))
        for _ in zip_longest(steps(folder, load, LARGE, large), small_runs):
            pass
    model = modelled(small)
    figures: dict[str, float | None] = {"5_bytes_of_a_request": float(median(load.size))}
    for name, cost in asdict(model).items():
        figures |= {f"5_{name}_{part}": coefficient for part, coefficient in cost.items()}
    found = {name: large[0][name] for name in asdict(model)}
    predicted = {name: getattr(model, name).of(LARGE.uploads, times_of(name, LARGE)) for name in found}
    groups = {"cpu": SECONDS, "bytes": ("stored",), "memory": ("server_memory", "fold_memory")}
    for group, names in {**groups, **{name: (name,) for name in found}}.items():
        of_model, of_run = (sum(each[name] for name in names) for each in (predicted, found))
        figures |= {f"5_{group}_predicted": of_model, f"5_{group}_measured": of_run}
        figures[f"5_{group}_error"] = of_model / of_run - 1
    return figures


def made(folder: Path, uploads: int) -> Load:
    """A store in the folder, with a survey and a key, and so many sealed uploads for it."""
    log = prepared_log(folder)
    (folder / "envelopes").mkdir()
    load = sealed(log.survey, log.key, Wishes(uploads, Node(7, 8), None), folder / "envelopes")
    log.store.close()
    return load


def modelled(runs: Mapping[Size, Sequence[Measured]]) -> UnitCosts:
    """The costs that fit the medians of runs, by their sizes."""
    uploads = [size.uploads for size in runs]
    costs: dict[str, UnitCost] = {}
    for field in fields(UnitCosts):
        medians = [median(each[field.name] for each in some) for some in runs.values()]
        costs[field.name] = fitted(uploads, medians, [times_of(field.name, size) for size in runs])
    return UnitCosts(**costs)


def fitted(uploads: Sequence[float], measured: Sequence[float], times: Sequence[float]) -> UnitCost:
    """The cost that fits runs best, by their relative errors; no part of it is below zero.

    uploads, measured, times: of each run: its uploads, their cost, which is above zero, and how often a fold started.
    """
    n, y = np.asarray(uploads, float), np.asarray(measured, float)
    (start, each), _ = nnls(np.stack([np.asarray(times, float), n], axis=1) / y[:, None], np.ones(len(n)))
    return UnitCost(float(start), float(each))


def times_of(name: str, size: Size) -> float:
    """How often what is measured under this name starts in a run."""
    return float(size.uploads // size.folded) if name in SECONDS else 1.0


def steps(
    folder: Path, load: Load, size: Size, into: list[Measured], segments: Callable[[str], str] | None = None
) -> Iterator[None]:
    """A server with a new store is sent the first uploads, and folds them; yields after each fold, and appends figures.

    segments: gives the place of the log, if that is not in the store, for the folder that the store is in.
    While uploads are sent nothing is folded: so each fold has as many as the next, however fast the machine is.
    """
    with tempfile.TemporaryDirectory(dir=folder) as place:
        shutil.copy(folder / "server.db", place)
        options = () if segments is None else ("--segments", segments(place))
        seconds, objects = dict.fromkeys(SECONDS, 0.0), 0
        with RunningServer(Path(place), *options, log=Path(place) / "log") as server:
            store, requests = Store.open(server.store_path), load.requests()
            _sent(server, store, requests, WARMING)
            _rest(server.process.pid)
            for _ in range(size.uploads // size.folded):
                before = of_processes(server.process.pid)
                objects += _sent(server, store, requests, size.folded)
                after = of_processes(server.process.pid)
                seconds = {name: sum_ + after[name] - before[name] for name, sum_ in seconds.items()}
                yield
            store.close()
        stored = sum(file.stat().st_size for file in Path(place).glob("server.db*"))
    into.append({**after, **seconds, "stored": float(stored), "objects": float(objects)})


def _rest(server: int) -> None:
    """Waits until those that open have loaded what they need: the fold goes on without them until then."""
    before, now = -1.0, of_processes(server)["opening"]
    while now - before > 0.01:
        time.sleep(1)
        before, now = now, of_processes(server)["opening"]


def _sent(server: RunningServer, store: Store, requests: Iterator[tuple[float, bytes]], uploads: int) -> int:
    """Sends uploads while it has the turn to fold, then has them folded, however long that takes.

    Returns in how many segments they came to lie, if they do.
    """
    with store.turn_to_fold():
        sent = send(islice(requests, uploads), str(server.url))
        with store.view() as view:
            objects = len(view.segments(uncounted=True))
    if sent.requests != uploads or sent.told:
        raise ValueError(f"of {uploads} uploads {sent.requests} were taken, and {dict(sent.told)} refused")
    with ServerClient(str(server.url), token=TOKEN, timeout=600) as asked:
        asked.fold()
    return objects


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


def command(process: int) -> str:
    """Its command line."""
    return Path(f"/proc/{process}/cmdline").read_text()


def processor_seconds(process: int) -> float:
    """Of all its threads, those that have ended as well, by the process's own clock: to the microsecond.

    What /proc tells is whole hundredths of a second, of which the smaller runs have a few.
    """
    return time.clock_gettime(~process << 3 | _ALL_THREADS_RUN)


def most_bytes(process: int) -> float:
    """The most that it ever resided in."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
