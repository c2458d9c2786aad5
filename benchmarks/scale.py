"""The capacity model: a fleet's cost to a server, beside a run ten times larger; and costs of segments and readers.

Real servers are sent a fleet's uploads, one to a request, and fold them, some at a time; processor seconds are those of
the server, of the fold, and of those that open envelopes.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from changeling_aggregator.segments import place_at
from changeling_aggregator.store import Store
from changeling_aggregator.testing.services import small_bucket
from changeling_aggregator.testing.serving import TOKEN, RunningServer, children, command_of, prepared_log
from changeling_protocol import Node, UnixMilliseconds
from changeling_protocol.wire import CHANGE, KEYS, survey_path
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


def capacity() -> dict[str, float | None]:
    """Measure 5 of scale: what the model says of a run ten times larger than those that it was fitted on, on SQLite.

    The steps of the small runs, to whose medians the model is fitted, take turns with those of the large run, so that
    whatever else the machine does meets both alike.
    """
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


def steps(folder: Path, load: Load, size: Size, into: list[Measured], segments: str = "") -> Iterator[None]:
    """A server with a new store is sent the first uploads, and folds them; yields after each fold, and appends figures.

    segments: the place of the log, if that is not in the store, {} standing for the folder that the store is in; then
    `lying` are the bytes that lie there in the end.
    While uploads are sent nothing is folded: so each fold has as many as the next, however fast the machine is.
    """
    with tempfile.TemporaryDirectory(dir=folder) as place:
        shutil.copy(folder / "server.db", place)
        options = ("--segments", segments.format(place)) if segments else ()
        seconds, objects, lying = dict.fromkeys(SECONDS, 0.0), 0, 0
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
                if segments:
                    lying = sum(each.size for each in place_at(segments.format(place)).list(""))
                yield
            store.close()
        stored = sum(file.stat().st_size for file in Path(place).glob("server.db*"))
    into.append(after | seconds | {"stored": float(stored), "objects": float(objects), "lying": float(lying)})


def _sent(server: RunningServer, store: Store, requests: Iterator[tuple[float, bytes]], uploads: int) -> int:
    """Sends uploads while it has the turn to fold, then has them folded; returns how many segments they lie in."""
    with store.turn_to_fold():
        sent = send(islice(requests, uploads), str(server.url))
        with store.view() as view:
            objects = len(view.unread_ranges(UnixMilliseconds(2**62)))
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
    return [child for child in children(process) if b"spawn_main" in command_of(child)]


def processor_seconds(process: int) -> float:
    """Processor seconds of all threads of a process, by its own clock (clock_getcpuclockid(3)): to the microsecond."""
    return time.clock_gettime(~process << 3 | 2)


def _most_bytes(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


IN_A_FOLDER = Size(4_000, 1_000), Size(12_000, 4_000)
IN_A_BUCKET = Size(4_000, 2_000)
ASKED = 1_500


def serving() -> dict[str, float | None]:
    """Unit costs that the model has beside those of a server on its own store.

    Those of segments are processor seconds of the server's own processes. The object store that speaks as S3 does runs
    in this process, and is not counted.
    """
    figures: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory() as place, small_bucket() as bucket:
        folder = Path(place)
        load = made(folder, WARMING + IN_A_FOLDER[-1].uploads)
        runs: list[Measured] = []
        for size in (*IN_A_FOLDER, IN_A_BUCKET):
            for _ in steps(folder, load, size, runs, bucket.place if size is IN_A_BUCKET else "{}/segments"):
                pass
        figures |= _asked(folder, load)
    *in_folder, in_bucket = runs
    model = modelled({size: [run] for size, run in zip(IN_A_FOLDER, in_folder, strict=True)})
    for stage in SECONDS:
        cost = model[stage]
        more = in_bucket[stage] - cost.of(IN_A_BUCKET.uploads, times_of(stage, IN_A_BUCKET))
        figures |= {f"folder_{stage}_us": 1e6 * cost.each, f"folder_{stage}_of_a_fold_us": 1e6 * cost.start}
        figures[f"object_{stage}_us"] = 1e6 * more / in_bucket["objects"]
    figures["folder_bytes"] = in_folder[-1]["lying"] / (WARMING + IN_A_FOLDER[-1].uploads)
    figures["bucket_bytes"] = in_bucket["lying"] / (WARMING + IN_A_BUCKET.uploads)
    figures["uploads_an_object"] = IN_A_BUCKET.uploads / in_bucket["objects"]
    return figures


def _asked(folder: Path, load: Load) -> dict[str, float]:
    """Processor time of the server for a key, for a result that it has made before, and for one that still holds."""
    figures = {}
    store = Store.open(folder / "server.db")
    with store.view() as view:
        (survey,) = view.surveys()
    store.close()
    with RunningServer(folder) as server:
        send(load.requests(64), server.url)
        with ServerClient(server.url, token=TOKEN, timeout=600) as asked:
            asked.fold()
        result = f"{survey_path(survey.hex())}{CHANGE}?after=7&until=8"
        tag = server.http.get(result).raise_for_status().headers["etag"]
        for name, path, headers in (
            ("key", KEYS, {}),
            ("result", result, {}),
            ("unchanged_result", result, {"if-none-match": tag}),
        ):
            answer = server.http.get(path, headers=headers)
            before = processor_seconds(server.process.pid)
            for _ in range(ASKED):
                server.http.get(path, headers=headers)
            figures[f"{name}_us"] = 1e6 * (processor_seconds(server.process.pid) - before) / ASKED
            heads = sum(len(name) + len(value) + 4 for name, value in answer.headers.raw)
            figures[f"{name}_bytes"] = float(len(answer.content) + heads)
    return figures
