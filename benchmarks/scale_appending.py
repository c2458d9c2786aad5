"""Measure 4: appends to segments through HTTP, one envelope each, beside an endpoint that only reads the body.

To a folder, and to an object store in the memory of this process, which shares the two processors with all else and
takes little of them: its part is told. Then two server processes at one folder against one, beside two of the empty
endpoint against one: what two busy processes cost on this machine, whatever they do.
"""

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from changeling_aggregator.testing.bucket import SmallBucket, small_bucket
from changeling_aggregator.testing.killing import prepared_log
from changeling_aggregator.testing.serving import RunningServer

from .server_appending import loaded_with_cpu
from .server_world import Running, bodies, empty_server, kept_bodies

ROUNDS = 2
BODIES = 2000


def measure() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with empty_server() as empty, tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "segments")
        figures |= {f"4_folder_{what}": figure for what, figure in _beside(place, empty).items()}
        with small_bucket() as bucket:
            figures |= {f"4_bucket_{what}": figure for what, figure in _beside(bucket.place, empty, bucket).items()}
    figures |= {f"4_two_{what}": figure for what, figure in _two().items()}
    return figures


def _beside(place: str, empty: Running, bucket: SmallBucket | None = None) -> dict[str, float]:
    """bucket: where that is the place, of which the objects are counted, and the processor time that it takes."""
    with ExitStack() as opened:
        folder, file, store = _prepared(opened)
        server = opened.enter_context(RunningServer(folder, "--segments", place, store=store))
        ours = Running(server.port, server.process.pid)
        rounds = []
        for _ in range(ROUNDS):
            idle, before, began = loaded_with_cpu(empty, file), _taken(bucket), time.perf_counter()
            mine = loaded_with_cpu(ours, file)
            taken = [now - then for now, then in zip(_taken(bucket), before, strict=True)]
            rounds.append((idle, mine, taken, time.perf_counter() - began))
    figures = {
        "requests": median(mine["rate"] for _, mine, _, _ in rounds),
        "cpu_us": 1e6 * median(mine["cpu"] for _, mine, _, _ in rounds),
        "ratio": median(mine["rate"] / idle["rate"] for idle, mine, _, _ in rounds),
        "cpu_ratio": median(idle["cpu"] / mine["cpu"] for idle, mine, _, _ in rounds),
        "turned_away": sum(mine["other"] for _, mine, _, _ in rounds),
    }
    if bucket is not None:
        figures |= {
            "objects_a_second": median(puts / seconds for _, _, (puts, _), seconds in rounds),
            "uploads_an_object": median(mine["requests"] / max(1, puts) for _, mine, (puts, _), _ in rounds),
            "store_cpu_us": 1e6 * median(cpu / mine["requests"] for _, mine, (_, cpu), _ in rounds),
        }
    return figures


def _taken(bucket: SmallBucket | None) -> tuple[int, float]:
    """How many objects a store in this process was given, and the processor time of the process."""
    return (bucket.puts() if bucket else 0, time.process_time())


def _two() -> dict[str, float]:
    """Processor time an envelope, of two servers under load at once, over that of each alone; all rounds together."""
    with ExitStack() as opened:
        folder, file, store = _prepared(opened)
        (folder / "other").mkdir()
        options = ("--segments", str(folder / "segments"))
        empty = [opened.enter_context(empty_server()) for _ in range(2)]
        serving = [
            opened.enter_context(RunningServer(each, *options, store=store)) for each in (folder, folder / "other")
        ]
        ours = [Running(each.port, each.process.pid) for each in serving]
        rounds = [(_both(empty, file), _both(ours, file)) for _ in range(ROUNDS)]
    of_empty, of_ours = (_over_one(each) for each in zip(*rounds, strict=True))
    return {"empty_cpu_over_one": of_empty, "cpu_over_one": of_ours}


def _over_one(rounds: Sequence[tuple[float, float, float, float]]) -> float:
    one_cpu, one, two_cpu, two = map(sum, zip(*rounds, strict=True))
    return (two_cpu / two) / (one_cpu / one)


def _both(pair: Sequence[Running], file: Path) -> tuple[float, float, float, float]:
    """Processor seconds and envelopes of one after the other, and of two at the same time."""
    alone = [loaded_with_cpu(server, file) for server in pair]
    with ThreadPoolExecutor(2) as pool:
        together = [*pool.map(lambda server: loaded_with_cpu(server, file), pair)]
    (one_cpu, one), (two_cpu, two) = (
        (sum(each["cpu"] * each["requests"] for each in found), sum(each["requests"] for each in found))
        for found in (alone, together)
    )
    return one_cpu, one, two_cpu, two


def _prepared(opened: ExitStack) -> tuple[Path, Path, str]:
    """A folder for a server, a file of requests, and a store with the survey that they answer."""
    folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
    log = prepared_log(folder)
    file = kept_bodies(folder / "bodies", bodies(log.survey, log.key, BODIES, 1))
    log.store.close()
    return folder, file, str(log.store.place)
