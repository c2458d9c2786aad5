"""Measure 5 of scale: what the capacity model says of a run ten times larger than those that it was fitted on.

Real servers on SQLite are sent a fleet's uploads, one to a request, and fold them, some at a time; processor seconds
are those of the server, of the fold, and of those that open envelopes. The steps of the small runs, to whose medians
the model is fitted, take turns with those of the large run, so that whatever else the machine does meets both alike.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from changeling_simulations.capacity import COSTS, UnitCost
from changeling_simulations.fleet import Load, Wishes, sealed, send
from scipy.optimize import nnls


class Size(NamedTuple):
    """The size of a run. uploads: in all. folded: at a time."""

    uploads: int
    folded: int


SMALL = (Size(4_000, 4_000), Size(8_000, 1_000), Size(12_000, 4_000))
LARGE, ROUNDS = Size(120_000, 4_000), 3
WARMING = 2_000
"""The uploads that are sent and folded before anything is measured: processes start, modules are loaded, once."""
SECONDS = ("accept", "opening", "counting")
Measured = dict[str, float]
"""By the names of COSTS; and how many `objects` the log was written in, where it lies in segments."""


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
    figures: dict[str, float | None] = {"5_bytes_of_a_request": float(median(map(len, load.envelopes)))}
    for name, cost in model.items():
        figures |= {f"5_{name}_start": cost.start, f"5_{name}_each": cost.each}
    predicted = {name: cost.of(LARGE.uploads, times_of(name, LARGE)) for name, cost in model.items()}
    groups = {"cpu": SECONDS, "bytes": ("stored",), "memory": ("server_memory", "fold_memory")}
    for group, names in {**groups, **{name: (name,) for name in model}}.items():
        of_model, of_run = (sum(each[name] for name in names) for each in (predicted, large[0]))
        figures |= {f"5_{group}_predicted": of_model, f"5_{group}_measured": of_run}
        figures[f"5_{group}_error"] = of_model / of_run - 1
    return figures


def made(folder: Path, uploads: int) -> Load:
    """A store in the folder, with a survey and a key, and so many sealed uploads for it."""
    log = prepared_log(folder)
    load = sealed(log.survey, log.key, Wishes(uploads, Node(7, 8), None))
    log.store.close()
    return load


def modelled(runs: Mapping[Size, Sequence[Measured]]) -> dict[str, UnitCost]:
    """The costs that fit the medians of runs best, by their relative errors; no part of one is below zero."""
    costs = {}
    for name in COSTS:
        y = np.array([median(each[name] for each in some) for some in runs.values()])
        terms = np.array([[times_of(name, size), size.uploads] for size in runs], float)
        (start, each), _ = nnls(terms / y[:, None], np.ones(len(y)))
        costs[name] = UnitCost(float(start), float(each))
    return costs


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
            opening = -1.0
            while (now := of_processes(server.process.pid)["opening"]) - opening > 0.01:
                opening = now  # those that open load what they need, and the fold goes on without them until then
                time.sleep(1)
            for _ in range(size.uploads // size.folded):
                before = of_processes(server.process.pid)
                objects += _sent(server, store, requests, size.folded)
                after = of_processes(server.process.pid)
                seconds = {name: sum_ + after[name] - before[name] for name, sum_ in seconds.items()}
                yield
            store.close()
        stored = sum(file.stat().st_size for file in Path(place).glob("server.db*"))
    into.append({**after, **seconds, "stored": float(stored), "objects": float(objects)})


def _sent(server: RunningServer, store: Store, requests: Iterator[tuple[float, bytes]], uploads: int) -> int:
    """Sends uploads while it has the turn to fold, then has them folded; returns how many segments they lie in."""
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
    """The costs of a server's processes so far: its own, its child that folds, and those that open."""
    (fold,) = _spawned(server)
    return {
        "accept": processor_seconds(server),
        "opening": sum(map(processor_seconds, _spawned(fold))),
        "counting": processor_seconds(fold),
        "server_memory": _most_bytes(server),
        "fold_memory": _most_bytes(fold),
    }


def _spawned(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [child for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


def processor_seconds(process: int) -> float:
    """Processor seconds of all threads of a process, by its own clock (clock_getcpuclockid(3)): to the microsecond."""
    return time.clock_gettime(~process << 3 | 2)


def _most_bytes(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
